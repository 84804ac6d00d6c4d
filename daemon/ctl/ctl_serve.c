/* SPDX-License-Identifier: MIT
 *
 * ringctl serve: a job that serves a model, followed until it does; and the list of those there
 * are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/ctl_options.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/ctl/ctl_watch.h"
#include "daemon/ctl/serve/serve_words.h"
#include "daemon/ctl/terminal/ctl_meter.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"

const struct opt_def ctl_serve_options[] = {OPTION_DRY_RUN, {.name = NULL}};

/* --- until it serves -------------------------------------------------------------------------- */

struct serve_view {
    struct meter meter;
    bool is_silent, is_ready;
    json_t *end; /* owned: the job, if it ended before */
};

/* False: nothing more is waited for. */
static bool on_event(void *owner, const char *type, const json_t *data)
{
    struct serve_view *v = owner;
    if (!v->is_silent && (!strcmp(type, "log") || !strcmp(type, "job")))
        meter_event(&v->meter, type, data);
    if (!strcmp(type, "end"))
        v->end = json_deep_copy(data);
    v->is_ready = !strcmp(type, "serving");
    return !v->is_ready && !v->end;
}

static void print_ready(const struct ctl *ctl, const char *job, const char *name)
{
    if (ctl->json) {
        json_t *answer = json_pack("{s:s s:s}", "job", job, "name", name);
        print_json(answer);
        json_decref(answer);
        return;
    }
    printf("job %s serves %s. Every node answers at /v1/chat/completions, over its socket or its http-listen "
           "with the token\n",
           job, name);
    printf("  ringctl serve show %s      its work, nodes and memory\n  ringctl serve stop %s      end it\n",
           name, name);
}

static int follow(const struct ctl *ctl, const char *job, const char *name)
{
    char path[CTL_JOB_PATH];
    struct serve_view view = {.is_silent = ctl->json};
    struct ctl_stream stream = {.event = on_event, .owner = &view};
    snprintf(path, sizeof path, "/v1/jobs/%s/events", job);
    meter_init(&view.meter);
    int rc = ctl_follow(ctl, path, &stream, false);
    meter_clear(&view.meter);
    if (!rc && view.end)
        rc = ctl_watch_verdict(view.end);
    else if (!rc && !view.is_ready)
        rc = ctl_fail(CTL_NO_DAEMON,
                      "the connection to job %s was lost: ringctl serve list shows whether it serves", job);
    json_decref(view.end);
    if (!rc)
        print_ready(ctl, job, name);
    return rc;
}

/* --- the list --------------------------------------------------------------------------------- */

static void print_served(const json_t *list)
{
    struct table *t = table_new("NAME\tJOB\tSTATE\tTOKENS\tMODEL");
    size_t i;
    json_t *job;
    json_array_foreach (list, i, job)
        table_add(t, "%s\t%s\t%s\t%.0f\t%s", field_text(job, "serves", "-"), field_text(job, "name", "-"),
                  field_text(job, "state", "-"), field_number(job, "tokens"), field_text(job, "model", "-"));
    if (!json_array_size(list))
        puts("nothing is served: ringctl serve --model DIR serves a model");
    if (json_array_size(list))
        table_print_free(t, stdout);
    else
        table_free(t);
}

static int list_main(const struct ctl *ctl)
{
    json_t *list;
    if (ctl->n_args > 1)
        return ctl_usage(ctl, "\"%s\" is too much: list takes nothing", ctl->args[1]);
    int rc = serve_jobs(ctl, &list);
    if (rc)
        return rc;
    if (ctl->json)
        print_json(list);
    else
        print_served(list);
    json_decref(list);
    return CTL_OK;
}

static int stop_main(const struct ctl *ctl)
{
    json_t *list, *job, *answer = NULL;
    size_t i, stopped = 0;
    if (ctl->n_args != 2)
        return ctl_usage(ctl, "stop takes the name of a model: ringctl serve stop NAME");
    int rc = serve_jobs(ctl, &list);
    if (rc)
        return rc;
    json_array_foreach (list, i, job) {
        char path[CTL_JOB_PATH];
        if (rc || strcmp(field_text(job, "serves", ""), ctl->args[1]) != 0)
            continue;
        snprintf(path, sizeof path, "/v1/jobs/%s", field_text(job, "name", ""));
        rc = ctl_request(ctl, "DELETE", path, NULL, &answer);
        json_decref(answer);
        answer = NULL;
        stopped++;
    }
    json_decref(list);
    if (!rc && !stopped)
        rc = ctl_fail(CTL_FAILED, "no model \"%s\" is served: ringctl serve list shows them", ctl->args[1]);
    return rc;
}

/* --- the command ------------------------------------------------------------------------------ */

static int serve(const struct ctl *ctl, json_t *spec)
{
    char job[CTL_JOB_NAME];
    int rc = ctl_spec_check(ctl, JOB_SERVE, spec);
    if (rc) {
        json_decref(spec);
        return rc;
    }
    if (ctl_plan_wanted(ctl))
        return ctl_plan_ask(ctl, JOB_SERVE, spec, NULL);
    const char *model = json_string_value(json_object_get(spec, "model")), *slash = strrchr(model, '/'),
               *given = json_string_value(json_object_get(spec, "name"));
    char *name = given                               ? xstrdup(given)
                 : ctl_model_is_name(model) && slash ? xstrndup(slash + 1, strcspn(slash + 1, "@"))
                                                     : xstrdup(slash ? slash + 1 : model);
    rc = ctl_spec_submit(ctl, JOB_SERVE, spec, job);
    if (!rc)
        rc = follow(ctl, job, name);
    free(name);
    return rc;
}

int ctl_serve_main(struct ctl *ctl)
{
    json_t *spec = NULL;
    const char *word = ctl->n_args ? ctl->args[0] : "";
    if (!strcmp(word, "list"))
        return list_main(ctl);
    if (!strcmp(word, "stop"))
        return stop_main(ctl);
    if (!strcmp(word, "show"))
        return serve_show_main(ctl);
    if (!strcmp(word, "adapter"))
        return serve_adapter_main(ctl);
    if (*word)
        return ctl_usage(ctl, "\"%s\" is no word of serve: there are list, show, stop and adapter", word);
    int rc = ctl_spec_read(ctl, &spec);
    return rc ? rc : serve(ctl, spec);
}
