/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/serve_draft.h"

#include <stdbool.h>

/* Two tokens in a row say something, one says next to nothing; more than that is looked at to
 * choose among places. */
enum { ALIKE_LEAST = 2, ALIKE_MOST = 16 };

/* --- guessing --------------------------------------------------------------------------------- */

static size_t alike(const uint32_t *ids, size_t n, size_t end)
{
    size_t k = 0;
    while (k < ALIKE_MOST && k < end && ids[end - 1 - k] == ids[n - 1 - k])
        k++;
    return k;
}

size_t draft_find(const uint32_t *ids, size_t n, uint32_t *ret, size_t most)
{
    size_t best = ALIKE_LEAST - 1, at = 0, found = 0;
    for (size_t end = n ? n - 1 : 0; end >= ALIKE_LEAST && best < ALIKE_MOST; end--) {
        const size_t k = alike(ids, n, end);
        if (k > best) {
            best = k;
            at = end;
        }
    }
    for (; at && found < most; found++) /* a text that repeats itself goes on to do so */
        ret[found] = at + found < n ? ids[at + found] : ret[at + found - n];
    return found;
}

/* --- what it costs ---------------------------------------------------------------------------- */

void draft_cost_saw(struct draft_cost *c, size_t rows, uint64_t us)
{
    const double keep = 0.98, x = (double)rows, y = (double)us;
    c->weight = c->weight * keep + 1;
    c->rows = c->rows * keep + x;
    c->us = c->us * keep + y;
    c->rows_rows = c->rows_rows * keep + x * x;
    c->rows_us = c->rows_us * keep + x * y;
}

/* A row more, as a share of what no row would cost. Until several sizes were seen, and in the
 * least, a guess of what CPUs do that wait for their memory. */
static double slope_of(const struct draft_cost *c)
{
    const double least = 0.02, usual = 0.12, most = 4;
    const double spread = c->weight * c->rows_rows - c->rows * c->rows;
    if (c->weight < 4 || spread < c->weight * c->weight * 0.01)
        return usual;
    const double slope = (c->weight * c->rows_us - c->rows * c->us) / spread,
                 base = (c->us - slope * c->rows) / c->weight;
    if (!(slope > 0))
        return least;
    if (!(base > slope / most))
        return most;
    return slope / base > least ? slope / base : least;
}

/* --- how many --------------------------------------------------------------------------------- */

void draft_luck_saw(struct draft_luck *l, size_t guessed, size_t right)
{
    const double keep = 0.97;
    if (!guessed)
        return;
    l->tried = l->tried * keep + (double)(right < guessed ? right + 1 : guessed);
    l->right = l->right * keep + (double)right;
    l->rested = 0;
}

size_t draft_length(const struct draft_cost *c, struct draft_luck *l, size_t rows, size_t most)
{
    enum { REST = 64 };
    const double p = (l->right + 1) / (l->tried + 2), slope = slope_of(c), alone = 1 + slope * (double)rows;
    double tokens = 1, chance = 1, best = 1 / alone;
    size_t length = 0;
    for (size_t k = 1; k <= most; k++) {
        chance *= p;
        tokens += chance;
        const double rate = tokens / (alone + slope * (double)k);
        if (rate > best) {
            best = rate;
            length = k;
        }
    }
    if (!length && most && ++l->rested >= REST)
        length = 1;
    return length;
}
