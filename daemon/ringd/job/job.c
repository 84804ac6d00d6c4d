/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/plan/shortage.h"
#include "daemon/ringd/job/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ringd/job/survive/copies.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/timeline/timeline.h"
#include "daemon/ringd/timeline/timelines.h"
#include "daemon/ringd/job/survive/token_log.h"
#include "daemon/common/json_weight.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/ledger.h"

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

void job_set_plan(struct job *job, struct placed_plan *plan)
{
    timeline_free(job->timeline);
    placed_plan_free(job->plan);
    job->plan = plan;
    copies_free(job->copies);
    job->copies = plan ? copies_new() : NULL;
    json_decref(job->restore);
    job->restore = NULL;
    job->timeline = plan && job->type == JOB_TRAIN ? timeline_new(&plan->shared) : NULL;
    job->steps = plan ? plan->steps : 0;
    for (size_t r = 0; r < RING_MAX_NODES; r++) {
        free(job->coming[r]);
        job->coming[r] = NULL;
        for (size_t to = 0; to < RING_MAX_NODES; to++) {
            free(job->through[r][to]);
            job->through[r][to] = NULL;
        }
        job->memory[r] = (struct job_memory){0};
        job->ready[r] = job->connected[r] = job->stopped[r] = false;
    }
}

void job_reset(struct job *job)
{
    const uint64_t steps = job->steps;
    job_set_plan(job, NULL);
    if (!job->is_idle) {
        json_decref(job->result);
        job->result = NULL;
    }
    struct job fresh = {.next = job->next,
                        .attempt = job->attempt + 1,
                        .id = job->id,
                        .type = job->type,
                        .asked = job->asked,
                        .spec = job->spec,
                        .spec_bytes = job->spec_bytes,
                        .loan = job->loan,
                        .change = job->change,
                        .changes = job->changes,
                        .created = job->created,
                        .timelines = job->timelines,
                        .started = job->interruption.count ? job->started : 0,
                        .step = job->step,
                        .steps = job->step ? steps : 0,
                        .tokens = job->tokens,
                        .loss = job->loss,
                        .has_loss = job->has_loss,
                        .slow = job->slow,
                        .barred = job->barred,
                        .interruption = job->interruption,
                        .is_idle = job->is_idle,
                        .has_asks = job->has_asks,
                        .result = job->result,
                        .turn = job->turn,
                        .token_log = job->token_log,
                        .saved_step = job->saved_step,
                        .best_step = job->best_step,
                        .log_from = job->log_from,
                        .log_step = job->log_step,
                        .log_lost = job->log_lost,
                        .is_log_lost = job->is_log_lost,
                        .is_spared = job->is_spared,
                        .lent = job->lent,
                        .shortage = job->shortage,
                        .wants_files = job->wants_files,
                        .is_restored = job->is_restored,
                        .deputies = job->deputies,
                        .ran = job->ran,
                        .is_asked_for = job->is_asked_for,
                        .is_without_deputies = job->is_without_deputies,
                        .origin = job->origin,
                        .taken = job->taken,
                        .moved = job->moved,
                        .said = job->said};
    memcpy(fresh.error, job->error, sizeof fresh.error);
    *job = fresh;
}

static json_t *said_of(struct job *job)
{
    if (!job->said)
        job->said = json_object();
    return job->said;
}

void job_logged(struct job *job, const json_t *event)
{
    if (!event || json_is_null(event))
        return;
    said_of(job); /* its file is not empty any more, or that of an earlier run */
    job->log_from = (uint64_t)json_integer_value(json_object_get(event, "log_bytes"));
    job->log_step = (uint64_t)json_integer_value(json_object_get(event, "step"));
}

void job_said(struct job *job, const char *kind, const char *adapter, uint64_t step)
{
    json_t *said = said_of(job);
    if (!json_object_get(said, kind))
        json_object_set_new(said, kind, json_object());
    json_object_set_new(json_object_get(said, kind), adapter, json_integer((json_int_t)step));
}

static uint64_t whole(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

bool job_has_said(const struct job *job, const char *kind, const char *adapter, uint64_t step)
{
    const json_t *of = json_object_get(job->said, kind);
    return json_is_integer(json_object_get(of, adapter)) && whole(of, adapter) >= step;
}

uint64_t job_said_by_all(const struct job *job)
{
    const json_t *steps = json_object_get(job->said, "step"),
                 *left_out = json_object_get(job->said, "skipped");
    uint64_t least = json_object_size(steps) == job->plan->shared.nmore + 1 ? UINT64_MAX : 0;
    const char *adapter;
    json_t *step;
    json_object_foreach ((json_t *)(uintptr_t)steps, adapter, step) {
        const uint64_t made = whole(steps, adapter), left = whole(left_out, adapter),
                       n = made > left ? made : left;
        least = n < least ? n : least;
    }
    return least;
}

uint64_t job_best_step(const struct job *job)
{
    return job->saved_step > job->best_step ? job->saved_step : job->best_step;
}

/* Of one adapter: [{"step", "so_far"}, …], each in force until the next. The last step for which
 * its decisions are known, and the best adapter of which is on the disk. */
static uint64_t decided(const struct job *job, const json_t *list)
{
    uint64_t most = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *next = json_array_get(list, i + 1);
        if (whole(json_object_get(entry, "so_far"), "best_step") <= job_best_step(job))
            most = next ? whole(next, "step") - 1 : UINT64_MAX;
    }
    return most;
}

/* Behind which step the job may go on from memory. What was decided on the way, of steps left out
 * and of the best adapter, is in no copy. */
static uint64_t decided_by_all(const struct job *job)
{
    const json_t *lists = json_object_get(job->said, "so-far"), *list;
    if (!job->asked.early_stop && job->asked.on_nan != ON_NAN_SKIP)
        return UINT64_MAX;
    uint64_t least = json_object_size(lists) == job->plan->shared.nmore + 1 ? UINT64_MAX : 0;
    const char *adapter;
    json_object_foreach ((json_t *)lists, adapter, list) {
        const uint64_t n = decided(job, list);
        least = n < least ? n : least;
    }
    return least;
}

void job_choose_copies(struct job *job)
{
    const uint64_t said = job_said_by_all(job), known = decided_by_all(job);
    const uint64_t most = said < known ? said : known;
    json_decref(job->restore);
    job->restore = copies_choose(job->copies, &job->plan->shared, most);
    if (whole(job->restore, "step") > job->log_lost || most <= job->log_step)
        return;
    json_decref(job->restore);
    job->restore = copies_choose(job->copies, &job->plan->shared, job->log_step);
}

void job_free(struct job *job)
{
    if (!job)
        return;
    job_set_plan(job, NULL);
    timelines_free(job->timelines);
    job_drop_change(job);
    loan_drop(job->loan);
    json_decref(job->lent);
    json_decref(job->spec);
    json_decref(job->result);
    json_decref(job->said);
    token_log_free(job->token_log);
    shortage_free(job->shortage);
    job_drop_turn(job);
    free(job);
}

void job_take_change(struct job *job)
{
    struct job_change *c = job->change;
    const size_t had = json_weight(job->spec);
    ledger_give(c->room, had);
    job->spec_bytes += c->bytes - had;
    c->bytes = 0; /* they are the job's */
    json_decref(job->spec);
    loan_drop(job->loan);
    job->spec = json_incref(c->spec);
    job->asked = c->asked;
    job->loan = loan_hold(c->loan);
    job_drop_change(job);
}

void job_drop_change(struct job *job)
{
    job_change_free(job->change);
    job->change = NULL;
}

void job_hold_turn(struct job *job, json_t *words)
{
    job_drop_turn(job);
    job->is_idle = false;
    job->turn = (struct job_turn){true, words};
}

void job_drop_turn(struct job *job)
{
    json_decref(job->turn.words);
    job->turn = (struct job_turn){false, NULL};
}

struct takeover job_takeover(const struct job *job)
{
    struct takeover t = {.attempt = job->taken.attempt};
    memcpy(t.from, job->taken.from.id, sizeof t.from);
    return t;
}

json_t *job_encode_open(const struct job *job, size_t rank)
{
    const struct takeover taken = job_takeover(job);
    return json_pack("{s:s s:I s:I s:I s:o s:o s:o* s:o* s:I}", "kind", "job-open", "job",
                     (json_int_t)job->id, "attempt", (json_int_t)job->attempt, "rank", (json_int_t)rank,
                     "plan", job_plan_encode(&job->plan->shared), "nodes", placed_plan_nodes(job->plan),
                     "origin", job->origin.job ? origin_encode(&job->origin) : NULL, "taken",
                     job->taken.from.job ? takeover_encode(&taken) : NULL, "said",
                     (json_int_t)job_said_by_all(job));
}

bool job_is_again(const struct job *job)
{
    return job->attempt || job->is_restored || job->origin.job;
}

bool job_has_answered(const struct job *job, size_t rank)
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
    for (size_t r = job_nodes(job)->n; r-- > 0;)
        if (!job_has_answered(job, r)) {
            first = r;
            left++;
        }
    if (ret_left)
        *ret_left = left;
    return first;
}

/* A rank whose weights are on their way is what the others wait for, too. */
static size_t first_coming(const struct job *job, size_t first)
{
    for (size_t r = 0; r < job_nodes(job)->n && job->state == JOB_OPENING; r++)
        if (job->coming[r] && !job->ready[r])
            return r;
    return first;
}

void job_waits_for(const struct job *job, char *text, size_t size)
{
    size_t left;
    const size_t first = first_coming(job, job_first_waited(job, &left));
    const char *name = job_nodes(job)->name[first];
    *text = '\0';
    if (job->state == JOB_QUEUED || job->state == JOB_INTERRUPTED)
        snprintf(text, size, "%s", job->error);
    else if (job->state == JOB_OPENING && job->coming[first])
        snprintf(text, size, "%s", job->coming[first]);
    else if (left == 1)
        snprintf(text, size, "node %s is %s", name, job_phase(job->state)->doing);
    else if (left)
        snprintf(text, size, "node %s is %s, and %zu more %s", name, job_phase(job->state)->doing, left - 1,
                 left == 2 ? "node is" : "nodes are");
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

/* Their names; NULL: it serves none. */
static json_t *adapters_encode(const struct job *job)
{
    json_t *list = job->asked.adapters ? json_array() : NULL, *folder;
    const char *name;
    json_object_foreach ((json_t *)(uintptr_t)job->asked.adapters, name, folder)
        if (!job_adapter_is_former(name))
            json_array_append_new(list, json_string(name));
    return list;
}

json_t *job_encode_short(const struct job *job)
{
    const struct job_nodes *deputies = &job->deputies;
    return json_pack(
        "{s:I s:o s:s s:s s:o s:o s:o s:I s:I s:o s:o s:o s:b s:s? s:o s:I s:s? s:b s:s* s:o*}", "id",
        (json_int_t)job->id, "name", json_sprintf("%llu", (unsigned long long)job->id), "type",
        job_type_name(job->type), "state", job_state_name(job->state), "created", moment(job->created),
        "started", moment(job->started), "ended", moment(job->ended), "step", (json_int_t)job->step, "steps",
        (json_int_t)job->steps, "loss", job->has_loss ? json_real(job->loss) : json_null(), "error",
        *job->error ? json_string(job->error) : json_null(), "unsaved",
        *job->unsaved ? json_string(job->unsaved) : json_null(), "idle", (int)job->is_idle, "model",
        job->asked.model, "seconds", duration(job), "tokens", (json_int_t)job->tokens, "deputy",
        deputies->n ? deputies->name[deputies->n - 1] : NULL, "wants_files", (int)job->wants_files, "serves",
        job->type == JOB_SERVE ? job_served_name(&job->asked) : NULL, "serves_with", adapters_encode(job));
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

static json_t *relayed_encode(const struct job *job)
{
    json_t *list = json_array();
    const struct job_nodes *nodes = job_nodes(job);
    for (size_t r = 0; r < nodes->n; r++)
        for (size_t to = 0; to < nodes->n; to++)
            if (job->through[r][to])
                json_array_append_new(list, json_pack("{s:s s:s s:s}", "from", nodes->name[r], "to",
                                                      nodes->name[to], "through", job->through[r][to]));
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
    for (size_t r = 0; r < job_nodes(job)->n; r++) {
        const struct job_memory *m = &job->memory[r];
        json_array_append_new(list, m->rss ? json_pack("{s:I s:I s:I}", "rss", (json_int_t)m->rss, "anon",
                                                       (json_int_t)m->anon, "peak", (json_int_t)m->peak)
                                           : json_null());
    }
    return list;
}

static json_t *wanted_encode(const struct job *job)
{
    return job->wants_files ? json_pack("{s:O s:O}", "files", json_object_get(job->lent, "files"), "folders",
                                        json_object_get(job->lent, "folders"))
                            : json_null();
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
    json_object_set_new(o, "plan", placed_plan_show(job->plan));
    json_object_set_new(o, "memory", memory_encode(job));
    json_object_set_new(o, "start", start_encode(&job->start));
    json_object_set_new(o, "relayed", relayed_encode(job));
    json_object_set_new(o, "wanted_files", wanted_encode(job));
    json_object_set_new(o, "result", job->result ? json_incref(job->result) : json_null());
    return o;
}
