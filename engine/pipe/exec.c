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

int exec_step(struct exec *e, const struct exec_ops *ops, void *owner, struct err *err)
{
    const struct task *planned = exec_task(e);
    if (!planned)
        return 0;
    struct task task = with_round(planned, e->round);
    for (uint32_t i = 0; i < task.nneeds; i++) {
        const struct task_need *need = &task.needs[i];
        int rc = ops->ready(owner, &need->key, need->from);
        if (rc < 0)
            return refuse(e, &task, &need->key, "from", need->from, rc, err);
        if (rc == 0)
            return wait_for(e, EXEC_NEEDS, &need->key, need->from);
    }
    for (uint32_t i = 0; i < task.nemits; i++) {
        const struct task_emit *emit = &task.emits[i];
        int rc = ops->room(owner, &emit->key, emit->to);
        if (rc < 0)
            return refuse(e, &task, &emit->key, "to", emit->to, rc, err);
        if (rc == 0)
            return wait_for(e, EXEC_NO_ROOM, &emit->key, emit->to);
    }
    e->wait = EXEC_RUNNABLE;
    int rc = ops->run(owner, &task, err);
    assert(rc != -EAGAIN);
    if (rc < 0)
        return rc;
    e->next++;
    if (!exec_task(e))
        e->wait = EXEC_DONE;
    return 1;
}
