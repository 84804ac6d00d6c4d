/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by timeline.c. */
#include "daemon/ringd/timeline/task_causes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "engine/pipe/plan.h"
#include "net/ring.h"

/* Which of the task's messages it is; TASK_MAX_EMITS: none. */
static uint32_t emit_of(const struct task *task, const struct msg_key *key, uint32_t to)
{
    for (uint32_t i = 0; i < task->nemits; i++)
        if (task->emits[i].to == to && !memcmp(&task->emits[i].key, key, sizeof *key))
            return i;
    return TASK_MAX_EMITS;
}

/* Which task of its sender makes the message. Those of a pair of ranks come about in order, so the
 * search goes on from the last one found. */
static struct task_cause maker_of(const struct plan *plan, const struct task_need *need, uint32_t to,
                                  size_t *from)
{
    const struct plan_rank *sender = &plan->rank[need->from];
    for (size_t k = 0; k < sender->n; k++) {
        size_t i = (*from + k) % sender->n;
        uint32_t emit = emit_of(&sender->tasks[i], &need->key, to);
        if (emit < TASK_MAX_EMITS) {
            *from = i;
            return (struct task_cause){need->from, i, emit};
        }
    }
    return (struct task_cause){0, SIZE_MAX, 0};
}

struct task_cause **task_causes(const struct plan *plan)
{
    struct task_cause **causes = xcalloc(plan->ranks, sizeof *causes);
    for (size_t r = 0; r < plan->ranks; r++) {
        const struct plan_rank *mine = &plan->rank[r];
        size_t at[RING_MAX_NODES] = {0};
        causes[r] = xcalloc(mine->n * TASK_MAX_NEEDS, sizeof *causes[r]);
        for (size_t i = 0; i < mine->n; i++)
            for (uint32_t k = 0; k < TASK_MAX_NEEDS; k++) {
                const struct task_need *need = &mine->tasks[i].needs[k];
                causes[r][i * TASK_MAX_NEEDS + k] = k < mine->tasks[i].nneeds
                                                        ? maker_of(plan, need, (uint32_t)r, &at[need->from])
                                                        : (struct task_cause){0, SIZE_MAX, 0};
            }
    }
    return causes;
}

void task_causes_free(struct task_cause **causes, size_t ranks)
{
    for (size_t r = 0; causes && r < ranks; r++)
        free(causes[r]);
    free(causes);
}
