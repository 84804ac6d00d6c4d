/* SPDX-License-Identifier: MIT
 *
 * Rings of more nodes than can be searched exactly: from every node the nearest unvisited one, then
 * 2-opt and moves of short runs until nothing gets better, the best of all beginnings taken.
 * Bounded by counted sweeps, not by time: every node must stop at the same ring. A hop without a
 * cable is allowed at a price that outweighs everything else. Called by ring.c. */
#include "ring_impl.h"

#include <string.h>

enum { TOUR_MAX = RING_MAX_NODES + 1, MAX_SWEEPS = 64, MAX_RUN = 3 };
#define MISSING (UINT64_C(1) << 40)

struct tour {
    const struct ring_sorted *s; /* borrowed */
    size_t n;                    /* a chain is a ring through one more node, near to all: where it is cut */
    size_t at[TOUR_MAX];
};

static uint64_t hop(const struct ring_sorted *s, size_t a, size_t b)
{
    if (a == s->n || b == s->n)
        return 0;
    return s->near[a] >> b & 1 ? s->cost[a][b] : MISSING;
}

static uint64_t length(const struct tour *t)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < t->n; i++)
        sum += hop(t->s, t->at[i], t->at[(i + 1) % t->n]);
    return sum;
}

/* From `first` the cheapest next node; of equals the one with the fewest ways on: it would be hard
 * to reach later. */
static void build(struct tour *t, size_t first)
{
    uint32_t left = (uint32_t)(((uint64_t)1 << t->s->n) - 1) & ~(UINT32_C(1) << first);

    t->at[0] = first;
    for (size_t k = 1; k < t->s->n; k++) {
        uint64_t best = UINT64_MAX;

        for (size_t v = 0; v < t->s->n; v++) {
            uint64_t ways = (uint64_t)__builtin_popcount(t->s->near[v] & left);
            uint64_t price = hop(t->s, t->at[k - 1], v) * 64 + ways;

            if (left >> v & 1 && price < best) {
                best = price;
                t->at[k] = v;
            }
        }
        left &= ~(UINT32_C(1) << t->at[k]);
    }
    if (t->n > t->s->n)
        t->at[t->s->n] = t->s->n;
}

static void reverse(size_t *at, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        size_t x = at[i];

        at[i] = at[n - 1 - i];
        at[n - 1 - i] = x;
    }
}

/* Takes two hops out and puts the part between them in the other way round. */
static bool try_turns(struct tour *t)
{
    bool better = false;

    for (size_t i = 0; i + 2 < t->n; i++)
        for (size_t k = i + 2; k < t->n && !(i == 0 && k == t->n - 1); k++) {
            size_t a = t->at[i], b = t->at[i + 1], c = t->at[k], d = t->at[(k + 1) % t->n];

            if (hop(t->s, a, c) + hop(t->s, b, d) < hop(t->s, a, b) + hop(t->s, c, d)) {
                reverse(t->at + i + 1, k - i);
                better = true;
            }
        }
    return better;
}

/* Takes the first `run` nodes out and puts them, either way round, where that gains most. */
static bool try_move(struct tour *t, size_t run)
{
    const size_t rest = t->n - run, *left = t->at + run;
    size_t first = t->at[0], last = t->at[run - 1], place = 0;
    uint64_t gap = hop(t->s, left[rest - 1], left[0]);
    uint64_t out = hop(t->s, left[rest - 1], first) + hop(t->s, last, left[0]);
    struct tour moved = *t;
    int64_t gain = 0;
    bool turned = false;

    for (size_t i = 0; i + 1 < rest; i++) {
        uint64_t before = out + hop(t->s, left[i], left[i + 1]);
        uint64_t straight = gap + hop(t->s, left[i], first) + hop(t->s, last, left[i + 1]);
        uint64_t back = gap + hop(t->s, left[i], last) + hop(t->s, first, left[i + 1]);
        int64_t here = (int64_t)before - (int64_t)(back < straight ? back : straight);

        if (here > gain) {
            gain = here;
            place = i + 1;
            turned = back < straight;
        }
    }
    if (gain == 0)
        return false;
    memcpy(moved.at, left, place * sizeof *left);
    memcpy(moved.at + place, t->at, run * sizeof *left);
    memcpy(moved.at + place + run, left + place, (rest - place) * sizeof *left);
    if (turned)
        reverse(moved.at + place, run);
    *t = moved;
    return true;
}

static void turn(struct tour *t)
{
    size_t first = t->at[0];

    memmove(t->at, t->at + 1, (t->n - 1) * sizeof *t->at);
    t->at[t->n - 1] = first;
}

static bool try_moves(struct tour *t)
{
    bool better = false;

    for (size_t i = 0; i < t->n; i++) {
        for (size_t run = 1; run <= MAX_RUN; run++)
            better |= try_move(t, run);
        turn(t);
    }
    return better;
}

/* Begins where every ring does: at rank 0 (a chain: at its smaller end), the smaller neighbour
 * next. */
static void give(size_t *ranks, struct tour *t, bool closed)
{
    const size_t n = t->s->n;

    while (t->at[0] != (closed ? 0 : n))
        turn(t);
    if (t->at[1] > t->at[t->n - 1])
        reverse(t->at + 1, t->n - 1);
    memcpy(ranks, t->at + !closed, n * sizeof *ranks);
}

size_t ring_large_search(size_t *ranks, const struct ring_sorted *s, bool closed)
{
    struct tour best = {0};

    for (size_t first = 0; first < s->n; first++) {
        struct tour t = {.s = s, .n = s->n + !closed};

        build(&t, first);
        for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
            bool turned = try_turns(&t), moved = try_moves(&t);

            if (!turned && !moved)
                break;
        }
        if (first == 0 || length(&t) < length(&best))
            best = t;
    }
    give(ranks, &best, closed);
    return (size_t)(length(&best) / MISSING);
}
