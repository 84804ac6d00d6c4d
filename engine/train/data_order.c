/* SPDX-License-Identifier: MIT
 *
 * Owns the order of packs. Called for every microbatch by the stage that feeds it; one thread per
 * order. Only the permutation of the epoch asked for last is kept: another is drawn anew from its
 * own stream of random numbers, so the answer does not depend on what was asked before. */
#include "train/data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/rng.h"

enum { WINDOW = 64 }; /* steps within which packs of like length are sought */

struct data_order {
    struct data_order_request req;
    size_t n;
    uint32_t *perm;  /* owned; NULL = file order */
    uint32_t *other; /* owned, with a group: for sorting */
    uint64_t epoch;  /* that perm belongs to */
};

/* The packs of a window by length, by merging runs; equals stay in their order. */
static void sort_window(const struct data_order *o, uint32_t *at, size_t n)
{
    uint32_t *from = at, *to = o->other;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * run) {
            size_t a = begin, a_end = begin + run < n ? begin + run : n;
            size_t b = a_end, b_end = begin + 2 * run < n ? begin + 2 * run : n;
            for (size_t k = begin; k < b_end; k++) {
                bool take_b = a == a_end || (b < b_end && data_packs_length(o->req.packs, from[b]) <
                                                              data_packs_length(o->req.packs, from[a]));
                to[k] = from[take_b ? b++ : a++];
            }
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != at)
        memcpy(at, from, n * sizeof *at);
}

/* Steps that lie wholly within the epoch get packs of like length; which of them comes first is
 * drawn. */
static void group_lengths(struct data_order *o, struct rng *rng, uint64_t epoch)
{
    const size_t group = o->req.group;
    const size_t lead = (size_t)((group - epoch * o->n % group) % group);
    const size_t steps = lead < o->n ? (o->n - lead) / group : 0;
    uint32_t *first = o->perm + lead;
    if (!steps)
        return;
    for (size_t at = 0; at < steps; at += WINDOW)
        sort_window(o, first + at * group, (steps - at < WINDOW ? steps - at : WINDOW) * group);
    for (size_t i = steps - 1; i > 0; i--) {
        const size_t j = (size_t)rng_below(rng, i + 1);
        const size_t bytes = group * sizeof *first;
        memcpy(o->other, first + i * group, bytes);
        memmove(first + i * group, first + j * group, bytes);
        memcpy(first + j * group, o->other, bytes);
    }
}

static void draw(struct data_order *o, uint64_t epoch)
{
    char purpose[32];
    snprintf(purpose, sizeof purpose, "shuffle/%" PRIu64, epoch);
    struct rng rng = rng_for(o->req.seed, purpose);
    rng_permutation(&rng, o->perm, o->n);
    if (o->other)
        group_lengths(o, &rng, epoch);
    o->epoch = epoch;
}

int data_order_new(struct data_order **ret, const struct data_order_request *req, struct err *err)
{
    const size_t n = data_packs_count(req->packs);
    struct data_order *o = calloc(1, sizeof *o);
    uint32_t *perm = o && req->shuffle ? malloc(n * sizeof *perm) : NULL;
    uint32_t *other = perm && req->group ? malloc(n * sizeof *other) : NULL;
    if (!o || (req->shuffle && !perm) || (perm && req->group && !other)) {
        free(other);
        free(perm);
        free(o);
        return err_set(err, -ENOMEM, "no memory for the order of %zu rows", n);
    }
    *o = (struct data_order){.req = *req, .n = n, .perm = perm, .other = other};
    if (perm)
        draw(o, 0);
    *ret = o;
    return 0;
}

size_t data_order_at(struct data_order *order, uint64_t k)
{
    uint64_t epoch = k / order->n;
    size_t i = (size_t)(k % order->n);
    if (!order->perm)
        return i;
    if (order->epoch != epoch)
        draw(order, epoch);
    return order->perm[i];
}

void data_order_free(struct data_order *order)
{
    if (!order)
        return;
    free(order->perm);
    free(order->other);
    free(order);
}
