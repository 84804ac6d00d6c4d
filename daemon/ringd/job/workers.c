/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/workers_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/peer/peers.h"

static json_int_t number_of(const json_t *body, const char *key)
{
    return json_integer_value(json_object_get(body, key));
}

/* --- places ----------------------------------------------------------------------------------- */

/* Also one whose part in that job is over. */
static struct worker *find(const struct workers *ws, const uint8_t head[16], uint64_t job)
{
    for (size_t i = 0; i < ws->n; i++)
        if (ws->at[i]->job == job && !memcmp(ws->at[i]->head, head, 16))
            return ws->at[i];
    return NULL;
}

/* What it has of its job would be lost to the next attempt. */
static bool keeps_something(const struct worker *w)
{
    return w->stage || w->held.n;
}

static bool keeps_for(const struct worker *w, const struct origin *of)
{
    const struct origin held = {.job = w->held.job};
    return origin_is(&w->origin, of) ||
           (w->held.n && held.job == of->job && !memcmp(w->held.head, of->head, sizeof of->head));
}

/* One that has something of the job, under whatever number its head knows it now. */
static size_t idle_keeper(const struct workers *ws, const struct origin *of)
{
    size_t i = 0;
    while (i < ws->n && !(ws->at[i]->state == WORKER_IDLE && keeps_for(ws->at[i], of)))
        i++;
    return i;
}

/* Of those that are idle the one that was used longest ago, one that keeps nothing before all
 * others. ws->n: there is none. */
static size_t idle_one(const struct workers *ws)
{
    size_t best = ws->n;
    for (size_t i = 0; i < ws->n; i++) {
        if (ws->at[i]->state != WORKER_IDLE)
            continue;
        const bool keeps = keeps_something(ws->at[i]),
                   best_keeps = best < ws->n && keeps_something(ws->at[best]);
        if (best == ws->n || (keeps == best_keeps ? ws->used[i] < ws->used[best] : best_keeps))
            best = i;
    }
    return best;
}

/* NULL: there is no place. */
static struct worker *place_for(struct workers *ws, const uint8_t head[16], uint64_t job,
                                const struct origin *of)
{
    struct worker *known = find(ws, head, job);
    if (known)
        return known;
    size_t i = idle_keeper(ws, of);
    if (i == ws->n && ws->n < WORKERS_MAX)
        ws->at[ws->n++] = worker_new(&ws->setup.each);
    else if (i == ws->n)
        i = idle_one(ws);
    if (i == ws->n)
        return NULL;
    ws->used[i] = ++ws->uses;
    return ws->at[i];
}

/* --- who may begin ---------------------------------------------------------------------------- */

static void say_busy(const struct workers *ws, const struct worker *w, char *why, size_t size)
{
    const struct member *head = members_find(ws->setup.each.members, w->head);
    snprintf(why, size, "busy with job %llu of %s", (unsigned long long)w->job,
             head ? head->name : "another node");
}

/* Copies, files and disks are those of one job that trains; and nobody heads a job beside its old
 * head. */
static bool is_in_the_way(const struct worker *w, const struct worker *of, const struct origin *origin,
                          bool trains)
{
    return w != of && w->state != WORKER_IDLE && ((trains && w->trains) || origin_is(&w->origin, origin));
}

/* What a stage is to be opened with; nothing of one that is only planned. */
struct stage_need {
    bool trains;
    uint64_t bytes;
    struct mapped mapped; /* owned */
};

/* Does it fit beside the others? One that is alone is not asked: its plan has looked at the
 * memory. */
static bool fits(const struct workers *ws, const struct worker *of, const struct stage_need *need, char *why,
                 size_t size)
{
    const struct worker *other = NULL;
    for (size_t i = 0; i < ws->n; i++)
        if (ws->at[i] != of && ws->at[i]->state != WORKER_IDLE)
            other = ws->at[i];
    const uint64_t has = other ? ws->setup.free_memory(ws->setup.each.owner) : UINT64_MAX,
                   bytes = need->bytes - workers_shared(ws, of, &need->mapped);
    if (bytes <= has)
        return true;
    const struct err_amounts text = err_amounts(bytes, has);
    snprintf(why, size, "its stage needs %s, and %s are free beside job %llu", text.need, text.have,
             (unsigned long long)other->job);
    return false;
}

static bool may_begin(const struct workers *ws, const struct worker *of, const struct origin *origin,
                      const struct stage_need *need, char *why, size_t size)
{
    for (size_t i = 0; i < ws->n; i++)
        if (is_in_the_way(ws->at[i], of, origin, need->trains)) {
            say_busy(ws, ws->at[i], why, size);
            return false;
        }
    return fits(ws, of, need, why, size);
}

/* What trains fills what others leave: somebody waits for those. */
static void share_cpu(const struct workers *ws)
{
    bool any_waits = false;
    for (size_t i = 0; i < ws->n; i++)
        any_waits = any_waits || (ws->at[i]->state != WORKER_IDLE && ws->at[i]->class < JOB_CLASS_TRAIN);
    for (size_t i = 0; any_waits && i < ws->n; i++)
        if (ws->at[i]->state != WORKER_IDLE && ws->at[i]->class == JOB_CLASS_TRAIN)
            worker_yield(ws->at[i]);
}

/* What others keep for jobs that trained gives way to one that begins to. */
static void begun(const struct workers *ws, const struct worker *w)
{
    share_cpu(ws);
    for (size_t i = 0; w->state != WORKER_IDLE && w->trains && i < ws->n; i++)
        if (ws->at[i] != w)
            worker_drop_kept(ws->at[i]);
}

static void refuse(const struct workers *ws, const uint8_t head[16], const json_t *body, const char *why)
{
    worker_refuse(&ws->setup.each, head, body, why);
}

void workers_plan(struct workers *ws, uint64_t job, uint32_t attempt, const struct origin *origin,
                  enum job_type type, json_t *spec, json_t *nodes, struct loan *loan)
{
    const uint8_t *self = members_self(ws->setup.each.members)->id;
    const struct stage_need need = {.trains = type == JOB_TRAIN};
    char why[300];
    struct worker *w = place_for(ws, self, job, origin);
    snprintf(why, sizeof why, "this node holds %d stages, and no more", WORKERS_MAX);
    if (w && w->state == WORKER_IDLE && may_begin(ws, w, origin, &need, why, sizeof why)) {
        w->has_company = !workers_are_idle(ws);
        worker_plan(w, job, attempt, origin, type, spec, nodes, loan);
        begun(ws, w);
        return;
    }
    if (w && w->state != WORKER_IDLE)
        say_busy(ws, w, why, sizeof why);
    json_t *body =
        json_pack("{s:I s:I s:i}", "job", (json_int_t)job, "attempt", (json_int_t)attempt, "rank", 0);
    refuse(ws, self, body, why);
    json_decref(body);
    json_decref(spec);
    json_decref(nodes);
}

/* Of a plan that cannot be read nothing: the worker refuses it, and says why. */
static void read_need(struct stage_need *ret, const json_t *body)
{
    struct err quiet;
    struct job_plan *plan = xcalloc(1, sizeof *plan);
    const json_int_t rank = number_of(body, "rank");
    *ret = (struct stage_need){0};
    if (!job_plan_decode(plan, json_object_get(body, "plan"), &quiet) && rank >= 0 &&
        (size_t)rank < plan->ranks && !mapped_of_plan(&ret->mapped, plan, (size_t)rank)) {
        ret->trains = plan->type == JOB_TRAIN;
        ret->bytes = plan->bytes[rank];
    }
    job_plan_done(plan);
    free(plan);
}

void workers_take_open(struct workers *ws, const uint8_t head[16], const json_t *body)
{
    char why[300];
    struct origin origin;
    struct stage_need need;
    worker_origin_of(&origin, head, body);
    struct worker *w = place_for(ws, head, (uint64_t)number_of(body, "job"), &origin);
    snprintf(why, sizeof why, "it holds %d stages, and no more", WORKERS_MAX);
    /* Said again, it changes nothing. */
    const bool is_known = w && w->state != WORKER_IDLE && w->state != WORKER_PLANNING;
    read_need(&need, body);
    const bool may = w && (is_known || may_begin(ws, w, &origin, &need, why, sizeof why));
    mapped_done(&need.mapped);
    if (!may) {
        refuse(ws, head, body, why);
        return;
    }
    worker_take_open(w, head, body);
    begun(ws, w);
}

int workers_ask(struct workers *ws, uint64_t job, json_t *message)
{
    struct worker *w = find(ws, members_self(ws->setup.each.members)->id, job);
    if (w)
        return worker_ask(w, message);
    json_decref(message);
    return -ENOTCONN;
}

/* --- messages, data connections --------------------------------------------------------------- */

struct worker *workers_of_head(const struct workers *ws, const uint8_t from[16], const json_t *body)
{
    for (size_t i = 0; i < ws->n; i++)
        if (worker_is_head(ws->at[i], from, body))
            return ws->at[i];
    return NULL;
}

void workers_say_stopped(struct workers *ws, const uint8_t head[16], const json_t *body)
{
    const uint64_t job = (uint64_t)number_of(body, "job");
    struct worker *w = find(ws, head, job);
    if (w)
        worker_stop_again(w, body);
    else if (!json_is_true(json_object_get(body, "keep")) &&
             worker_let_go_of_earlier(&ws->setup.each, head, job))
        for (size_t i = 0; i < ws->n; i++)
            worker_drop_memory(ws->at[i], head, job);
    worker_answer_stop(&ws->setup.each, head, body);
}

void workers_take_head_answer(struct workers *ws, const uint8_t from[16], const json_t *body)
{
    for (size_t i = 0; i < ws->n; i++)
        worker_take_head_answer(ws->at[i], from, body);
}

void workers_take_lane_turn(struct workers *ws, const uint8_t from[16], const json_t *body)
{
    const char *cable = json_string_value(json_object_get(body, "cable"));
    peers_path_turned(ws->setup.each.peers, from, strtoull(cable, NULL, 16));
    for (size_t i = 0; i < ws->n; i++)
        worker_lanes_changed(ws->at[i]);
}

int workers_data_hello(struct workers *ws, const struct link_hello *peer, char *why, size_t size)
{
    const struct worker *w = find(ws, peer->head_id, peer->job);
    if (w)
        return worker_data_hello(w, peer, why, size);
    worker_no_stage(&ws->setup.each, peer, why, size);
    return -EPERM;
}

void workers_data_up(struct workers *ws, struct link *link, uint32_t from_rank)
{
    struct worker *w = find(ws, link_peer(link)->head_id, link_peer(link)->job);
    if (w)
        worker_data_up(w, link, from_rank);
    else /* another job may have its place since it said hello */
        link_free(link);
}

void workers_coming(struct workers *ws, const char *model, const json_t *event)
{
    for (size_t i = 0; i < ws->n; i++)
        worker_coming(ws->at[i], model, event);
}

void workers_brought(struct workers *ws, const char *model, const char *why)
{
    for (size_t i = 0; i < ws->n; i++)
        worker_brought(ws->at[i], model, why);
}

void workers_kept(struct workers *ws, const json_t *event)
{
    for (size_t i = 0; i < ws->n; i++)
        if (ws->at[i]->trains)
            worker_kept(ws->at[i], event);
}

void workers_changed(struct workers *ws)
{
    for (size_t i = 0; i < ws->n; i++)
        worker_changed(ws->at[i]);
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct workers *workers_new(const struct workers_setup *setup)
{
    struct workers *ws = xcalloc(1, sizeof *ws);
    ws->setup = *setup;
    return ws;
}

void workers_free(struct workers *ws)
{
    if (!ws)
        return;
    for (size_t i = 0; i < ws->n; i++)
        worker_free(ws->at[i]);
    free(ws);
}
