/* SPDX-License-Identifier: MIT
 *
 * ringctl generate, score and eval: their options, and from them short jobs, whose answer
 * ctl_follow.c prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_follow.h"
#include "daemon/ctl/ctl_options.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/ctl_served.h"
#include "daemon/ctl/ctl_spec.h"

const struct opt_def ctl_generate_options[] = {OPTION_DRY_RUN, {.name = NULL}};
const struct opt_def ctl_score_options[] = {OPTION_DRY_RUN, {.name = NULL}};
const struct opt_def ctl_eval_options[] = {OPTION_DRY_RUN, {.name = NULL}};

static void print_text(void *owner, const char *text)
{
    (void)owner;
    fputs(text, stdout);
    fflush(stdout);
}

/* By what is served, if that has the model: nothing is opened then. What only a job tells, with
 * --json, and plans are for jobs. */
static int ask_served(const struct ctl *ctl, const json_t *spec, bool *ret_asked)
{
    struct served_answer answer = {.text = print_text, .aside = print_text, .signal_fd = -1};
    char *name = NULL;
    int rc = ctl->json || ctl_plan_wanted(ctl) ? CTL_OK : ctl_served_find(ctl, spec, &name);
    *ret_asked = name != NULL;
    if (!rc && name && !(rc = ctl_spec_check(ctl, JOB_GENERATE, spec))) {
        rc = ctl_served_ask(ctl, name, spec, &answer);
        putchar('\n');
    }
    free(name);
    return rc;
}

int ctl_generate_main(struct ctl *ctl)
{
    json_t *spec = NULL;
    if (ctl->n_args > 1)
        return ctl_usage(ctl, "\"%s\" comes after the prompt: put the prompt in quotes", ctl->args[1]);
    int rc = ctl_spec_read(ctl, &spec);
    if (rc)
        return rc;
    if (ctl->n_args && json_object_set_new(spec, "prompt", json_string(ctl->args[0]))) {
        json_decref(spec);
        return ctl_usage(ctl, "the prompt is not UTF-8");
    }
    bool was_asked;
    rc = ask_served(ctl, spec, &was_asked);
    if (!rc && !was_asked)
        return ctl_follow_new(ctl, JOB_GENERATE, spec, ctl_follow_generation);
    json_decref(spec);
    return rc;
}

/* As ask_served. Rows of a data set are for jobs, which read them. */
static int score_served(const struct ctl *ctl, const json_t *spec, bool *ret_asked)
{
    char *name = NULL;
    json_t *result = NULL;
    const bool is_text = json_object_get(spec, "text") || json_object_get(spec, "ids");
    int rc = !is_text || ctl_plan_wanted(ctl) ? CTL_OK : ctl_served_find(ctl, spec, &name);
    *ret_asked = name != NULL;
    if (!rc && name)
        rc = ctl_spec_check(ctl, JOB_SCORE, spec);
    if (!rc && name)
        rc = ctl_served_score(ctl, name, spec, &result);
    if (!rc && name)
        ctl_follow_show_score(ctl, result);
    json_decref(result);
    free(name);
    return rc;
}

int ctl_score_main(struct ctl *ctl)
{
    json_t *spec = NULL;
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": the text goes behind --text", ctl->args[0]);
    bool was_asked;
    int rc = ctl_spec_read(ctl, &spec);
    if (rc)
        return rc;
    rc = score_served(ctl, spec, &was_asked);
    if (!rc && !was_asked)
        return ctl_follow_new(ctl, JOB_SCORE, spec, ctl_follow_scoring);
    json_decref(spec);
    return rc;
}

int ctl_eval_main(struct ctl *ctl)
{
    json_t *spec = NULL;
    if (ctl->n_args)
        return ctl_usage(ctl, "\"%s\": the file goes behind --data", ctl->args[0]);
    const int rc = ctl_spec_read(ctl, &spec);
    return rc ? rc : ctl_follow_new(ctl, JOB_EVAL, spec, ctl_follow_eval);
}
