/* SPDX-License-Identifier: MIT
 *
 * Jobs: submitted, listed, shown, cancelled, and what is kept of them. */
#include "daemon/api_jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/coord.h"
#include "daemon/http.h"
#include "daemon/hub.h"
#include "daemon/job.h"
#include "daemon/node.h"
#include "daemon/planner.h"
#include "daemon/store.h"
#include "daemon/timeline.h"
#include "daemon/xalloc.h"
#include "engine/pipe/sched.h"

/* The number in /v1/jobs/{id}…; false when there is none, which has been answered. */
static bool read_id(struct http_call *call, uint64_t *ret)
{
    const char *word = http_path(call) + sizeof "/v1/jobs/" - 1;
    char *end;
    errno = 0;
    *ret = strtoull(word, &end, 10);
    if (*word >= '0' && *word <= '9' && (!*end || *end == '/') && !errno)
        return true;
    http_fail(call, 404, "no-such-job", "a job is named by its number");
    return false;
}

/* {"name": list}, list being a text that may be long: it is not read here. */
static void reply_list(struct http_call *call, const char *name, const char *list)
{
    char *text = xasprintf("{\"%s\":%s}", name, list ? list : "[]");
    http_reply(call, 200, "application/json", text, strlen(text));
    free(text);
}

static void send_all_jobs(void *arg, const char *list)
{
    reply_list(arg, "jobs", list);
}

void api_get_jobs(struct node *n, struct http_call *call)
{
    if (http_query(call, "all")) {
        store_get_jobs(n->store, 0, send_all_jobs, call);
        return;
    }
    json_t *list = json_array();
    for (const struct job *job = coord_first(n->coord); job; job = job->next)
        json_array_append_new(list, job_encode_short(job));
    api_reply(call, 200, json_pack("{s:o}", "jobs", list));
}

/* Of a job that is asked for: what the body holds. NULL: it is something else, which has been answered. */
static json_t *read_request(struct http_call *call, const char **ret_type, json_t **ret_spec)
{
    size_t size;
    const char *body = http_body(call, &size);
    json_error_t je;
    json_t *request = body ? json_loadb(body, size, 0, &je) : NULL;
    *ret_type = json_string_value(json_object_get(request, "type"));
    *ret_spec = json_object_get(request, "spec");
    if (*ret_type && json_is_object(*ret_spec))
        return request;
    http_fail(call, 400, "bad-request",
              "the body must be {\"type\": \"train|generate|score\", \"spec\": {…}}");
    json_decref(request);
    return NULL;
}

void api_post_job(struct node *n, struct http_call *call)
{
    const char *type;
    json_t *spec, *request = read_request(call, &type, &spec);
    uint64_t id;
    struct err err;
    if (!request)
        return;
    if (coord_submit(n->coord, type, json_incref(spec), &id, &err))
        http_fail(call, 400, "bad-request", "%s", err.text);
    else
        api_reply(call, 201, json_pack("{s:I}", "id", (json_int_t)id));
    json_decref(request);
}

void api_get_schedules(struct node *n, struct http_call *call)
{
    json_t *names = json_pack("[s]", "auto");
    (void)n;
    for (const char *const *name = sched_names(); *name; name++)
        json_array_append_new(names, json_string(*name));
    api_reply(call, 200, json_pack("{s:o}", "schedules", names));
}

void api_post_plan(struct node *n, struct http_call *call)
{
    const char *type;
    struct err err;
    json_t *spec, *request = read_request(call, &type, &spec);
    if (!request)
        return;
    if (coord_check_type(type, &err))
        http_fail(call, 400, "bad-request", "%s", err.text);
    else
        planner_ask(n->planner, type, spec, call);
    json_decref(request);
}

static void send_record(void *arg, const char *text)
{
    if (text)
        http_reply(arg, 200, "application/json", text, strlen(text));
    else
        http_fail(arg, 404, "no-such-job",
                  "there is no such job on this node; `ringctl jobs --all` lists what it has run");
}

void api_get_job(struct node *n, struct http_call *call)
{
    uint64_t id;
    if (!read_id(call, &id))
        return;
    const struct job *job = coord_find(n->coord, id);
    if (job)
        api_reply(call, 200, job_encode(job));
    else
        store_get_job(n->store, id, send_record, call);
}

void api_delete_job(struct node *n, struct http_call *call)
{
    uint64_t id;
    if (!read_id(call, &id))
        return;
    switch (coord_cancel(n->coord, id)) {
    case 0: api_reply(call, 200, json_pack("{s:I}", "id", (json_int_t)id)); break;
    case -EALREADY:
        http_fail(call, 409, "already-ended", "job %llu has already ended", (unsigned long long)id);
        break;
    default:
        http_fail(call, 404, "no-such-job", "no job %llu was submitted to this node; cancel it where it was",
                  (unsigned long long)id);
    }
}

/* {"messages", "seed"} goes on with a conversation, anything without messages ends it. */
void api_post_turn(struct node *n, struct http_call *call)
{
    uint64_t id;
    size_t size;
    const char *body = http_body(call, &size);
    json_error_t je;
    if (!read_id(call, &id))
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
    switch (coord_turn(n->coord, id, turn)) {
    case 0: api_reply(call, 200, json_pack("{s:I}", "id", (json_int_t)id)); break;
    case -ENOENT:
        http_fail(call, 404, "no-such-job", "no job %llu was submitted to this node", (unsigned long long)id);
        break;
    case -EALREADY:
        http_fail(call, 409, "already-ended",
                  "job %llu has already ended: start another with all that was said", (unsigned long long)id);
        break;
    default:
        http_fail(call, 409, "refused", "job %llu does not wait for anything to be said",
                  (unsigned long long)id);
    }
}

/* A job's history: asked for only once it is known that there is such a job. */
struct history {
    struct node *n;
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
    http_fail(call, 404, "no-timeline", "job %llu has no step behind it that all nodes have told of",
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
        store_get_events(h->n->store, h->id, h->kind, h->from,
                         strcmp(h->kind, "timeline") ? send_history : send_timeline, h);
        return;
    }
    send_record(h->call, NULL);
    free(h);
}

static void get_history(struct node *n, struct http_call *call, const char *kind, const char *name)
{
    uint64_t id;
    if (!read_id(call, &id))
        return;
    struct history *h = xmalloc(sizeof *h);
    const char *from = http_query(call, "from");
    *h = (struct history){n, call, id, kind, name, from ? strtoll(from, NULL, 10) : 0};
    store_get_job(n->store, id, find_history, h);
}

void api_get_job_log(struct node *n, struct http_call *call)
{
    get_history(n, call, "log", "lines");
}

void api_get_job_steps(struct node *n, struct http_call *call)
{
    get_history(n, call, "step", "steps");
}

void api_get_job_evaluations(struct node *n, struct http_call *call)
{
    get_history(n, call, "valid", "evaluations");
}

void api_get_job_samples(struct node *n, struct http_call *call)
{
    get_history(n, call, "sample", "samples");
}

void api_get_job_timeline(struct node *n, struct http_call *call)
{
    uint64_t id;
    if (!read_id(call, &id))
        return;
    const struct job *job = coord_find(n->coord, id);
    if (!job) {
        get_history(n, call, "timeline", "timelines");
        return;
    }
    json_t *timeline = job->timeline ? timeline_encode(job->timeline, id, job->names) : NULL;
    if (timeline)
        api_reply_rounded(call, 200, timeline, 9);
    else
        no_timeline(call, id);
}

/* A job that has ended may have left the ring of recent events: then its last word is made again from its
 * record. */
void api_get_job_events(struct node *n, struct http_call *call)
{
    uint64_t id;
    if (!read_id(call, &id))
        return;
    const struct job *job = coord_find(n->coord, id);
    const char *text = http_query(call, "after");
    uint64_t after = text ? strtoull(text, NULL, 10) : 0, last;
    bool end;
    if (!job) {
        http_fail(call, 404, "no-such-job",
                  "job %llu is not in this daemon's memory; `ringctl job %llu` shows its record",
                  (unsigned long long)id, (unsigned long long)id);
        return;
    }
    char *next = job_state_ended(job->state) ? hub_next(n->hub, id, after, &last, &end) : NULL;
    if (next || !job_state_ended(job->state)) {
        http_stream(call, id, after);
    } else {
        json_t *json = job_encode(job);
        char *record = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
        char *event = xasprintf("event: end\ndata: %s\n\n", record ? record : "{}");
        json_decref(json);
        http_reply(call, 200, "text/event-stream", event, strlen(event));
        free(event);
        free(record);
    }
    free(next);
}
