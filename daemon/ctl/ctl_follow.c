/* SPDX-License-Identifier: MIT
 *
 * Owns what has been shown of a job. Called by train, generate, score and eval for the job they
 * have submitted, and by attach for any other. */
#include "daemon/ctl/ctl_follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/terminal/ctl_meter.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/ctl_result.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/ctl/eval/eval_show.h"
#include "daemon/ctl/ctl_watch.h"

/* --- training --------------------------------------------------------------------------------- */

static void on_meter_event(void *owner, const char *type, const json_t *data)
{
    meter_event(owner, type, data);
}

/* A job's times are whole seconds: no more is said of a short one. */
static struct amount time_taken(double seconds)
{
    struct amount a;
    if (seconds >= 10)
        return print_duration(seconds);
    if (seconds < 1)
        snprintf(a.text, sizeof a.text, "under 1 s");
    else
        snprintf(a.text, sizeof a.text, "%.0f s", seconds);
    return a;
}

static void print_trained(const struct meter *m, const json_t *end)
{
    const json_t *adapters = json_object_get(json_object_get(end, "result"), "adapters");
    printf("job %s done", field_text(end, "name", "?"));
    if (m->has_loss && !adapters)
        printf(": loss %.4f to %.4f", m->first_loss, m->last_loss);
    printf(", %s, result in %s\n", time_taken(field_number(end, "ended") - field_number(end, "started")).text,
           field_text(json_object_get(end, "spec"), "adapter_out", "?"));
    ctl_print_adapters(adapters);
}

/* Follows, with a meter, a job that has steps. CTL_OK: ret_end is how it ended, whether well or
 * not. */
static int follow_steps(const struct ctl *ctl, const char *job, bool can_detach, bool outlives,
                        struct meter *m, json_t **ret_end)
{
    meter_init(m);
    m->shows_start = true;
    struct watch watch = {.event = on_meter_event,
                          .owner = m,
                          .can_detach = can_detach,
                          .outlives = outlives,
                          .is_chatty = true};
    int rc = ctl_watch(ctl, job, &watch, ret_end);
    if (m->is_passing)
        meter_clear(m);
    else if (m->line_open)
        fputc('\n', stderr);
    return rc;
}

int ctl_follow_training(const struct ctl *ctl, const char *job, bool is_attached, bool outlives)
{
    struct meter m;
    json_t *end = NULL;
    int rc = follow_steps(ctl, job, true, outlives, &m, &end);
    if (rc)
        return rc;
    int verdict = ctl_watch_verdict(end);
    rc = verdict ? verdict : result_deliver(ctl, end, is_attached);
    if (ctl->json)
        print_json(end);
    else if (!rc)
        print_trained(&m, end);
    json_decref(end);
    return rc;
}

/* --- generation ------------------------------------------------------------------------------- */

/* What has been printed of the answer; compared with the whole at the end. */
struct stream_view {
    struct meter meter;
    bool silent; /* --json */
    char printed[1 << 16];
    size_t n_printed;
    json_int_t heard; /* tokens: a daemon that is started again says all of them again */
    bool is_broken;   /* events were lost, or it is more than fits: the end prints the rest */
};

/* Who attaches late hears the first tokens no more. A conversation's have no number: it ends with
 * its daemon. */
static bool is_next(struct stream_view *v, const json_t *token)
{
    const json_t *n = json_object_get(token, "n");
    const json_int_t number = n ? json_integer_value(n) : v->heard + 1;
    const bool is_next = number == v->heard + 1 || !v->heard;
    v->is_broken = !is_next && number > v->heard;
    v->heard = is_next ? number : v->heard;
    return is_next;
}

static void on_generate_event(void *owner, const char *type, const json_t *data)
{
    struct stream_view *v = owner;
    const char *text = field_text(data, "text", "");
    size_t n = strlen(text);
    if (!strcmp(type, "log") || !strcmp(type, "job")) {
        meter_event(&v->meter, type, data);
    } else if (!strcmp(type, "resync")) {
        v->is_broken = true;
    } else if (!strcmp(type, "token") && !v->silent && !v->is_broken && is_next(v, data)) {
        if (n > sizeof v->printed - v->n_printed) {
            v->is_broken = true;
            return;
        }
        fputs(text, stdout);
        fflush(stdout);
        meter_wrote(&v->meter, text);
        memcpy(v->printed + v->n_printed, text, n);
        v->n_printed += n;
    }
}

/* The rest of the answer, or all of it where what was printed is no part of it. */
static void print_rest(const struct stream_view *v, const json_t *result)
{
    const char *text = field_text(result, "text", "");
    if (strlen(text) >= v->n_printed && !memcmp(text, v->printed, v->n_printed))
        puts(text + v->n_printed);
    else
        printf("\n%s\n", text);
}

static json_t *pick(const json_t *result, const char *const *keys)
{
    json_t *out = json_object();
    for (; *keys; keys++) {
        json_t *value = json_object_get(result, *keys);
        if (value)
            json_object_set(out, *keys, value);
    }
    return out;
}

static void print_picked(const json_t *result, const char *const *keys)
{
    json_t *out = pick(result, keys);
    print_json(out);
    json_decref(out);
}

int ctl_follow_generation(const struct ctl *ctl, const char *job, bool can_detach, bool outlives)
{
    static const char *const keys[] = {"prompt_ids", "ids", "text", "tokens", NULL};
    struct stream_view view = {.silent = ctl->json};
    struct watch watch = {
        .event = on_generate_event, .owner = &view, .can_detach = can_detach, .outlives = outlives};
    json_t *end = NULL;
    meter_init(&view.meter);
    int rc = ctl_watch(ctl, job, &watch, &end);
    rc = rc ? rc : ctl_watch_verdict(end);
    if (rc && view.n_printed)
        putchar('\n');
    else if (!rc && ctl->json)
        print_picked(json_object_get(end, "result"), keys);
    else if (!rc)
        print_rest(&view, json_object_get(end, "result"));
    json_decref(end);
    return rc;
}

/* --- scoring ---------------------------------------------------------------------------------- */

/* `" upon" -0.125`, and without a tokenizer `612 -0.125`. */
static void token_text(const json_t *token, char *ret, size_t size)
{
    char *quoted = json_dumps(json_object_get(token, "text"), JSON_ENCODE_ANY);
    snprintf(ret, size, "%s", quoted ? quoted : "");
    if (!quoted)
        snprintf(ret, size, "%.0f", field_number(token, "id"));
    free(quoted);
}

static void print_tokens(const json_t *tokens)
{
    const bool top = json_object_get(json_array_get(tokens, 0), "top") != NULL;
    struct table *t = table_new(top ? "ID\tTOKEN\tLOGPROB\tLIKELIEST" : "ID\tTOKEN\tLOGPROB");
    size_t i, k;
    json_t *token, *one;
    json_array_foreach (tokens, i, token) {
        char text[128], list[2048] = "";
        size_t n = 0;
        token_text(token, text, sizeof text);
        json_array_foreach (json_object_get(token, "top"), k, one) {
            char name[128];
            token_text(one, name, sizeof name);
            if (n < sizeof list)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s%s %.4f", k ? "  " : "", name,
                                      field_number(one, "logprob"));
        }
        table_add(t, top ? "%.0f\t%s\t%s\t%s" : "%.0f\t%s\t%s", field_number(token, "id"), text,
                  print_number(json_object_get(token, "logprob"), "-").text, list);
    }
    table_print_free(t, stdout);
}

void ctl_follow_show_score(const struct ctl *ctl, const json_t *result)
{
    if (ctl->json) {
        print_json(result);
        return;
    }
    const json_t *tokens = json_object_get(result, "tokens");
    if (json_array_size(tokens))
        print_tokens(tokens);
    printf("total %s, perplexity %s\n", print_number(json_object_get(result, "total"), "-").text,
           print_number(json_object_get(result, "perplexity"), "-").text);
}

/* A job that has steps, and a result to print. */
static int follow_result(const struct ctl *ctl, const char *job, bool can_detach, bool outlives,
                         void (*show)(const struct ctl *ctl, const json_t *result))
{
    struct meter m;
    json_t *end = NULL;
    int rc = follow_steps(ctl, job, can_detach, outlives, &m, &end);
    rc = rc ? rc : ctl_watch_verdict(end);
    if (!rc)
        show(ctl, json_object_get(end, "result"));
    json_decref(end);
    return rc;
}

int ctl_follow_scoring(const struct ctl *ctl, const char *job, bool can_detach, bool outlives)
{
    return follow_result(ctl, job, can_detach, outlives, ctl_follow_show_score);
}

/* --- evaluation ------------------------------------------------------------------------------- */

static void show_eval(const struct ctl *ctl, const json_t *result)
{
    if (ctl->json)
        print_json(result);
    else
        eval_show(result);
}

int ctl_follow_eval(const struct ctl *ctl, const char *job, bool can_detach, bool outlives)
{
    return follow_result(ctl, job, can_detach, outlives, show_eval);
}

/* --- a new job -------------------------------------------------------------------------------- */

int ctl_follow_new(const struct ctl *ctl, enum job_type type, json_t *spec,
                   int (*follow)(const struct ctl *ctl, const char *job, bool can_detach, bool outlives))
{
    char job[CTL_JOB_NAME];
    const bool outlives = strcmp(opts_str(ctl->opts, "on-loss"), "stop") != 0;
    int rc = ctl_spec_check(ctl, type, spec);
    if (rc) {
        json_decref(spec);
        return rc;
    }
    if (ctl_plan_wanted(ctl))
        return ctl_plan_ask(ctl, type, spec, NULL);
    rc = ctl_spec_submit(ctl, type, spec, job);
    return rc ? rc : follow(ctl, job, false, outlives);
}

/* --- ringctl attach --------------------------------------------------------------------------- */

static bool outlives(const json_t *job)
{
    const json_t *spec = json_object_get(job, "spec");
    return strcmp(field_text(spec, "on_loss", ""), "stop") != 0 && !field_number(spec, "keep_alive");
}

int ctl_attach_main(struct ctl *ctl)
{
    const char *name;
    json_t *job = NULL;
    int rc = ctl_request_job(ctl, "GET", "", &name, &job);
    if (rc)
        return rc;
    const char *type = field_text(job, "type", "");
    rc = !strcmp(type, "generate") || !strcmp(type, "serve")
             ? ctl_follow_generation(ctl, name, true, outlives(job))
         : !strcmp(type, "eval")  ? ctl_follow_eval(ctl, name, true, outlives(job))
         : !strcmp(type, "score") ? ctl_follow_scoring(ctl, name, true, outlives(job))
                                  : ctl_follow_training(ctl, name, true, outlives(job));
    json_decref(job);
    return rc;
}
