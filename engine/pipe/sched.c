/* SPDX-License-Identifier: MIT
 *
 * Makes the built-in schedules. Owns the lists it returns until sched_free. Pure: called by the planner and
 * by whoever shows a plan, from any thread. */
#include "pipe/sched.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The built-in orders are one: some forwards to fill the pipeline, then a forward and a backward in turn,
 * then the backwards that are left. They differ in how many forwards come first. */
static size_t warmup_naive(size_t ranks, size_t rank, size_t microbatches)
{
    (void)ranks;
    (void)rank;
    (void)microbatches;
    return 0;
}

static size_t warmup_gpipe(size_t ranks, size_t rank, size_t microbatches)
{
    (void)ranks;
    (void)rank;
    return microbatches;
}

/* One for every rank that follows: the first gradient is back just when the last of them has been sent off.
 */
static size_t warmup_1f1b(size_t ranks, size_t rank, size_t microbatches)
{
    size_t behind = ranks - 1 - rank;
    return behind < microbatches ? behind : microbatches;
}

static const char *const names[] = {"naive", "gpipe", "1f1b", NULL};
static size_t (*const warmups[])(size_t, size_t, size_t) = {warmup_naive, warmup_gpipe, warmup_1f1b};

const char *const *sched_names(void)
{
    return names;
}

const char *sched_op_name(enum sched_op op)
{
    static const char *const text[OP_COUNT] = {[OP_F] = "F", [OP_I] = "I", [OP_W] = "W", [OP_B] = "B"};
    return (unsigned)op < OP_COUNT ? text[op] : "?";
}

char *sched_task_name(char *buf, size_t n, const struct sched_task *task)
{
    snprintf(buf, n, "%u%s%u", task->stage, sched_op_name(task->op), task->mb);
    return buf;
}

static void push(struct sched_list *list, enum sched_op op, uint32_t stage, size_t mb)
{
    list->tasks[list->n++] = (struct sched_task){op, stage, (uint32_t)mb};
}

static void fill(struct sched_list *list, uint32_t stage, size_t microbatches, size_t warmup)
{
    size_t forward = 0;
    while (forward < warmup)
        push(list, OP_F, stage, forward++);
    for (size_t backward = 0; backward < microbatches; backward++) {
        if (forward < microbatches)
            push(list, OP_F, stage, forward++);
        push(list, OP_B, stage, backward);
    }
}

/* One stage per rank, room for 2·microbatches tasks on each, none in it yet. */
static struct sched *sched_new(size_t ranks, size_t microbatches)
{
    struct sched *sched = calloc(1, sizeof *sched);
    if (!sched)
        return NULL;
    sched->ranks = sched->stages = ranks;
    sched->microbatches = microbatches;
    sched->rank_of_stage = calloc(ranks, sizeof *sched->rank_of_stage);
    sched->rank = calloc(ranks, sizeof *sched->rank);
    if (!sched->rank_of_stage || !sched->rank)
        goto fail;
    for (size_t r = 0; r < ranks; r++) {
        sched->rank_of_stage[r] = (uint32_t)r;
        sched->rank[r].tasks = calloc(2 * microbatches, sizeof *sched->rank[r].tasks);
        if (!sched->rank[r].tasks)
            goto fail;
    }
    return sched;
fail:
    sched_free(sched);
    return NULL;
}

static int find_name(size_t *ret_index, const char *name, struct err *err)
{
    char known[128] = "";
    size_t used = 0;
    for (size_t i = 0; names[i]; i++) {
        if (name && strcmp(name, names[i]) == 0) {
            *ret_index = i;
            return 0;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
    }
    return err_set(err, -EINVAL, "there is no schedule \"%s\": choose one of %s", name ? name : "", known);
}

int sched_make(struct sched **ret, const char *name, size_t ranks, size_t microbatches, struct err *err)
{
    size_t which = 0;
    int rc = find_name(&which, name, err);
    if (rc < 0)
        return rc;
    if (ranks < 1 || ranks > SCHED_MAX_RANKS)
        return err_set(err, -EINVAL, "a schedule needs 1 to %d ranks, not %zu", SCHED_MAX_RANKS, ranks);
    if (microbatches < 1 || microbatches > SCHED_MAX_CELLS / ranks)
        return err_set(err, -EINVAL, "a step on %zu ranks takes 1 to %zu microbatches, not %zu", ranks,
                       SCHED_MAX_CELLS / ranks, microbatches);
    struct sched *sched = sched_new(ranks, microbatches);
    if (!sched)
        return err_set(err, -ENOMEM, "no memory for a schedule of %zu ranks and %zu microbatches", ranks,
                       microbatches);
    for (size_t r = 0; r < ranks; r++)
        fill(&sched->rank[r], (uint32_t)r, microbatches, warmups[which](ranks, r, microbatches));
    *ret = sched;
    return 0;
}

void sched_free(struct sched *sched)
{
    if (!sched)
        return;
    for (size_t r = 0; sched->rank && r < sched->ranks; r++)
        free(sched->rank[r].tasks);
    free(sched->rank);
    free(sched->rank_of_stage);
    free(sched);
}
