/* SPDX-License-Identifier: MIT
 *
 * A schedule's memory, and the names and places of its tasks. Pure: called by those that make,
 * write and show schedules, from any thread. */
#include "pipe/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/sched_impl.h"

const char *sched_op_name(enum sched_op op)
{
    static const char *const text[OP_COUNT] = {"F", "I", "W", "B", "R"};
    return (unsigned)op < OP_COUNT ? text[op] : "?";
}

char *sched_task_name(char *buf, size_t n, const struct sched_task *task)
{
    snprintf(buf, n, "%u%s%u", task->stage, sched_op_name(task->op), task->mb);
    return buf;
}

struct sched_spot sched_spot(const struct sched *sched, size_t rank, size_t at, bool brief)
{
    struct sched_spot spot = {""};
    const struct sched_list *list = &sched->rank[rank];
    const bool is_text = list->column != NULL;
    int used = brief ? 0
                     : snprintf(spot.text, sizeof spot.text, "%s %zu%s", is_text ? "line" : "rank",
                                rank + is_text, at ? ", " : "");
    if (at)
        snprintf(spot.text + used, sizeof spot.text - (size_t)used, "%s %zu", is_text ? "column" : "position",
                 is_text && at <= list->n ? list->column[at - 1] : at);
    return spot;
}

uint32_t sched_place(enum sched_placement placement, size_t ranks, uint32_t stage)
{
    uint32_t p = (uint32_t)ranks, at = stage % p;
    return placement == PLACE_V && (stage / p) % 2 ? p - 1 - at : at;
}

struct sched *sched_new(size_t ranks, size_t stages, size_t microbatches, size_t tasks)
{
    struct sched *sched = calloc(1, sizeof *sched);
    if (!sched)
        return NULL;
    sched->ranks = ranks;
    sched->stages = stages;
    sched->microbatches = microbatches;
    sched->rank_of_stage = calloc(stages, sizeof *sched->rank_of_stage);
    sched->rank = calloc(ranks, sizeof *sched->rank);
    if (!sched->rank_of_stage || !sched->rank)
        goto fail;
    for (size_t r = 0; r < ranks; r++) {
        sched->rank[r].tasks = calloc(tasks, sizeof *sched->rank[r].tasks);
        if (!sched->rank[r].tasks)
            goto fail;
    }
    return sched;
fail:
    sched_free(sched);
    return NULL;
}

void sched_free(struct sched *sched)
{
    if (!sched)
        return;
    for (size_t r = 0; sched->rank && r < sched->ranks; r++) {
        free(sched->rank[r].tasks);
        free(sched->rank[r].column);
    }
    free(sched->rank);
    free(sched->rank_of_stage);
    free(sched);
}
