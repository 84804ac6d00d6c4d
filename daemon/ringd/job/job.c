/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/job/timeline.h"
#include "daemon/ringd/job/timelines.h"
#include "daemon/common/xalloc.h"

struct job *job_new(uint64_t id, enum job_type type, const struct job_spec *asked, json_t *spec)
{
    struct job *job = xcalloc(1, sizeof *job);
    *job = (struct job){.id = id, .type = type, .spec = spec, .created = time(NULL)};
    if (asked)
        job->asked = *asked;
    if (job->asked.trace)
        job->timelines = timelines_new();
    return job;
}

static void free_ways(struct job *job)
{
    for (size_t r = 0; r < RING_MAX_NODES; r++)
        free(job->through[r]);
}

void job_reset(struct job *job)
{
    free_ways(job);
    timeline_free(job->timeline);
    json_decref(job->plan);
    json_decref(job->result);
    struct job fresh = {.next = job->next,
                        .id = job->id,
                        .type = job->type,
                        .asked = job->asked,
                        .spec = job->spec,
                        .spec_bytes = job->spec_bytes,
                        .created = job->created,
                        .timelines = job->timelines};
    memcpy(fresh.error, job->error, sizeof fresh.error);
    *job = fresh;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    free_ways(job);
    timeline_free(job->timeline);
    timelines_free(job->timelines);
    json_decref(job->spec);
    json_decref(job->plan);
    json_decref(job->result);
    free(job);
}

json_t *job_take_nodes(struct job *job, const struct members_ring *ring)
{
    json_t *nodes = json_array();
    job->ranks = ring->n;
    for (size_t r = 0; r < ring->n; r++) {
        const struct member *m = ring->at[r];
        memcpy(job->nodes[r], m->id, 16);
        snprintf(job->names[r], sizeof job->names[r], "%s", m->name);
        job->available[r] = m->memory_available;
        char id[33];
        id_hex(id, m->id);
        json_array_append_new(nodes,
                              json_pack("{s:s s:s s:f s:I s:I s:b}", "id", id, "name", m->name, "speed",
                                        (double)m->threads, "memory", (json_int_t)m->memory_available, "mbps",
                                        (json_int_t)ring->class_mbps, "by_hand", (int)ring->by_hand));
    }
    return nodes;
}

json_t *job_encode_open(const struct job *job, size_t rank)
{
    json_t *nodes = json_array();
    for (size_t i = 0; i < job->ranks; i++) {
        char hex[33];
        id_hex(hex, job->nodes[i]);
        json_array_append_new(nodes, json_string(hex));
    }
    return json_pack("{s:s s:I s:I s:O s:o}", "kind", "job-open", "job", (json_int_t)job->id, "rank",
                     (json_int_t)rank, "plan", job->plan, "nodes", nodes);
}

void job_choose(struct job *job, uint32_t chosen)
{
    size_t n = 0;
    for (size_t r = 0; r < job->ranks && chosen; r++) {
        if (!(chosen >> r & 1))
            continue;
        memmove(job->nodes[n], job->nodes[r], sizeof job->nodes[n]);
        memmove(job->names[n], job->names[r], sizeof job->names[n]);
        job->available[n++] = job->available[r];
    }
    job->ranks = chosen ? n : job->ranks;
}

void job_mirror(struct job *job)
{
    const struct job was = *job;
    for (size_t r = 1; r < job->ranks; r++) {
        const size_t from = job->ranks - r;
        memcpy(job->nodes[r], was.nodes[from], sizeof job->nodes[r]);
        memcpy(job->names[r], was.names[from], sizeof job->names[r]);
        job->available[r] = was.available[from];
    }
}

size_t job_rank_of(const struct job *job, const uint8_t id[16])
{
    size_t r = 0;
    while (r < job->ranks && memcmp(job->nodes[r], id, 16))
        r++;
    return r;
}

static bool has_answered(const struct job *job, size_t rank)
{
    switch (job_phase(job->state)->answer) {
    case JOB_ANSWER_NONE: return true;
    case JOB_ANSWER_PLAN: return rank > 0;
    case JOB_ANSWER_READY: return job->ready[rank];
    case JOB_ANSWER_CONNECTED: return job->connected[rank];
    case JOB_ANSWER_STOPPED: return job->stopped[rank];
    }
    return true;
}

size_t job_first_waited(const struct job *job, size_t *ret_left)
{
    size_t first = 0, left = 0;
    for (size_t r = job->ranks; r-- > 0;)
        if (!has_answered(job, r)) {
            first = r;
            left++;
        }
    if (ret_left)
        *ret_left = left;
    return first;
}

void job_waits_for(const struct job *job, char *text, size_t size)
{
    size_t left;
    const size_t first = job_first_waited(job, &left);
    *text = '\0';
    if (job->state == JOB_QUEUED)
        snprintf(text, size, "%s", job->error);
    else if (left == 1)
        snprintf(text, size, "node %s is %s", job->names[first], job_phase(job->state)->doing);
    else if (left)
        snprintf(text, size, "node %s is %s, and %zu more %s", job->names[first],
                 job_phase(job->state)->doing, left - 1, left == 2 ? "node is" : "nodes are");
}

void job_progress(struct job *job, struct instant now)
{
    double took = job->progressed.us ? (double)clock_since_us(now, job->progressed) / 1e6 : 0;
    job->longest_step = took > job->longest_step ? took : job->longest_step;
    job->progressed = now;
}

void job_mark(const struct job *job, double *at, struct instant now)
{
    if (*at <= 0)
        *at = (double)clock_since_us(now, job->start.began) / 1e6;
}

static json_t *moment(int64_t t)
{
    return t ? json_integer(t) : json_null();
}

/* From its start to its end, or to now. */
static json_t *duration(const struct job *job)
{
    const int64_t until = job->ended ? job->ended : time(NULL);
    return job->started ? json_integer(until > job->started ? until - job->started : 0) : json_null();
}

json_t *job_encode_short(const struct job *job)
{
    return json_pack("{s:I s:o s:s s:s s:o s:o s:o s:I s:I s:o s:o s:b s:s? s:o s:I}", "id",
                     (json_int_t)job->id, "name", json_sprintf("%llu", (unsigned long long)job->id), "type",
                     job_type_name(job->type), "state", job_state_name(job->state), "created",
                     moment(job->created), "started", moment(job->started), "ended", moment(job->ended),
                     "step", (json_int_t)job->step, "steps", (json_int_t)job->steps, "loss",
                     job->has_loss ? json_real(job->loss) : json_null(), "error",
                     *job->error ? json_string(job->error) : json_null(), "idle", (int)job->is_idle, "model",
                     job->asked.model, "seconds", duration(job), "tokens", (json_int_t)job->tokens);
}

void job_how_it_ended(char *text, size_t size, const json_t *record)
{
    const char *state = json_string_value(json_object_get(record, "state")),
               *error = json_string_value(json_object_get(record, "error"));
    if (state && !strcmp(state, "done"))
        snprintf(text, size, "it is done");
    else
        snprintf(text, size, "it %s%s%s", state && !strcmp(state, "cancelled") ? "was cancelled" : "failed",
                 error ? ": " : "", error ? error : "");
}

size_t job_rank_of_stage(const json_t *plan, size_t stage)
{
    const json_t *rank = json_array_get(json_object_get(plan, "places"), stage);
    return rank ? (size_t)json_integer_value(rank) : stage;
}

/* Of each rank: the bounds of its stages one after the other, and all their slots together. */
static void encode_stages(json_t *plan, size_t ranks)
{
    const json_t *first = json_object_get(plan, "first"), *of_stage = json_object_get(plan, "slots");
    json_t *split = json_array(), *slots = json_array();
    for (size_t r = 0; r < ranks; r++) {
        json_int_t sum = 0;
        json_t *bounds = json_array();
        for (size_t s = 0; s + 1 < json_array_size(first); s++) {
            if (job_rank_of_stage(plan, s) != r)
                continue;
            json_array_append(bounds, json_array_get(first, s));
            json_array_append(bounds, json_array_get(first, s + 1));
            sum += json_integer_value(json_array_get(of_stage, s));
        }
        json_array_append_new(split, bounds);
        json_array_append_new(slots, json_integer(sum));
    }
    json_object_set_new(plan, "split", split);
    if (of_stage)
        json_object_set_new(plan, "slots", slots);
    json_decref(of_stage ? NULL : slots);
}

json_t *job_encode_plan(const struct job *job)
{
    if (!job->plan)
        return json_null();
    json_t *plan = json_deep_copy(job->plan), *names = json_array(), *available = json_array();
    for (size_t r = 0; r < job->ranks; r++) {
        json_array_append_new(names, json_string(job->names[r]));
        json_array_append_new(available, json_integer((json_int_t)job->available[r]));
    }
    encode_stages(plan, job->ranks);
    json_object_del(plan, "weights"); /* for the nodes' eyes */
    json_object_set_new(plan, "nodes", names);
    json_object_set_new(plan, "available", available);
    return plan;
}

static json_t *relayed_encode(const struct job *job)
{
    json_t *list = json_array();
    for (size_t r = 0; r < job->ranks; r++)
        if (job->through[r])
            json_array_append_new(list,
                                  json_pack("{s:s s:s s:s}", "from", job->names[r], "to",
                                            job->names[(r + 1) % job->ranks], "through", job->through[r]));
    return list;
}

int job_set_memory(struct job *job, size_t rank, const json_t *event)
{
    const json_int_t rss = json_integer_value(json_object_get(event, "rss")),
                     anon = json_integer_value(json_object_get(event, "anon")),
                     peak = json_integer_value(json_object_get(event, "peak"));
    if (rss <= 0 || anon < 0 || anon > rss || peak < rss)
        return -EBADMSG;
    job->memory[rank] = (struct job_memory){(uint64_t)rss, (uint64_t)anon, (uint64_t)peak};
    return 0;
}

static json_t *memory_encode(const struct job *job)
{
    json_t *list = json_array();
    for (size_t r = 0; r < job->ranks; r++) {
        const struct job_memory *m = &job->memory[r];
        json_array_append_new(list, m->rss ? json_pack("{s:I s:I s:I}", "rss", (json_int_t)m->rss, "anon",
                                                       (json_int_t)m->anon, "peak", (json_int_t)m->peak)
                                           : json_null());
    }
    return list;
}

static json_t *seconds(double s)
{
    return s > 0 ? json_real(s) : json_null();
}

static json_t *start_encode(const struct job_start *s)
{
    return json_pack("{s:o s:o s:o s:o s:o}", "planned", seconds(s->planned), "opened", seconds(s->opened),
                     "connected", seconds(s->connected), "first_task", seconds(s->first_task), "first_result",
                     seconds(s->first_result));
}

json_t *job_encode(const struct job *job)
{
    json_t *o = job_encode_short(job);
    char waits[sizeof job->error];
    job_waits_for(job, waits, sizeof waits);
    json_object_set_new(o, "waits_for", *waits ? json_string(waits) : json_null());
    json_object_set(o, "spec", job->spec);
    json_object_set_new(o, "plan", job_encode_plan(job));
    json_object_set_new(o, "memory", memory_encode(job));
    json_object_set_new(o, "start", start_encode(&job->start));
    json_object_set_new(o, "relayed", relayed_encode(job));
    json_object_set_new(o, "result", job->result ? json_incref(job->result) : json_null());
    return o;
}
