/* SPDX-License-Identifier: MIT
 *
 * Many ranks in one process for test_pipe.c: a transport that keeps the planned credits and no
 * more, with delays, slow links and cut ones, and a compute that checks of every task that what it
 * needs is there. */
#ifndef TESTS_SIM_PIPE_WORLD_H
#define TESTS_SIM_PIPE_WORLD_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipe/exec.h"

enum {
    MAX_RANKS = 8,
    MAX_REPLICAS = 3,
    MAX_PIPELINES = 6, /* slices of replicas */
    MAX_CHUNKS = 3,
    MAX_STAGES = MAX_RANKS * MAX_CHUNKS,
    MAX_MB = 12,
    MAX_LAYERS = 8,
    NEVER = UINT32_MAX
};

enum message_state { UNBORN, UNSENT, MOVING, HERE, CONSUMED };

struct message {
    struct msg_key key;
    uint32_t from, to;
    enum message_state state;
    uint32_t arrives; /* MOVING: when */
};

/* One directed pair of neighbours. Its messages stand in the order in which the receiver consumes
 * them. */
struct link {
    struct message *messages; /* owned */
    size_t n, consumed, unsent;
    uint32_t slowness; /* greatest delay of a message */
    uint32_t cut_at;   /* time from which it is dead, or NEVER */
};

struct node {
    struct world *world;
    struct exec exec;
    size_t done;
    uint32_t slot_of[MAX_STAGES][MAX_MB]; /* SLOT_NONE = holds none */
    bool slot_taken[MAX_STAGES][MAX_MB];
    uint32_t activations_of[MAX_STAGES]
                           [MAX_MB]; /* whose activations each buffer holds, microbatch + 1; 0 = nobody's */
    bool handed[MSG_COUNT][MAX_STAGES][MAX_MB]; /* on its way between two stages of this rank */
    size_t nhanded, most_handed;
    size_t slots, most_slots;
    uint32_t accumulated[MAX_STAGES]; /* next microbatch whose weight gradient may be added, per stage */
    bool is_inside, went_ahead;
    size_t entered; /* tasks in which the slices of a stage gather */
    bool is_held;   /* it is in one, and others are not */
    int failed;
};

struct world {
    uint64_t seed, rng;
    uint32_t now, round;
    struct plan *plan; /* owned */
    size_t credits;
    size_t slices;
    uint32_t lowest; /* trained stage */
    bool flushed;    /* the steps that were asked for cannot follow each other */
    bool frugal;     /* room counts every emit of the task asked about, not only those queued already */
    bool cut;
    bool ahead;                       /* tasks run ahead of their turn where they may */
    size_t parts[MAX_STAGES];         /* of each stage's gradients */
    uint32_t adapter_of_step[MAX_MB]; /* of each step of the plan: its adapter */
    struct pipeline {                 /* by step: */
        bool normed[MAX_STAGES][MAX_MB], updated[MAX_STAGES][MAX_MB];
        uint32_t back[MAX_STAGES][MAX_MB], lost[MAX_MB]; /* microbatches; losses taken */
        uint32_t own;                                    /* its microbatches of a step */
        bool has_rows;
    } pipelines[MAX_PIPELINES];
    bool in_order;                           /* every stage adds up its weight gradients in ascending order */
    struct link links[MAX_RANKS][MAX_RANKS]; /* [from][to] */
    struct node nodes[MAX_RANKS];
};

#define require(w, condition)                                                                                \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail_msg("seed %llu, time %u: %s", (unsigned long long)(w)->seed, (w)->now, #condition);         \
    } while (0)

static inline uint64_t next_random(struct world *w)
{
    w->rng += 0x9e3779b97f4a7c15u;
    uint64_t z = w->rng;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t below(struct world *w, uint32_t n)
{
    return (uint32_t)(next_random(w) % n);
}

static inline bool same_key(const struct msg_key *a, const struct msg_key *b)
{
    return a->round == b->round && a->kind == b->kind && a->stage == b->stage && a->mb == b->mb;
}

/* --- transport -------------------------------------------------------------------------------- */

static inline struct message *find(struct link *link, const struct msg_key *key)
{
    for (size_t k = 0; k < link->n; k++)
        if (same_key(&link->messages[k].key, key))
            return &link->messages[k];
    return NULL;
}

static inline bool is_dead(const struct world *w, const struct link *link)
{
    return w->now >= link->cut_at;
}

static inline int ready(void *owner, const struct msg_key *key, uint32_t from)
{
    struct node *node = owner;
    struct world *w = node->world;
    struct link *link = &w->links[from][node->exec.rank];
    struct message *message = find(link, key);
    require(w, message != NULL);
    require(w, key->round == w->round);
    if (message->state == HERE)
        return 1;
    return is_dead(w, link) ? -EPIPE : 0;
}

static inline int room(void *owner, const struct msg_key *key, uint32_t to)
{
    struct node *node = owner;
    struct world *w = node->world;
    struct link *link = &w->links[node->exec.rank][to];
    require(w, find(link, key) != NULL);
    if (is_dead(w, link))
        return -EPIPE;
    size_t wanted = 1;
    if (w->frugal) {
        const struct task *task = exec_task(&node->exec);
        wanted = 0;
        for (uint32_t i = 0; i < task->nemits; i++)
            wanted += task->emits[i].to == to;
    }
    return link->unsent + wanted <= w->credits;
}

/* What is ahead leaves room for all else. */
static inline int room_ahead(void *owner, const struct msg_key *key, uint32_t to)
{
    struct node *node = owner;
    struct world *w = node->world;
    struct link *link = &w->links[node->exec.rank][to];
    require(w, find(link, key) != NULL);
    return is_dead(w, link) ? -EPIPE : link->unsent + 1 <= w->credits - w->plan->rank[0].credits;
}

/* A backward may have gone through as much as is asked about, or not. */
static inline bool is_computed(void *owner, const struct task *task)
{
    struct node *node = owner;
    (void)task;
    return below(node->world, 2);
}

/* Starts moving what has a buffer, lets arrive what has moved long enough. Random order is in the
 * delays. */
static inline bool pump(struct world *w, struct link *link)
{
    bool moved = false;
    size_t buffers = 0;
    for (size_t k = w->ahead ? 0 : link->consumed; k < link->n; k++) {
        struct message *message = &link->messages[k];
        bool has_buffer = k < link->consumed + w->credits;
        if (is_dead(w, link))
            break;
        if (message->state == UNSENT && has_buffer) {
            message->state = MOVING;
            message->arrives = w->now + below(w, link->slowness + 1);
            moved = true;
        }
        if (message->state == MOVING && message->arrives <= w->now) {
            message->state = HERE;
            link->unsent--;
            moved = true;
        }
        buffers += message->state == MOVING || message->state == HERE;
    }
    require(w, buffers <= w->credits);
    return moved;
}

/* --- compute ---------------------------------------------------------------------------------- */

static inline void use_slot(struct node *node, const struct task *task)
{
    struct world *w = node->world;
    if (!task_is_compute(task->kind)) {
        require(w, task->slot == SLOT_NONE && !task->first_use && !task->last_use);
        return;
    }
    uint32_t *slot = &node->slot_of[task->stage][task->mb];
    require(w, task->slot < w->plan->slots[task->stage]);
    if (task->first_use) {
        require(w, *slot == SLOT_NONE && !node->slot_taken[task->stage][task->slot]);
        *slot = task->slot;
        node->slot_taken[task->stage][*slot] = true;
        if (++node->slots > node->most_slots)
            node->most_slots = node->slots;
    }
    require(w, *slot == task->slot);
    if (task->last_use) {
        node->slot_taken[task->stage][*slot] = false;
        *slot = SLOT_NONE;
        node->slots--;
    }
}

/* A backward finds the activations of its microbatch, whichever used that buffer before. */
static inline void use_activations(struct node *node, const struct task *task)
{
    struct world *w = node->world;
    if (!task_is_compute(task->kind))
        return;
    require(w, task->activations < w->plan->activations[task->stage]);
    uint32_t *activations = &node->activations_of[task->stage][task->activations];
    if (task->kind == TASK_F || task->kind == TASK_R)
        *activations = task->mb + 1;
    else
        require(w, *activations == task->mb + 1);
}

/* What goes from one stage of a rank to another must be there when it is taken. */
static inline void hand_over(struct node *node, const struct task *task)
{
    struct world *w = node->world;
    enum msg_kind kind = task->kind == TASK_F ? MSG_ACT : MSG_GRAD;
    uint32_t to = kind == MSG_ACT ? task->stage + 1 : task->stage - 1;
    if (task->to_here) {
        require(w, !node->handed[kind][to][task->mb]);
        node->handed[kind][to][task->mb] = true;
        if (++node->nhanded > node->most_handed)
            node->most_handed = node->nhanded;
    }
    if (task->from_here) {
        require(w, node->handed[kind][task->stage][task->mb]);
        node->handed[kind][task->stage][task->mb] = false;
        node->nhanded--;
    }
}

/* A step ends on a stage once all replicas have gone back through it. */
static inline bool all_are_back(const struct world *w, uint32_t stage, uint32_t step)
{
    for (size_t d = 0; d < w->plan->pipelines; d++)
        if (w->pipelines[d].back[stage][step] != w->pipelines[d].own)
            return false;
    return true;
}

/* A step begins on a stage once the one before it, of the same adapter, has ended there; and ends
 * once everything of it is done. */
static inline void keep_steps(struct world *w, struct pipeline *own, const struct task *task)
{
    const struct plan *plan = w->plan;
    const uint32_t s = task->stage;
    const bool is_end = task->kind == TASK_NORM || task->kind == TASK_UPDATE;
    const uint32_t step = is_end ? task->mb : plan_step(plan, task->mb);
    if (task->kind == TASK_F) {
        require(w, own->has_rows);
        for (uint32_t before = 0; before < step; before++)
            require(w, w->adapter_of_step[before] != w->adapter_of_step[step] || own->updated[s][before]);
    }
    own->back[s][step] += task->kind == TASK_B || task->kind == TASK_W;
    own->lost[step] += task->kind == TASK_LOSS;
    if (task->kind == TASK_NORM) {
        require(w, !own->normed[s][step] && (all_are_back(w, s, step) || s < w->lowest));
        require(w, s + 1 == plan->stages || own->normed[s + 1][step]);
        require(w, s > 0 || own->lost[step] == own->own);
        own->normed[s][step] = true;
    }
    if (task->kind == TASK_UPDATE) {
        require(w, !own->updated[s][step] && own->normed[0][step] && (s == 0 || own->updated[s - 1][step]));
        require(w, w->pipelines[0].normed[0][step]);
        own->updated[s][step] = true;
    }
}

static const struct exec_ops ops;

static inline int run(void *owner, const struct task *task, struct err *err)
{
    struct node *node = owner;
    struct world *w = node->world;
    require(w, w->ahead ? node->exec.at >= node->exec.next
                        : node->done == node->exec.next); /* in order, each once */
    node->done++;
    if (node->exec.at > node->exec.next || (node->exec.is_running && task->after != SLOT_NONE))
        node->went_ahead = true;
    use_slot(node, task);
    use_activations(node, task);
    hand_over(node, task);
    struct pipeline *pipeline = &w->pipelines[plan_shape_pipeline(&w->plan->shape, node->exec.rank)];
    pipeline->has_rows |= task->kind == TASK_ROWS && task->nneeds;
    if (w->plan->program == PROGRAM_TRAIN && (task_is_compute(task->kind) || task->kind == TASK_LOSS ||
                                              task->kind == TASK_NORM || task->kind == TASK_UPDATE))
        keep_steps(w, pipeline, task);
    const bool is_gradient = (task->nneeds && task->needs[0].key.kind == MSG_PART) ||
                             (task->nemits && task->emits[0].key.kind == MSG_PART);
    if (is_gradient) /* what is given, or added to, is there */
        require(w, pipeline->back[task->stage][task->mb / w->parts[task->stage]] == pipeline->own ||
                       node->is_inside);
    if (w->in_order && (task->kind == TASK_B || task->kind == TASK_W))
        require(w, task->mb == node->accumulated[task->stage]++);
    if (w->ahead && task->kind == TASK_B && !node->is_inside) {
        node->is_inside = true;
        const int rc = exec_ahead(&node->exec, &ops, node, err);
        node->is_inside = false;
        if (rc)
            return rc;
    }
    for (uint32_t i = 0; i < task->nneeds; i++) {
        struct link *link = &w->links[task->needs[i].from][node->exec.rank];
        struct message *message = find(link, &task->needs[i].key);
        require(w, message && message->state == HERE);
        require(w, w->ahead || message == &link->messages[link->consumed]);
        message->state = CONSUMED;
        link->consumed++;
    }
    for (uint32_t i = 0; i < task->nemits; i++) {
        struct link *link = &w->links[node->exec.rank][task->emits[i].to];
        struct message *message = find(link, &task->emits[i].key);
        require(w, message && message->state == UNBORN);
        message->state = UNSENT;
        link->unsent++;
        require(w, link->unsent < w->credits + (w->frugal ? 1 : TASK_MAX_EMITS));
    }
    return 0;
}

static const struct exec_ops ops = {ready, room, run, room_ahead, is_computed};

/* --- gathering -------------------------------------------------------------------------------- */

static inline bool gathers(const struct world *w, const struct task *task)
{
    return w->slices > 1 && (task_is_compute(task->kind) || task->kind == TASK_NORM);
}

static inline bool can_run(struct node *node, const struct task *task)
{
    bool can = true;
    for (uint32_t i = 0; i < task->nneeds && can; i++) {
        struct msg_key key = task->needs[i].key;
        key.round = node->world->round;
        can = ready(node, &key, task->needs[i].from) > 0;
    }
    for (uint32_t i = 0; i < task->nemits && can; i++) {
        struct msg_key key = task->emits[i].key;
        key.round = node->world->round;
        can = room(node, &key, task->emits[i].to) > 0;
    }
    return can;
}

/* A rank is held in a task that it could run until all that share its stage are in theirs, which
 * are the same task. Meanwhile it does nothing else. */
static inline bool enter(struct node *node, const struct task *task)
{
    struct world *w = node->world;
    const struct plan_shape *shape = &w->plan->shape;
    const size_t first = plan_shape_pipeline(shape, node->exec.rank) / w->slices * w->slices;
    if (!node->is_held)
        node->entered++;
    node->is_held = true;
    for (size_t i = 0; i < w->slices; i++) {
        const uint32_t rank = plan_shape_rank(shape, first + i, plan_shape_place(shape, node->exec.rank));
        const struct node *other = &w->nodes[rank];
        const struct task *its = exec_task(&other->exec);
        node->exec.wait_rank = rank;
        if (other->entered < node->entered)
            return false;
        if (other->is_held && other->entered == node->entered)
            require(w, its->kind == task->kind && its->stage == task->stage && its->mb == task->mb);
    }
    node->is_held = false;
    return true;
}

#endif
