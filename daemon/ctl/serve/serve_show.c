/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/serve/serve_words.h"
#include "daemon/ctl/terminal/ctl_print.h"

static void print_asked(const json_t *spec)
{
    const char *name;
    json_t *folder;
    printf("model    %s", field_text(spec, "model", "?"));
    if (*field_text(spec, "weights", ""))
        printf(", weights %s", field_text(spec, "weights", ""));
    putchar('\n');
    if (*field_text(spec, "draft_model", ""))
        printf("draft    %s, weights %s\n", field_text(spec, "draft_model", "?"),
               field_text(spec, "draft_weights", "stored"));
    if (json_is_true(json_object_get(spec, "draft_mtp")))
        printf("draft    the model's own layer that predicts a further token\n");
    json_object_foreach (json_object_get(spec, "adapters"), name, folder)
        printf("adapter  %s, from %s\n", name, json_string_value(folder));
}

/* Of guesses: how many there were, and how many were right. */
static void print_guesses(const json_t *load, const char *whose, const char *tokens, const char *right)
{
    const double n = field_number(load, tokens);
    if (n > 0)
        printf("guesses  %.0f %s, %.0f %% of them right\n", n, whose, 100 * field_number(load, right) / n);
}

static void print_load(const json_t *serving, bool is_ahead)
{
    const json_t *load = json_object_get(serving, "load");
    printf("requests %.0f in flight, %.0f waiting\n", field_number(load, "running"),
           field_number(load, "waiting"));
    printf("KV pool  %.0f of %.0f blocks in use; a prompt and its answer have at most %.0f tokens\n",
           field_number(load, "kv_used"), field_number(serving, "kv_blocks"),
           field_number(serving, "max_context"));
    printf(
        "tokens   %.1f generated per second; %.0f since it serves, after %.0f of prompts (%.0f were there)\n",
        field_number(serving, "tokens_per_second"), field_number(load, "generated_tokens"),
        field_number(load, "prompt_tokens") + field_number(load, "cached_tokens"),
        field_number(load, "cached_tokens"));
    print_guesses(load, "from the text", "guessed_tokens", "guessed_right");
    print_guesses(load, is_ahead ? "by the model's own layer" : "by the draft model", "drafted_tokens",
                  "drafted_right");
}

static void print_deployment(const json_t *j)
{
    printf("%s: job %s, %s\n", field_text(j, "serves", "?"), field_text(j, "name", "?"),
           field_text(j, "state", "?"));
    if (*field_text(j, "waits_for", ""))
        printf("%s\n", field_text(j, "waits_for", ""));
    print_asked(json_object_get(j, "spec"));
    if (json_is_object(json_object_get(j, "serving")))
        print_load(json_object_get(j, "serving"),
                   json_is_true(json_object_get(json_object_get(j, "spec"), "draft_mtp")));
    if (json_is_object(json_object_get(j, "plan")))
        ctl_print_plan(j);
}

int serve_show_main(const struct ctl *ctl)
{
    char path[CTL_JOB_PATH], *job;
    json_t *answer;
    if (ctl->n_args != 2)
        return ctl_usage(ctl, "show takes the name of a model: ringctl serve show NAME");
    int rc = serve_job_of(ctl, ctl->args[1], &job);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "/v1/jobs/%s", job);
    rc = ctl_request(ctl, "GET", path, NULL, &answer);
    if (!rc) {
        json_object_set_new(answer, "name", json_string(job)); /* as it is called from here */
        if (ctl->json)
            print_json(answer);
        else
            print_deployment(answer);
        json_decref(answer);
    }
    free(job);
    return rc;
}
