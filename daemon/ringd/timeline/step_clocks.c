/* SPDX-License-Identifier: MIT
 *
 * Bounds along a path add up, so the tightest ones are the shortest paths between ranks; a clock
 * lies between its two. */
#include "daemon/ringd/timeline/step_clocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

/* Whole microseconds on both sides of a bound. */
#define GRAIN_US 2.0

static void clear(size_t n, double most[][RING_MAX_NODES])
{
    for (size_t q = 0; q < n; q++)
        for (size_t p = 0; p < n; p++)
            most[q][p] = q == p ? 0 : INFINITY;
}

void step_clocks_init(struct step_clocks *c, size_t n)
{
    c->n = n;
    clear(n, c->heard);
    clear(n, c->told);
}

static void narrow(double *most, double us)
{
    if (us < *most)
        *most = us;
}

void step_clocks_heard(struct step_clocks *c, size_t from, size_t by, double sent_us, double heard_us)
{
    narrow(&c->heard[from][by], heard_us - sent_us);
}

void step_clocks_told(struct step_clocks *c, size_t rank, size_t of, double ahead_us, double error_us)
{
    narrow(&c->told[rank][of], ahead_us + error_us);
    narrow(&c->told[of][rank], error_us - ahead_us);
}

static void close_paths(size_t n, double most[][RING_MAX_NODES])
{
    for (size_t via = 0; via < n; via++)
        for (size_t q = 0; q < n; q++)
            for (size_t p = 0; p < n; p++)
                narrow(&most[q][p], most[q][via] + most[via][p]);
}

/* After close_paths. A clock that is further ahead than it can be: what was told was of a clock
 * that has been set since, or of one that runs faster than any should. */
static bool is_possible(size_t n, double most[][RING_MAX_NODES])
{
    for (size_t q = 0; q < n; q++)
        if (most[q][q] < -GRAIN_US)
            return false;
    return true;
}

void step_clocks_solve(const struct step_clocks *c, struct step_clock *ret)
{
    struct step_clocks *both = xcalloc(1, sizeof *both);
    *both = *c;
    for (size_t q = 0; q < c->n; q++)
        for (size_t p = 0; p < c->n; p++)
            narrow(&both->heard[q][p], c->told[q][p]);
    close_paths(c->n, both->heard);
    if (!is_possible(c->n, both->heard)) {
        memcpy(both->heard, c->heard, sizeof both->heard);
        close_paths(c->n, both->heard);
    }
    for (size_t r = 0; r < c->n; r++) {
        const double ahead = both->heard[0][r], behind = both->heard[r][0];
        ret[r] = (struct step_clock){.known = !r || (isfinite(ahead) && isfinite(behind))};
        if (!r || !ret[r].known)
            continue;
        ret[r].offset = (ahead - behind) / 2;
        ret[r].error = fabs(ahead + behind) / 2;
    }
    free(both);
}
