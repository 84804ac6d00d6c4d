/* SPDX-License-Identifier: MIT
 *
 * Makes schedules: built-in ones by name, those of the user from their text, and those that do
 * forwards again. Pure: called by the planner and by whoever shows a plan, from any thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/plan_group.h"
#include "pipe/sched_impl.h"
#include "pipe/sched_text.h"

static const struct {
    struct sched_info info;
    sched_order_fn *order;
} schedules[] = {
    {{"naive", PLACE_SINGLE, 1, 1, 1, true}, order_naive},
    {{"gpipe", PLACE_SINGLE, 1, 1, 1, true}, order_gpipe},
    {{"1f1b", PLACE_SINGLE, 1, 1, 1, true}, order_1f1b},
    {{"eager-1f1b", PLACE_SINGLE, 1, 1, 1, true}, order_eager},
    {{"interleaved-1f1b", PLACE_LOOP, 1, SCHED_MAX_CHUNKS, 2, true}, order_interleaved},
    {{"looped-bfs", PLACE_LOOP, 1, SCHED_MAX_CHUNKS, 2, false}, order_looped},
    {{"zb-h1", PLACE_SINGLE, 1, 1, 1, true}, order_zb_h1},
    {{"zb-h2", PLACE_SINGLE, 1, 1, 1, true}, order_zb_h2},
    {{"zbv", PLACE_V, 2, 2, 2, true}, order_zbv},
    {{"v-1f1b", PLACE_V, 2, 2, 2, true}, order_v_1f1b},
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

const char *const *sched_names(void)
{
    static const char *const names[] = {"naive",      "gpipe", "1f1b",  "eager-1f1b", "interleaved-1f1b",
                                        "looped-bfs", "zb-h1", "zb-h2", "zbv",        "v-1f1b",
                                        NULL};
    _Static_assert(sizeof names / sizeof *names == SCHEDULES + 1, "every schedule has its name in the list");
    return names;
}

static size_t find(const char *name)
{
    size_t i = 0;
    while (i < SCHEDULES && (!name || strcmp(name, schedules[i].info.name)))
        i++;
    return i;
}

const struct sched_info *sched_info(const char *name)
{
    size_t i = find(name);
    return i < SCHEDULES ? &schedules[i].info : NULL;
}

static int refuse_name(const char *name, struct err *err)
{
    char known[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < SCHEDULES; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 schedules[i].info.name);
    return err_set(err, -EINVAL, "there is no schedule \"%s\": choose one of %s", name ? name : "", known);
}

static int check_chunks(const struct sched_info *info, size_t chunks, struct err *err)
{
    if (chunks >= info->min_chunks && chunks <= info->max_chunks)
        return 0;
    if (info->min_chunks == info->max_chunks)
        return err_set(err, -EINVAL,
                       "%s has %zu stage%s on each rank, not %zu; interleaved-1f1b and looped-bfs take "
                       "1 to %d",
                       info->name, info->chunks, info->chunks == 1 ? "" : "s", chunks, SCHED_MAX_CHUNKS);
    return err_set(err, -EINVAL, "%s has %zu to %zu stages on each rank, not %zu", info->name,
                   info->min_chunks, info->max_chunks, chunks);
}

static int check_size(size_t wanted, size_t has, const char *what, struct err *err)
{
    return !wanted || wanted == has
               ? 0
               : err_set(err, -EINVAL, "the schedule is written for %zu %s, but there are %zu", has, what,
                         wanted);
}

static int make_text(struct sched **ret, const struct sched_request *req, struct err *err)
{
    struct sched *sched = NULL;
    int rc = sched_read(&sched, req->text, err);
    if (rc == 0 && req->chunks)
        rc = err_set(err, -EINVAL, "a custom schedule fixes its stages: drop --chunks");
    if (rc == 0)
        rc = check_size(req->ranks, sched->ranks, "ranks", err);
    if (rc == 0)
        rc = check_size(req->microbatches, sched->microbatches, "microbatches", err);
    if (rc == 0)
        *ret = sched;
    else
        sched_free(sched);
    return rc;
}

/* Sums of gradients depend on the order in a group, so the bits of all schedules are the same.
 * Forwards stay: where backwards descend, all microbatches have gone forward through a stage. */
static void ascend_in_groups(struct sched *sched, const struct sched_groups *g)
{
    const size_t from = plan_group_first(g->first, g->m, g->groups),
                 own = plan_group_first(g->end, g->m, g->groups) - from;
    for (size_t r = 0; r < sched->ranks; r++)
        for (size_t k = 0; k < sched->rank[r].n; k++) {
            struct sched_task *t = &sched->rank[r].tasks[k];
            const size_t mb = from + t->mb % own, group = plan_group(mb, g->m, g->groups),
                         low = plan_group_first(group, g->m, g->groups),
                         high = plan_group_first(group + 1, g->m, g->groups);
            if (t->op != OP_F)
                t->mb = (uint32_t)(t->mb + low + high - 1 - 2 * mb);
        }
}

static int make_builtin(struct sched **ret, const struct sched_request *req, struct err *err)
{
    size_t which = find(req->name), ranks = req->ranks, m = req->microbatches;
    if (which == SCHEDULES)
        return refuse_name(req->name, err);
    const struct sched_info *info = &schedules[which].info;
    size_t chunks = req->chunks ? req->chunks : info->chunks;
    if (ranks < 1 || ranks > SCHED_MAX_RANKS)
        return err_set(err, -EINVAL, "a schedule needs 1 to %d ranks, not %zu", SCHED_MAX_RANKS, ranks);
    int rc = check_chunks(info, chunks, err);
    if (rc < 0)
        return rc;
    if (m < 1 || m > SCHED_MAX_CELLS / (ranks * chunks))
        return err_set(err, -EINVAL, "a step on %zu stages takes 1 to %zu microbatches, not %zu",
                       ranks * chunks, SCHED_MAX_CELLS / (ranks * chunks), m);
    struct sched *sched = sched_new(ranks, ranks * chunks, m, 3 * chunks * m);
    if (!sched)
        return err_set(err, -ENOMEM, "no memory for a schedule of %zu ranks and %zu microbatches", ranks, m);
    for (uint32_t s = 0; s < sched->stages; s++)
        sched->rank_of_stage[s] = sched_place(info->placement, ranks, s);
    for (uint32_t r = 0; r < ranks; r++)
        schedules[which].order(&sched->rank[r], sched, r);
    if (!info->in_order && req->groups.groups)
        ascend_in_groups(sched, &req->groups);
    *ret = sched;
    return 0;
}

int sched_make(struct sched **ret, const struct sched_request *req, struct err *err)
{
    return req->text ? make_text(ret, req, err) : make_builtin(ret, req, err);
}

static bool is_backward(const struct sched_task *t)
{
    return t->op == OP_I || t->op == OP_B;
}

static size_t most_tasks_again(const struct sched *plain)
{
    size_t most = 0;
    for (size_t r = 0; r < plain->ranks; r++) {
        size_t n = plain->rank[r].n;
        for (size_t k = 0; k < plain->rank[r].n; k++)
            n += is_backward(&plain->rank[r].tasks[k]);
        most = n > most ? n : most;
    }
    return most;
}

int sched_again(struct sched **ret, const struct sched *plain, struct err *err)
{
    struct sched *s = sched_new(plain->ranks, plain->stages, plain->microbatches, most_tasks_again(plain));
    uint32_t *last = calloc(plain->stages, sizeof *last);
    if (!s || !last) {
        sched_free(s);
        free(last);
        return err_set(err, -ENOMEM, "out of memory");
    }
    memcpy(s->rank_of_stage, plain->rank_of_stage, plain->stages * sizeof *s->rank_of_stage);
    memset(last, 0xff, plain->stages * sizeof *last);
    for (size_t r = 0; r < plain->ranks; r++) {
        struct sched_list *to = &s->rank[r];
        for (size_t k = 0; k < plain->rank[r].n; k++) {
            const struct sched_task *t = &plain->rank[r].tasks[k];
            if (is_backward(t) && last[t->stage] != t->mb)
                to->tasks[to->n++] = (struct sched_task){OP_R, t->stage, t->mb};
            last[t->stage] = t->op == OP_F ? t->mb : UINT32_MAX;
            to->tasks[to->n++] = *t;
        }
    }
    free(last);
    *ret = s;
    return 0;
}

static bool goes_up(enum sched_op op)
{
    return op == OP_F || op == OP_R;
}

/* All parts of a task's stage, in the order of its direction. */
static void add_parts(struct sched_list *to, const struct sched_task *t, size_t stages, const uint32_t *of)
{
    for (uint32_t i = 0; i < stages; i++) {
        const uint32_t stage = goes_up(t->op) ? i : (uint32_t)stages - 1 - i;
        if (of[stage] == t->stage)
            to->tasks[to->n++] = (struct sched_task){t->op, stage, t->mb};
    }
}

static size_t most_parts(size_t stages, const uint32_t *of)
{
    size_t most = 0, n = 0;
    for (size_t s = 0; s < stages; s++) {
        n = s && of[s] == of[s - 1] ? n + 1 : 1;
        most = n > most ? n : most;
    }
    return most;
}

int sched_refine(struct sched **ret, const struct sched *coarse, size_t stages, const uint32_t *of,
                 struct err *err)
{
    size_t most = 0;
    for (size_t r = 0; r < coarse->ranks; r++)
        most = coarse->rank[r].n > most ? coarse->rank[r].n : most;
    struct sched *s = sched_new(coarse->ranks, stages, coarse->microbatches, most * most_parts(stages, of));
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < stages; i++)
        s->rank_of_stage[i] = coarse->rank_of_stage[of[i]];
    for (size_t r = 0; r < coarse->ranks; r++)
        for (size_t k = 0; k < coarse->rank[r].n; k++)
            add_parts(&s->rank[r], &coarse->rank[r].tasks[k], stages, of);
    *ret = s;
    return 0;
}
