/* SPDX-License-Identifier: MIT */
#include "daemon/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/timeline.h"
#include "daemon/xalloc.h"

const char *job_state_name(enum job_state s)
{
    static const char *const names[] = {"queued",  "planned", "planned", "planned",  "running",
                                        "running", "done",    "failed",  "cancelled"};
    return names[s];
}

bool job_state_ended(enum job_state s)
{
    return s >= JOB_DONE;
}

struct job *job_new(uint64_t id, const char *type, json_t *spec)
{
    struct job *job = xcalloc(1, sizeof *job);
    *job = (struct job){.id = id, .spec = spec, .created = time(NULL)};
    snprintf(job->type, sizeof job->type, "%s", type);
    return job;
}

void job_reset(struct job *job)
{
    timeline_free(job->timeline);
    json_decref(job->plan);
    json_decref(job->result);
    struct job fresh = {.next = job->next, .id = job->id, .spec = job->spec, .created = job->created};
    memcpy(fresh.type, job->type, sizeof fresh.type);
    memcpy(fresh.error, job->error, sizeof fresh.error);
    *job = fresh;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    timeline_free(job->timeline);
    json_decref(job->spec);
    json_decref(job->plan);
    json_decref(job->result);
    free(job);
}

bool job_has_node(const struct job *job, const uint8_t id[16])
{
    for (size_t r = 0; r < job->ranks; r++)
        if (!memcmp(job->nodes[r], id, 16))
            return true;
    return false;
}

void job_progress(struct job *job, struct instant now)
{
    double took = job->progressed.us ? (double)clock_since_us(now, job->progressed) / 1e6 : 0;
    job->longest_step = took > job->longest_step ? took : job->longest_step;
    job->progressed = now;
}

static json_t *moment(int64_t t)
{
    return t ? json_integer(t) : json_null();
}

json_t *job_encode_short(const struct job *job)
{
    return json_pack("{s:I s:s s:s s:o s:o s:o s:I s:I s:o s:o}", "id", (json_int_t)job->id, "type",
                     job->type, "state", job_state_name(job->state), "created", moment(job->created),
                     "started", moment(job->started), "ended", moment(job->ended), "step",
                     (json_int_t)job->step, "steps", (json_int_t)job->steps, "loss",
                     job->has_loss ? json_real(job->loss) : json_null(), "error",
                     *job->error ? json_string(job->error) : json_null());
}

static json_t *plan_encode(const struct job *job)
{
    if (!job->plan)
        return json_null();
    json_t *plan = json_deep_copy(job->plan), *names = json_array(), *split = json_array();
    const json_t *first = json_object_get(plan, "first");
    for (size_t r = 0; r < job->ranks; r++) {
        json_array_append_new(names, json_string(job->names[r]));
        json_array_append_new(split,
                              json_pack("[O,O]", json_array_get(first, r), json_array_get(first, r + 1)));
    }
    json_object_set_new(plan, "nodes", names);
    json_object_set_new(plan, "split", split);
    return plan;
}

static json_t *relayed_encode(const struct job *job)
{
    json_t *list = json_array();
    for (size_t r = 0; r < job->ranks; r++)
        if (*job->through[r])
            json_array_append_new(list,
                                  json_pack("{s:s s:s s:s}", "from", job->names[r], "to",
                                            job->names[(r + 1) % job->ranks], "through", job->through[r]));
    return list;
}

json_t *job_encode(const struct job *job)
{
    json_t *o = job_encode_short(job);
    json_object_set(o, "spec", job->spec);
    json_object_set_new(o, "plan", plan_encode(job));
    json_object_set_new(o, "relayed", relayed_encode(job));
    json_object_set_new(o, "result", job->result ? json_incref(job->result) : json_null());
    return o;
}
