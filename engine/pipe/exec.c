/* SPDX-License-Identifier: MIT
 *
 * Steps one rank through its tasks. Owns nothing: plan, transport and compute belong to the caller,
 * who calls from one thread and sleeps between steps by his own means. */
#include "pipe/exec.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

void exec_start(struct exec *e, const struct plan *plan, uint32_t rank, uint32_t round)
{
    assert(rank < plan->ranks);
    *e = (struct exec){.plan = plan, .rank = rank, .round = round};
    if (!exec_task(e))
        e->wait = EXEC_DONE;
}

const struct task *exec_task(const struct exec *e)
{
    const struct plan_rank *rank = &e->plan->rank[e->rank];
    return e->next < rank->n ? &rank->tasks[e->next] : NULL;
}

static struct task with_round(const struct task *task, uint32_t round)
{
    struct task copy = *task;
    for (uint32_t i = 0; i < copy.nneeds; i++)
        copy.needs[i].key.round = round;
    for (uint32_t i = 0; i < copy.nemits; i++)
        copy.emits[i].key.round = round;
    return copy;
}

static int wait_for(struct exec *e, enum exec_wait why, const struct msg_key *key, uint32_t rank)
{
    e->wait = why;
    e->wait_key = *key;
    e->wait_rank = rank;
    return -EAGAIN;
}

/* A link that is gone is told with the task that found out and the message it was about. */
static int refuse(const struct exec *e, const struct task *task, const struct msg_key *key, const char *way,
                  uint32_t rank, int rc, struct err *err)
{
    char name[24];
    return err_set(err, rc,
                   "rank %u, round %u, task %zu (%s): %s for stage %u, microbatch %u %s rank %u is lost: %s",
                   e->rank, e->round, e->next + 1, task_name(name, sizeof name, task),
                   msg_kind_name((enum msg_kind)key->kind), key->stage, key->mb, way, rank, strerror(-rc));
}

/* 1: all it needs is here, and what it emits has room. */
static int is_ready(struct exec *e, const struct task *task, const struct exec_ops *ops,
                    int (*room)(void *, const struct msg_key *, uint32_t), void *owner, struct err *err)
{
    for (uint32_t i = 0; i < task->nneeds; i++) {
        const struct task_need *need = &task->needs[i];
        int rc = ops->ready(owner, &need->key, need->from);
        if (rc < 0)
            return refuse(e, task, &need->key, "from", need->from, rc, err);
        if (rc == 0)
            return wait_for(e, EXEC_NEEDS, &need->key, need->from);
    }
    for (uint32_t i = 0; i < task->nemits; i++) {
        const struct task_emit *emit = &task->emits[i];
        int rc = room(owner, &emit->key, emit->to);
        if (rc < 0)
            return refuse(e, task, &emit->key, "to", emit->to, rc, err);
        if (rc == 0)
            return wait_for(e, EXEC_NO_ROOM, &emit->key, emit->to);
    }
    return 1;
}

/* --- ahead ------------------------------------------------------------------------------------ */

static bool may_go_ahead(const struct task *task)
{
    return task->after != SLOT_NONE;
}

/* What was done ahead is passed over. */
static void pass_over(struct exec *e)
{
    const struct plan_rank *rank = &e->plan->rank[e->rank];
    while (e->next < rank->n && e->next < e->ahead && may_go_ahead(&rank->tasks[e->next]))
        e->next++;
    if (!exec_task(e))
        e->wait = EXEC_DONE;
}

/* The next of those that may run ahead, or NULL. */
static const struct task *next_ahead(struct exec *e)
{
    const struct plan_rank *rank = &e->plan->rank[e->rank];
    e->ahead = e->next > e->ahead ? e->next : e->ahead;
    while (e->ahead < rank->n && !may_go_ahead(&rank->tasks[e->ahead]))
        e->ahead++;
    return e->ahead < rank->n ? &rank->tasks[e->ahead] : NULL;
}

static int run_ahead(struct exec *e, const struct task *planned, const struct exec_ops *ops, void *owner,
                     struct err *err)
{
    const struct task task = with_round(planned, e->round);
    const size_t at = e->at;
    int rc = is_ready(e, &task, ops, ops->room_ahead, owner, err);
    if (rc < 1)
        return rc;
    e->at = e->ahead;
    rc = ops->run(owner, &task, err);
    e->at = at;
    if (rc < 0)
        return rc;
    e->ahead++;
    return 1;
}

int exec_ahead(struct exec *e, const struct exec_ops *ops, void *owner, struct err *err)
{
    const struct task *task;
    int rc = 1;
    while (rc > 0 && (task = next_ahead(e)) != NULL) {
        const bool is_due = task->after < e->next ||
                            (e->is_running && task->after == e->next && ops->is_computed(owner, task));
        rc = is_due ? run_ahead(e, task, ops, owner, err) : 0;
    }
    if (!e->is_running)
        pass_over(e);
    return rc < 0 && rc != -EAGAIN ? rc : 0;
}

int exec_step(struct exec *e, const struct exec_ops *ops, void *owner, struct err *err)
{
    const struct task *planned = exec_task(e);
    if (!planned)
        return 0;
    const struct task task = with_round(planned, e->round);
    int rc = is_ready(e, &task, ops, ops->room, owner, err);
    if (rc < 1)
        return rc;
    e->wait = EXEC_RUNNABLE;
    e->at = e->next;
    e->is_running = true;
    rc = ops->run(owner, &task, err);
    e->is_running = false;
    assert(rc != -EAGAIN);
    if (rc < 0)
        return rc;
    e->next++;
    pass_over(e);
    return 1;
}
