/* SPDX-License-Identifier: MIT
 *
 * Jobs: submitted, listed, shown, cancelled, and what is kept of them. */
#include "daemon/ringd/api/api_jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/api/api_store.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/api/intake.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/api/loan_desk.h"
#include "daemon/ringd/api/api_impl.h"
#include "daemon/ringd/serve/desk.h"
#include "daemon/ringd/store/store.h"
#include "daemon/ringd/timeline/timeline.h"
#include "daemon/ringd/timeline/timelines.h"
#include "daemon/ringd/api/timelines_feed.h"
#include "daemon/common/spec_keys.h"
#include "daemon/common/xalloc.h"
#include "engine/pipe/sched.h"

bool api_read_job(struct http_call *call, uint64_t *ret)
{
    const char *word = http_path(call) + sizeof "/v1/jobs/" - 1;
    char *end;
    errno = 0;
    *ret = strtoull(word, &end, 10);
    if (*word >= '0' && *word <= '9' && (!*end || *end == '/' || *end == '@') && !errno)
        return true;
    http_fail(call, 404, "no-such-job",
              "a job is named by its number, or NUMBER@NODE if another node is its head");
    return false;
}

/* {"name": list}, list being a text that may be long: it is not read here. */
static void reply_list(struct http_call *call, const char *name, const char *list)
{
    char *text = xasprintf("{\"%s\":%s}", name, list ? list : "[]");
    http_reply(call, 200, "application/json", text, strlen(text));
    free(text);
}

static int newest_first(const void *a, const void *b)
{
    static const char *const keys[] = {"created", "id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, keys[i])),
                         y = json_integer_value(json_object_get(*(json_t *const *)b, keys[i]));
        if (x != y)
            return x < y ? 1 : -1;
    }
    return 0;
}

static json_t *sorted(const json_t *list)
{
    const size_t n = json_array_size(list);
    json_t **rows = xcalloc(n + 1, sizeof *rows), *ret = json_array();
    for (size_t i = 0; i < n; i++)
        rows[i] = json_array_get(list, i);
    qsort(rows, n, sizeof *rows, newest_first);
    for (size_t i = 0; i < n; i++)
        json_array_append(ret, rows[i]);
    free(rows);
    return ret;
}

struct jobs_listing {
    struct api *api;
    struct http_call *call;
};

/* What the store has may be long and is not read here: behind its rows come those of other
 * heads. */
static void send_all_jobs(void *arg, const char *text)
{
    struct jobs_listing *l = arg;
    json_t *list = json_array();
    elsewhere_add_rows(l->api->setup.elsewhere, list);
    char *others = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    const size_t n = text ? strlen(text) : 0;
    const bool is_own = n > 2, is_other = json_array_size(list) && others;
    char *all = xasprintf("[%.*s%s%s", is_own ? (int)(n - 2) : 0, is_own ? text + 1 : "",
                          is_own && is_other ? "," : "", is_other ? others + 1 : "]");
    reply_list(l->call, "jobs", all);
    free(all);
    free(others);
    json_decref(list);
    free(l);
}

void api_get_jobs(struct api *api, struct http_call *call)
{
    if (http_query(call, "all")) {
        struct jobs_listing *l = xmalloc(sizeof *l);
        *l = (struct jobs_listing){api, call};
        store_get_jobs(api->setup.store, 0, send_all_jobs, l);
        return;
    }
    json_t *list = json_array();
    for (const struct job *job = coord_first(api->setup.coord); job; job = job->next)
        json_array_append_new(list, job_encode_short(job));
    elsewhere_add_remembered(api->setup.elsewhere, list);
    elsewhere_add_rows(api->setup.elsewhere, list);
    api_reply(call, 200, json_pack("{s:o}", "jobs", sorted(list)));
    json_decref(list);
}

static bool has_request_keys(json_t *request)
{
    static const char *const keys[] = {"type", "spec", "seen", "loan"};
    const char *key;
    json_t *value;
    size_t known = 0;
    json_object_foreach (request, key, value)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            known += !strcmp(key, keys[i]);
    return known == json_object_size(request);
}

/* Of a job that is asked for: what the body holds. NULL: it is something else, which has been
 * answered. */
static json_t *read_request(struct http_call *call, const char **ret_type, json_t **ret_spec)
{
    size_t size;
    const char *body = http_body(call, &size);
    json_error_t je;
    json_t *request = body ? json_loadb(body, size, 0, &je) : NULL;
    *ret_type = json_string_value(json_object_get(request, "type"));
    *ret_spec = json_object_get(request, "spec");
    if (*ret_type && json_is_object(*ret_spec) && has_request_keys(request))
        return request;
    http_fail(call, 400, "bad-request",
              "the body must be {\"type\": \"train|generate|score|serve|eval\", \"spec\": {…}}, and may have "
              "\"seen\" "
              "and \"loan\"");
    json_decref(request);
    return NULL;
}

bool api_read_loan(struct api *api, struct http_call *call, const json_t *request, struct loan **ret)
{
    const char *ticket = json_string_value(json_object_get(request, "loan"));
    *ret = ticket && http_is_local(call) ? loan_desk_claim(api->setup.loan_desk, ticket) : NULL;
    if (!ticket || *ret)
        return true;
    http_fail(
        call, 409, "refused",
        "the files that were opened for this job are not here any more, they are kept for %d s: hand them "
        "in again",
        DESK_KEEP_MS / 1000);
    return false;
}

/* Of a request whose model is a folder, or has an exact name. */
static void take_in(struct api *api, struct http_call *call, json_t *request, struct loan *loan, bool is_plan)
{
    struct err err;
    struct intake_request req = {.is_plan = is_plan,
                                 .spec = json_object_get(request, "spec"),
                                 .seen = json_object_get(request, "seen"),
                                 .loan = loan};
    if (job_type_read(&req.type, json_string_value(json_object_get(request, "type")), &err))
        http_fail(call, 400, "bad-request", "%s", err.text);
    else
        intake_take(api->setup.intake, &req, call);
}

static void take(struct api *api, struct http_call *call, bool is_plan)
{
    struct err err;
    struct loan *loan = NULL;
    enum job_type kind;
    const char *type;
    json_t *spec, *request = read_request(call, &type, &spec);
    if (!request)
        return;
    if (job_type_read(&kind, type, &err) || spec_keys_check(kind, spec, &err))
        http_fail(call, 400, "bad-request", "%s", err.text);
    else if (api_read_loan(api, call, request, &loan) &&
             !api_store_resolve(api, call, request, loan, is_plan, take_in))
        take_in(api, call, request, loan, is_plan);
    loan_drop(loan);
    json_decref(request);
}

void api_post_loan(struct api *api, struct http_call *call)
{
    loan_desk_serve(api->setup.loan_desk, call);
}

void api_post_job(struct api *api, struct http_call *call)
{
    take(api, call, false);
}

void api_get_schedules(struct api *api, struct http_call *call)
{
    json_t *names = json_pack("[s]", "auto");
    (void)api;
    for (const char *const *name = sched_names(); *name; name++)
        json_array_append_new(names, json_string(*name));
    api_reply(call, 200, json_pack("{s:o}", "schedules", names));
}

void api_post_plan(struct api *api, struct http_call *call)
{
    take(api, call, true);
}

/* A question to the store, whose answer may be that there is no such job. */
struct job_lookup {
    struct api *api;
    struct http_call *call;
    uint64_t id;
};

void api_fail_unknown_job(struct api *api, struct http_call *call, uint64_t id)
{
    char names[256];
    elsewhere_namesakes(api->setup.elsewhere, id, names, sizeof names);
    if (*names)
        http_fail(call, 404, "no-such-job", "no job %llu was submitted to this node: did you mean %s?",
                  (unsigned long long)id, names);
    else
        http_fail(call, 404, "no-such-job",
                  "no job %llu was submitted to this node: `ringctl jobs --all` lists its jobs",
                  (unsigned long long)id);
}

static void send_record(void *arg, const char *text)
{
    struct job_lookup *l = arg;
    if (text)
        http_reply(l->call, 200, "application/json", text, strlen(text));
    else
        api_fail_unknown_job(l->api, l->call, l->id);
    free(l);
}

void api_get_job(struct api *api, struct http_call *call)
{
    uint64_t id;
    if (!api_read_job(call, &id))
        return;
    const struct job *job = coord_find(api->setup.coord, id);
    if (job) {
        const struct desk_model *served = desk_model(api->setup.desk, id);
        json_t *shown = job_encode(job);
        if (served && !job_state_ended(job->state))
            json_object_set_new(shown, "serving", desk_model_encode(served));
        api_reply(call, 200, shown);
        return;
    }
    struct job_lookup *l = xmalloc(sizeof *l);
    *l = (struct job_lookup){api, call, id};
    store_get_job(api->setup.store, id, send_record, l);
}

/* record: of a job that is not to be cancelled any more, NULL: there is none. */
static void refuse_to_cancel(void *arg, const char *record)
{
    struct job_lookup *l = arg;
    char how[900];
    json_t *job = record ? json_loads(record, 0, NULL) : NULL;
    job_how_it_ended(how, sizeof how, job);
    if (job)
        http_fail(l->call, 409, "already-ended", "job %llu has already ended: %s", (unsigned long long)l->id,
                  how);
    else
        api_fail_unknown_job(l->api, l->call, l->id);
    json_decref(job);
    free(l);
}

void api_delete_job(struct api *api, struct http_call *call)
{
    uint64_t id;
    if (!api_read_job(call, &id))
        return;
    switch (coord_cancel(api->setup.coord, id)) {
    case 0: api_reply(call, 200, json_pack("{s:I}", "id", (json_int_t)id)); break;
    case -EBUSY:
        http_fail(call, 409, "already-ended", "job %llu is ending: `ringctl attach %llu` waits for it",
                  (unsigned long long)id, (unsigned long long)id);
        break;
    default: { /* it may have run before this daemon was started */
        struct job_lookup *l = xmalloc(sizeof *l);
        *l = (struct job_lookup){api, call, id};
        store_get_job(api->setup.store, id, refuse_to_cancel, l);
    }
    }
}

static void answer_change(struct api *api, struct http_call *call, uint64_t id, int r, const char *is_already)
{
    switch (r) {
    case 0: api_reply(call, 200, json_pack("{s:I}", "id", (json_int_t)id)); break;
    case -ENOENT: api_fail_unknown_job(api, call, id); break;
    case -EINVAL:
        http_fail(call, 409, "no-pause", "job %llu does not train: only a job that trains can be paused",
                  (unsigned long long)id);
        break;
    case -EBUSY:
        http_fail(call, 409, "already-ended", "job %llu is ending: `ringctl attach %llu` waits for it",
                  (unsigned long long)id, (unsigned long long)id);
        break;
    default: {
        const struct job *job = coord_find(api->setup.coord, id);
        if (job && job->state == JOB_MOVED)
            http_fail(call, 409, "moved",
                      "node %s has taken job %llu over: ask for job %llu@%s, which goes on there",
                      job->moved.name, (unsigned long long)id, (unsigned long long)job->moved.job,
                      job->moved.name);
        else
            http_fail(call, 409, "already", "job %llu %s", (unsigned long long)id, is_already);
    }
    }
}

void api_post_pause(struct api *api, struct http_call *call)
{
    uint64_t id;
    if (api_read_job(call, &id))
        answer_change(api, call, id, coord_pause(api->setup.coord, id), "is paused or has ended");
}

void api_post_continue(struct api *api, struct http_call *call)
{
    uint64_t id;
    if (api_read_job(call, &id))
        answer_change(api, call, id, coord_continue(api->setup.coord, id), "is not paused");
}

static void answer_loan(struct api *api, struct http_call *call, uint64_t id, struct loan *loan)
{
    struct err err;
    switch (coord_lend(api->setup.coord, id, loan, &err)) {
    case 0: api_reply(call, 200, json_pack("{s:I}", "id", (json_int_t)id)); break;
    case -ENOENT: api_fail_unknown_job(api, call, id); break;
    case -EALREADY:
        http_fail(call, 409, "already", "job %llu waits for no files of a client", (unsigned long long)id);
        break;
    default: http_fail(call, 400, "bad-request", "%s", err.text);
    }
}

/* {"loan": TICKET}: the files of a job that waits for them. */
void api_post_job_loan(struct api *api, struct http_call *call)
{
    uint64_t id;
    size_t size;
    const char *body = http_body(call, &size);
    json_error_t je;
    struct loan *loan = NULL;
    if (!api_read_job(call, &id))
        return;
    json_t *request = body ? json_loadb(body, size, 0, &je) : NULL;
    if (!http_is_local(call))
        http_fail(call, 403, "forbidden", "files are handed in over the Unix socket of the job's head alone");
    else if (!json_is_string(json_object_get(request, "loan")) || json_object_size(request) != 1)
        http_fail(call, 400, "bad-request", "the body must be {\"loan\": \"…\"}, as POST /v1/loans answers");
    else if (api_read_loan(api, call, request, &loan))
        answer_loan(api, call, id, loan);
    loan_drop(loan);
    json_decref(request);
}

/* {"messages", "seed"} goes on with a conversation, anything without messages ends it. */
void api_post_turn(struct api *api, struct http_call *call)
{
    uint64_t id;
    size_t size;
    const char *body = http_body(call, &size);
    json_error_t je;
    if (!api_read_job(call, &id))
        return;
    json_t *turn = body ? json_loadb(body, size, 0, &je) : NULL;
    if (!json_is_object(turn)) {
        json_decref(turn);
        http_fail(call, 400, "bad-request",
                  "the body must be {\"messages\": […], \"seed\": N}, or {} for the end");
        return;
    }
    if (!json_is_array(json_object_get(turn, "messages"))) {
        json_decref(turn);
        turn = NULL;
    }
    switch (coord_turn(api->setup.coord, id, turn)) {
    case 0: api_reply(call, 200, json_pack("{s:I}", "id", (json_int_t)id)); break;
    case -ENOENT: api_fail_unknown_job(api, call, id); break;
    case -EALREADY:
        http_fail(call, 409, "already-ended",
                  "job %llu has already ended: start another with the whole conversation",
                  (unsigned long long)id);
        break;
    default: http_fail(call, 409, "refused", "job %llu does not wait for a message", (unsigned long long)id);
    }
}

/* A job's history: asked for only once it is known that there is such a job. */
struct history {
    struct api *api;
    struct http_call *call;
    uint64_t id;
    const char *kind; /* as the store calls it */
    const char *name; /* as the API does */
    int64_t from;     /* first step wanted, 0 = all */
};

static void send_history(void *arg, const char *list)
{
    struct history *h = arg;
    reply_list(h->call, h->name, list);
    free(h);
}

static void no_timeline(struct http_call *call, uint64_t id)
{
    http_fail(call, 404, "no-timeline", "job %llu has no step reported by all nodes yet",
              (unsigned long long)id);
}

/* The last one kept, as it was. */
static void send_timeline(void *arg, const char *text)
{
    struct history *h = arg;
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    size_t n = json_array_size(list);
    if (n)
        api_reply_rounded(h->call, 200, json_incref(json_array_get(list, n - 1)), 9);
    else
        no_timeline(h->call, h->id);
    json_decref(list);
    free(h);
}

static void find_history(void *arg, const char *record)
{
    struct history *h = arg;
    if (record) {
        store_get_events(h->api->setup.store, h->id, h->kind, h->from,
                         strcmp(h->kind, "timeline") ? send_history : send_timeline, h);
        return;
    }
    api_fail_unknown_job(h->api, h->call, h->id);
    free(h);
}

static void get_history(struct api *api, struct http_call *call, const char *kind, const char *name)
{
    uint64_t id;
    if (!api_read_job(call, &id))
        return;
    struct history *h = xmalloc(sizeof *h);
    const char *from = http_query(call, "from");
    *h = (struct history){api, call, id, kind, name, from ? strtoll(from, NULL, 10) : 0};
    store_get_job(api->setup.store, id, find_history, h);
}

void api_get_job_log(struct api *api, struct http_call *call)
{
    get_history(api, call, "log", "lines");
}

void api_get_job_steps(struct api *api, struct http_call *call)
{
    get_history(api, call, "step", "steps");
}

void api_get_job_evaluations(struct api *api, struct http_call *call)
{
    get_history(api, call, "valid", "evaluations");
}

void api_get_job_samples(struct api *api, struct http_call *call)
{
    get_history(api, call, "sample", "samples");
}

void api_get_job_timeline(struct api *api, struct http_call *call)
{
    uint64_t id;
    if (!api_read_job(call, &id))
        return;
    const struct job *job = coord_find(api->setup.coord, id);
    if (!job) {
        get_history(api, call, "timeline", "timelines");
        return;
    }
    json_t *timeline = job->timeline ? timeline_encode(job->timeline, id, job->plan->nodes.name) : NULL;
    if (timeline)
        api_reply_rounded(call, 200, timeline, 9);
    else
        no_timeline(call, id);
}

void api_get_job_timelines(struct api *api, struct http_call *call)
{
    uint64_t id;
    if (!api_read_job(call, &id))
        return;
    const struct job *job = coord_find(api->setup.coord, id);
    if (!job || !job->timelines)
        http_fail(call, 404, "no-timeline",
                  "the steps of job %llu are not traced here: they are while a job that was submitted with "
                  "\"trace\": true runs",
                  (unsigned long long)id);
    else if (timelines_is_read(job->timelines))
        http_fail(call, 409, "refused",
                  "another client already reads the steps of job %llu, and only one can",
                  (unsigned long long)id);
    else
        timelines_feed(job->timelines, call);
}

/* The last word of a job that has left the ring of recent events, made again from its record. */
static void send_end(struct http_call *call, const char *record)
{
    char *event = xasprintf("event: end\ndata: %s\n\n", record);
    http_reply(call, 200, "text/event-stream", event, strlen(event));
    free(event);
}

static void send_end_of_record(void *arg, const char *record)
{
    struct job_lookup *l = arg;
    if (record)
        send_end(l->call, record);
    else
        api_fail_unknown_job(l->api, l->call, l->id);
    free(l);
}

void api_get_job_events(struct api *api, struct http_call *call)
{
    uint64_t id;
    if (!api_read_job(call, &id))
        return;
    const struct job *job = coord_find(api->setup.coord, id);
    const char *text = http_query(call, "after");
    uint64_t after = text ? strtoull(text, NULL, 10) : 0, last;
    bool end;
    if (!job) { /* the store closed what an earlier life of the daemon left unfinished */
        struct job_lookup *l = xmalloc(sizeof *l);
        *l = (struct job_lookup){api, call, id};
        store_get_job(api->setup.store, id, send_end_of_record, l);
        return;
    }
    char *next =
        job_state_ended(job->state) ? event_log_next(api->setup.events, id, after, &last, &end) : NULL;
    if (next || !job_state_ended(job->state)) {
        http_stream(call, id, after);
    } else {
        json_t *json = job_encode(job);
        char *record = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
        send_end(call, record ? record : "{}");
        json_decref(json);
        free(record);
    }
    free(next);
}
