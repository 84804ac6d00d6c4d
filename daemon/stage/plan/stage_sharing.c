/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_sharing.h"

#include <math.h>
#include <stdlib.h>

#include "daemon/stage/exchange/exchange.h"
#include "daemon/stage/plan/stage_alike.h"

/* --- what is gathered ------------------------------------------------------------------------- */

/* What is more than a chunk takes the CPUs as long as gradients do: threads pass it on to each
 * other. */
static double handled(const struct search *s, size_t node, double bytes)
{
    const double first = fmin(bytes, EXCHANGE_CHUNK);
    return first * s->passing[node] + (bytes - first) * s->handling[node];
}

/* Over the slowest cable between two of the nodes. Their CPUs seal a part while the cable carries
 * the one before; over a loopback device the one is the other. */
static double gather_seconds(const struct sharing_table *s, size_t slices, const size_t *node,
                             const struct slice_traffic *all)
{
    const size_t nodes = s->whole->nodes;
    double most = 0;
    for (size_t a = 0; a < slices && all->times > 0; a++)
        for (size_t b = 0; b < slices; b++) {
            const double bytes = all->bytes / all->times;
            struct gather_way way = s->way[node[a] * nodes + node[b]];
            way.byte = fmax(way.byte, handled(s->whole, node[a], bytes) / fmax(bytes, 1));
            most = b == a ? most : fmax(most, gather_way_seconds(&way, bytes));
        }
    return all->times * most;
}

/* parallel_sharing.gathering. A layer whose forward is done again gathers again. */
static struct sched_cost gathering(const void *owner, size_t slices, size_t cut, size_t unit,
                                   const size_t *node)
{
    const struct sharing_table *s = owner;
    const struct search *of = s->whole;
    const struct slice_trains *all = &s->of[slices].gathers[cut * of->units + unit];
    const double forward = gather_seconds(s, slices, node, &all->forward),
                 again = of->h->plan.by_layer && unit && unit + 1 < of->units ? forward : 0;
    struct sched_cost cost = {.f = forward, .r = forward};
    cost.u = gather_seconds(s, slices, node, &all->update);
    if (unit >= of->lowest) {
        cost.i = gather_seconds(s, slices, node, &all->input) + again;
        cost.w = gather_seconds(s, slices, node, &all->weights);
    }
    return cost;
}

static bool list_gathers(struct sharing_slices *to, const struct search *s, size_t slices)
{
    struct job_plan p = s->h->plan;
    p.slices = slices;
    to->gathers = calloc(s->cuts * s->units, sizeof *to->gathers);
    for (size_t c = 0; c < s->cuts && to->gathers; c++)
        for (size_t u = 0; u < s->units; u++)
            to->gathers[c * s->units + u] = slices_trains(&p, &s->h->config, u, s->tokens[c]);
    return to->gathers;
}

static struct sharing_table *begin(const struct search *whole)
{
    struct sharing_table *s = calloc(1, sizeof *s);
    const size_t n = whole->nodes;
    if (!s)
        return NULL;
    s->whole = whole;
    s->ask.gathering = gathering;
    s->ask.owner = s;
    s->ask.apart = alike_left_out_of_slices(whole->h);
    for (size_t from = 0; from < n; from++)
        for (size_t to = 0; to < n; to++)
            s->way[from * n + to] = cost_table_gather(whole->timed, from, to);
    return s;
}

/* --- what a slice costs ----------------------------------------------------------------------- */

void sharing_time(struct sharing_table *s, size_t slices)
{
    struct sharing_slices *of = &s->of[slices];
    struct err quiet;
    of->is_timed = true;
    if (of->search && search_time_slices(of->search, &quiet))
        s->ask.cut[slices] = NULL;
}

static bool add(struct sharing_table *s, size_t slices)
{
    struct sharing_slices *of = &s->of[slices];
    struct err quiet;
    of->search = calloc(1, sizeof *of->search);
    if (!of->search || !list_gathers(of, s->whole, slices))
        return false;
    if (search_part(of->search, s->whole, slices, &quiet))
        return true;
    s->ask.cut[slices] = of->search->cut;
    s->ask.grads[slices] = of->search->grads;
    return true;
}

struct sharing_table *sharing_new(const struct search *whole)
{
    struct sharing_table *s = begin(whole);
    const size_t most = s ? slices_most(whole->h) : 0;
    bool has_memory = s;
    for (size_t slices = 2; slices <= most && slices <= whole->nodes && has_memory; slices++)
        has_memory = add(s, slices);
    if (has_memory)
        return s;
    sharing_free(s);
    return NULL;
}

struct sharing_table *sharing_of_plan(const struct search *whole)
{
    const size_t slices = whole->h->plan.slices;
    struct sharing_table *s = begin(whole);
    if (!s || !slices)
        return s;
    if (!list_gathers(&s->of[slices], whole, slices)) {
        sharing_free(s);
        return NULL;
    }
    s->of[slices].is_timed = true;
    s->ask.cut[slices] = whole->cut;
    s->ask.grads[slices] = whole->grads;
    return s;
}

void sharing_free(struct sharing_table *s)
{
    for (size_t n = 0; s && n <= SLICE_MOST; n++) {
        if (s->of[n].search)
            search_done(s->of[n].search);
        free(s->of[n].search);
        free(s->of[n].gathers);
    }
    free(s);
}
