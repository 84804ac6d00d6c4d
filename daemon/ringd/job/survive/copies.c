/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

/* A rank has few files of four parts each, in memory and on its disk, and of a part's units few
 * ranges: one for each of its stages. */
enum { SETS_MAX = 32, RANGES_MAX = 2 * SCHED_MAX_CHUNKS + 2 };

struct copy_set {
    uint32_t rank;
    uint64_t step;
    size_t n;
    struct {
        uint32_t first, end;
    } range[RANGES_MAX];
};

struct copies {
    struct copy_set *sets; /* owned */
    size_t n;
};

struct copies *copies_new(void)
{
    return xcalloc(1, sizeof(struct copies));
}

void copies_free(struct copies *c)
{
    if (!c)
        return;
    free(c->sets);
    free(c);
}

static void forget(struct copies *c, uint32_t rank)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->sets[i].rank != rank)
            c->sets[kept++] = c->sets[i];
    c->n = kept;
}

static bool read_set(struct copy_set *ret, uint32_t rank, const json_t *json)
{
    const json_t *units = json_object_get(json, "units"), *range;
    const json_int_t step = json_integer_value(json_object_get(json, "step"));
    size_t i;
    *ret = (struct copy_set){.rank = rank, .step = (uint64_t)step, .n = json_array_size(units)};
    if (step < 1 || ret->n > RANGES_MAX)
        return false;
    json_array_foreach (units, i, range) {
        const json_int_t first = json_integer_value(json_array_get(range, 0)),
                         end = json_integer_value(json_array_get(range, 1));
        if (first < 0 || end <= first || end > UINT32_MAX)
            return false;
        ret->range[i].first = (uint32_t)first;
        ret->range[i].end = (uint32_t)end;
    }
    return true;
}

int copies_hear(struct copies *c, uint32_t rank, const json_t *held, struct err *err)
{
    const size_t n = json_array_size(held);
    size_t i;
    json_t *set;
    forget(c, rank);
    if (n > SETS_MAX)
        return err_set(err, -EBADMSG, "rank %u says that it has %zu copies, and %d are the most", rank, n,
                       SETS_MAX);
    c->sets = xreallocarray(c->sets, c->n + n + 1, sizeof *c->sets);
    json_array_foreach (held, i, set)
        if (!read_set(&c->sets[c->n++], rank, set)) {
            forget(c, rank);
            return err_set(err, -EBADMSG, "rank %u says of its copy %zu what cannot be read", rank, i);
        }
    return 0;
}

/* --- choosing --------------------------------------------------------------------------------- */

static bool has_unit(const struct copy_set *set, size_t unit)
{
    for (size_t i = 0; i < set->n; i++)
        if (unit >= set->range[i].first && unit < set->range[i].end)
            return true;
    return false;
}

/* Who has the unit after that step: best its own rank, in the first replica; `ranks`: nobody. */
static uint32_t find(const struct copies *c, uint64_t step, size_t unit, uint32_t own, uint32_t ranks)
{
    uint32_t best = ranks;
    for (size_t i = 0; i < c->n; i++) {
        const struct copy_set *set = &c->sets[i];
        if (set->step != step || set->rank >= ranks || !has_unit(set, unit))
            continue;
        if (set->rank == own)
            return own;
        best = set->rank < best ? set->rank : best;
    }
    return best;
}

static json_t *holders(const struct copies *c, const struct job_plan *plan, uint64_t step)
{
    const uint32_t ranks = (uint32_t)plan->ranks;
    json_t *by = json_array();
    for (size_t u = 0; u < plan->first[plan->stages] + 2; u++) {
        const uint32_t rank = find(c, step, u, plan->place[job_plan_stage_of_unit(plan, u)], ranks);
        if (rank == ranks) {
            json_decref(by);
            return NULL;
        }
        json_array_append_new(by, json_integer(rank));
    }
    return by;
}

json_t *copies_choose(const struct copies *c, const struct job_plan *plan, uint64_t most)
{
    while (most) {
        uint64_t step = 0;
        for (size_t i = 0; i < c->n; i++)
            if (c->sets[i].step <= most && c->sets[i].step > step)
                step = c->sets[i].step;
        json_t *by = step ? holders(c, plan, step) : NULL;
        if (by)
            return json_pack("{s:I s:o}", "step", (json_int_t)step, "by", by);
        most = step ? step - 1 : 0;
    }
    return NULL;
}
