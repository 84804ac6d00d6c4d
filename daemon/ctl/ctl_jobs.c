/* SPDX-License-Identifier: MIT
 *
 * The commands about jobs that ask once and print: jobs, job, log, cancel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_forecast.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/ctl/terminal/ctl_term.h"

const struct opt_def ctl_jobs_options[] = {
    {.name = "all", .type = OPT_FLAG, .help = "also list all earlier jobs of this node", .short_name = 'a'},
    {.name = NULL},
};

static int show_job(const struct ctl *ctl, const char *suffix, void (*print)(const json_t *answer))
{
    char path[CTL_JOB_PATH];
    const char *name;
    int rc = ctl_job_arg(ctl, &name);
    if (rc)
        return rc;
    snprintf(path, sizeof path, "/v1/jobs/%s%s", name, suffix);
    return ctl_request_print(ctl, "GET", path, NULL, print);
}

/* --- jobs --- */

/* Which columns are worth their room: those that some job has; day and time, and a column of
 * errors, only where lines are long. */
struct columns {
    bool is_wide, step, loss, error;
};

static struct columns columns_of(const json_t *jobs)
{
    enum { WIDE = 120 };
    const size_t width = term_width(stdout);
    struct columns c = {.is_wide = !width || width >= WIDE};
    size_t i;
    json_t *j;
    json_array_foreach (jobs, i, j) {
        c.step = c.step || field_number(j, "steps") > 0;
        c.loss = c.loss || json_is_number(json_object_get(j, "loss"));
        c.error = c.error || (c.is_wide && *field_text(j, "error", ""));
    }
    return c;
}

/* What a path ends with: the name of a model's directory. */
static const char *short_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

struct text_row {
    char text[2048];
    size_t n;
};

static void add_cell(struct text_row *r, bool is_wanted, const char *text)
{
    if (is_wanted && r->n && r->n + 1 < sizeof r->text)
        r->text[r->n++] = '\t';
    for (; is_wanted && *text && r->n + 1 < sizeof r->text; text++)
        r->text[r->n++] = *text == '\t' ? ' ' : *text; /* a tab of its own would begin a cell */
    r->text[r->n] = 0;
}

static struct text_row heads_of(const struct columns *c)
{
    struct text_row r = {"JOB\tTYPE\tMODEL\tSTATE", 0};
    r.n = strlen(r.text);
    add_cell(&r, c->is_wide, "CREATED");
    add_cell(&r, true, "TOOK");
    add_cell(&r, c->step, "STEP");
    add_cell(&r, true, "TOKENS");
    add_cell(&r, c->loss, "LOSS");
    add_cell(&r, c->error, "ERROR");
    return r;
}

static struct text_row row_of(const struct columns *c, const json_t *j)
{
    struct text_row r = {"", 0};
    char step[64] = "-", tokens[32] = "-", loss[32] = "-", state[32];
    const json_t *seconds = json_object_get(j, "seconds");
    /* The head cannot be reached now: its last report is shown. */
    const bool is_lost = json_is_false(json_object_get(j, "up")) && !field_number(j, "ended");
    snprintf(state, sizeof state, "%s%s", field_text(j, "state", "?"), is_lost ? "?" : "");
    if (field_number(j, "steps") > 0)
        snprintf(step, sizeof step, "%.0f/%.0f", field_number(j, "step"), field_number(j, "steps"));
    if (field_number(j, "tokens") > 0)
        snprintf(tokens, sizeof tokens, "%.0f", field_number(j, "tokens"));
    if (json_is_number(json_object_get(j, "loss")))
        snprintf(loss, sizeof loss, "%.4g", field_number(j, "loss"));
    add_cell(&r, true, field_text(j, "name", "?"));
    add_cell(&r, true, field_text(j, "type", "?"));
    add_cell(&r, true, short_name(field_text(j, "model", "-")));
    add_cell(&r, true, state);
    add_cell(&r, c->is_wide, print_time(field_number(j, "created")).text);
    add_cell(&r, true,
             !json_is_number(seconds)          ? "-"
             : json_integer_value(seconds) < 1 ? "<1 s"
                                               : print_duration(field_number(j, "seconds")).text);
    add_cell(&r, c->step, step);
    add_cell(&r, true, tokens);
    add_cell(&r, c->loss, loss);
    add_cell(&r, c->error, field_text(j, "error", ""));
    return r;
}

static void print_jobs(const json_t *answer)
{
    const json_t *jobs = json_object_get(answer, "jobs");
    const struct columns c = columns_of(jobs);
    struct table *t = table_new(heads_of(&c).text);
    size_t i;
    json_t *j;
    json_array_foreach (jobs, i, j) {
        table_add(t, "%s", row_of(&c, j).text);
        if (!c.is_wide && *field_text(j, "error", ""))
            table_add(t, "     %s", field_text(j, "error", "")); /* a sentence below its job */
    }
    if (!table_rows(t))
        table_add(t, "none: `ringctl train --help` shows how to submit one");
    table_print_free(t, stdout);
}

int ctl_jobs_main(struct ctl *ctl)
{
    bool all = opts_flag(ctl->opts, "all");
    int rc = ctl_no_args(ctl);
    return rc ? rc : ctl_request_print(ctl, "GET", all ? "/v1/jobs?all=1" : "/v1/jobs", NULL, print_jobs);
}

static void print_field(const char *name, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    printf("  %-20s %s\n", name, json_is_string(value) ? json_string_value(value) : text ? text : "?");
    free(text);
}

/* A result's long lists (one entry per token) are for --json. */
static void print_fields(const char *head, json_t *object)
{
    enum { LIST_MAX = 64 };
    const char *key;
    json_t *value;
    if (!json_object_size(object))
        return;
    printf("%s\n", head);
    json_object_foreach (object, key, value) {
        if (json_array_size(value) > LIST_MAX)
            printf("  %-20s %zu entries (ringctl --json prints them)\n", key, json_array_size(value));
        else
            print_field(key, value);
    }
}

/* How long it took until there was work, and until it showed. */
static void print_start(const json_t *start)
{
    static const struct {
        const char *key, *text;
    } points[] = {{"planned", "planned after"},
                  {"opened", ", opened after"},
                  {"connected", ", connected after"},
                  {"first_task", ", first task after"},
                  {"first_result", ", first step or token after"}};
    if (field_number(start, points[0].key) <= 0)
        return;
    for (size_t i = 0; i < sizeof points / sizeof *points && field_number(start, points[i].key) > 0; i++)
        printf("%s %.3g s", points[i].text, field_number(start, points[i].key));
    putchar('\n');
}

static void print_job(const json_t *j, const char *name)
{
    printf("job %s, %s: %s\n", name, field_text(j, "type", "?"), field_text(j, "state", "?"));
    if (*field_text(j, "error", ""))
        printf("%s\n", field_text(j, "error", ""));
    else if (*field_text(j, "waits_for", ""))
        printf("%s\n", field_text(j, "waits_for", ""));
    if (*field_text(j, "unsaved", ""))
        printf("not saved: %s\n", field_text(j, "unsaved", ""));
    printf("created %s, started %s, ended %s\n", print_time(field_number(j, "created")).text,
           print_time(field_number(j, "started")).text, print_time(field_number(j, "ended")).text);
    print_start(json_object_get(j, "start"));
    if (field_number(j, "steps") > 0)
        printf("step %.0f of %.0f, loss %s\n", field_number(j, "step"), field_number(j, "steps"),
               print_number(json_object_get(j, "loss"), "-").text);
    ctl_print_adapters(json_object_get(j, "adapters"));
    print_fields("asked for", json_object_get(j, "spec"));
    if (json_is_object(json_object_get(j, "plan")))
        ctl_print_plan(j);
    size_t i;
    json_t *way;
    json_array_foreach (json_object_get(j, "relayed"), i, way)
        printf("the way from %s to %s is relayed through %s\n", field_text(way, "from", "?"),
               field_text(way, "to", "?"), field_text(way, "through", "?"));
    print_fields("result", json_object_get(j, "result"));
    json_array_foreach (json_object_get(j, "samples"), i, way)
        printf("%s  step %-15.0f %s%s%s%s\n", i ? "" : "samples\n", field_number(way, "step"),
               field_text(way, "adapter", ""), *field_text(way, "adapter", "") ? ": " : "",
               field_text(way, "prompt", ""), field_text(way, "sample", ""));
}

/* How far each of its adapters is, from its latest steps. */
static json_t *last_steps(const json_t *answer)
{
    json_t *list = json_array(), *one, *step;
    size_t i, k;
    json_array_foreach (json_object_get(answer, "steps"), i, step) {
        json_array_foreach (list, k, one) {
            if (!strcmp(field_text(one, "adapter", ""), field_text(step, "adapter", "")))
                break;
        }
        if (k < json_array_size(list))
            json_array_set(list, k, step);
        else
            json_array_append(list, step);
    }
    return list;
}

/* What the job keeps beside its record, into the record; all of it without `pick`. */
static int add_history(const struct ctl *ctl, json_t *job, const char *id, const char *what, const char *name,
                       json_t *(*pick)(const json_t *answer))
{
    char path[CTL_JOB_PATH];
    json_t *answer = NULL;
    snprintf(path, sizeof path, "/v1/jobs/%s/%s", id, what);
    int rc = ctl_request(ctl, "GET", path, NULL, &answer);
    if (!rc)
        json_object_set_new(job, name, pick ? pick(answer) : json_incref(json_object_get(answer, name)));
    json_decref(answer);
    return rc;
}

/* A plan that foretold its step is held against the last step there was; one that foretold a speed,
 * against the result. */
static int compare(const struct ctl *ctl, const json_t *job, const char *name)
{
    char path[CTL_JOB_PATH];
    json_t *timeline = NULL;
    const json_t *plan = json_object_get(job, "plan");
    speed_compare(plan, json_object_get(job, "result"));
    if (!json_is_object(json_object_get(plan, "forecast")) || field_number(job, "step") < 1)
        return CTL_OK;
    snprintf(path, sizeof path, "/v1/jobs/%s/timeline", name);
    int rc = ctl_request(ctl, "GET", path, NULL, &timeline);
    if (!rc)
        forecast_compare(plan, timeline);
    json_decref(timeline);
    return rc;
}

/* The record, and of a job that takes samples what it has written so far. */
int ctl_job_main(struct ctl *ctl)
{
    char path[CTL_JOB_PATH];
    const char *name;
    json_t *job = NULL;
    int rc = ctl_request_job(ctl, "GET", "", &name, &job);
    const json_t *spec = json_object_get(job, "spec");
    if (!rc && json_object_get(spec, "sample_prompt"))
        rc = add_history(ctl, job, name, "samples", "samples", NULL);
    if (!rc && json_array_size(json_object_get(spec, "sweep"))) {
        snprintf(path, sizeof path, "steps?from=%.0f", field_number(job, "step") - 1);
        rc = add_history(ctl, job, name, path, "adapters", last_steps);
    }
    if (!rc && ctl->json)
        print_json(job);
    else if (!rc)
        print_job(job, name);
    if (!rc && !ctl->json)
        rc = compare(ctl, job, name);
    json_decref(job);
    return rc;
}

static void print_log(const json_t *answer)
{
    size_t i;
    json_t *line;
    json_array_foreach (json_object_get(answer, "lines"), i, line)
        printf("%s  %s\n", print_time(field_number(line, "time")).text, field_text(line, "text", ""));
}

int ctl_log_main(struct ctl *ctl)
{
    return show_job(ctl, "/log", print_log);
}

static int change(struct ctl *ctl, const char *what, const char *said)
{
    const char *name;
    json_t *answer = NULL;
    int rc = ctl_request_job(ctl, "POST", what, &name, &answer);
    if (rc)
        return rc;
    if (ctl->json)
        print_json(answer);
    else
        printf("job %s %s\n", name, said);
    json_decref(answer);
    return CTL_OK;
}

int ctl_pause_main(struct ctl *ctl)
{
    return change(ctl, "/pause", "stops after its next step: `ringctl continue` lets it go on");
}

int ctl_continue_main(struct ctl *ctl)
{
    return change(ctl, "/continue", "goes on when its turn comes: `ringctl attach` shows its progress");
}

const struct opt_def ctl_adopt_options[] = {
    {.name = "force",
     .type = OPT_FLAG,
     .help = "do not wait for nodes of the job that are out of reach, though they may know of later steps"},
    {.name = NULL},
};

static void print_adopt(const json_t *answer)
{
    const char *node = field_text(answer, "node", "?");
    const long long id = (long long)field_number(answer, "id");
    printf("job %s is job %lld@%s from now on: `ringctl attach %lld@%s` shows its progress\n",
           field_text(answer, "was", "?"), id, node, id, node);
}

/* "7@a": job 7, which was submitted on a. */
int ctl_adopt_main(struct ctl *ctl)
{
    const char *name = ctl->n_args == 1 ? ctl->args[0] : "", *at = strchr(name, '@');
    if (!at || at == name || !at[1] || strspn(name, "0123456789") != (size_t)(at - name))
        return ctl_usage(ctl, "a job of another node is needed, as NUMBER@NODE: `ringctl jobs` lists them");
    char *path = xasprintf("/v1/jobs/%.*s/adopt/%s", (int)(at - name), name, at + 1);
    const int rc = ctl_request_print(
        ctl, "POST", path, json_pack("{s:b}", "force", (int)opts_flag(ctl->opts, "force")), print_adopt);
    free(path);
    return rc;
}

int ctl_cancel_main(struct ctl *ctl)
{
    const char *name;
    json_t *answer = NULL;
    int rc = ctl_request_job(ctl, "DELETE", "", &name, &answer);
    if (rc)
        return rc;
    if (ctl->json)
        print_json(answer);
    else
        printf("job %s is being cancelled\n", name);
    json_decref(answer);
    return CTL_OK;
}
