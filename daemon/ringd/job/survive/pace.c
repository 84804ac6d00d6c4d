/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/pace.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

enum { SPAN_US = 1000000 };

struct made {
    json_int_t microbatches, computed_us, us;
};

struct rank_pace {
    bool has_begun;
    struct made last;
    size_t spans;                                   /* so far; kept are the latest */
    double computes[PACE_SPANS], takes[PACE_SPANS]; /* seconds a microbatch */
};

struct pace {
    size_t ranks;
    double *unit_cost; /* owned */
    double speed[JOB_MAX_RANKS];
    struct rank_pace rank[JOB_MAX_RANKS];
};

static bool read_numbers(double *ret, size_t n, const json_t *list, bool may_be_zero)
{
    bool is_good = json_array_size(list) == n;
    for (size_t i = 0; i < n && is_good; i++) {
        const json_t *v = json_array_get(list, i);
        ret[i] = json_number_value(v);
        is_good = json_is_number(v) && isfinite(ret[i]) && (ret[i] > 0 || (may_be_zero && ret[i] == 0));
    }
    return is_good;
}

int pace_new(struct pace **ret, const json_t *planned, const struct job_plan *plan, struct err *err)
{
    const size_t units = plan->first[plan->stages] + 2;
    struct pace *p = xcalloc(1, sizeof *p);
    p->ranks = plan->ranks;
    p->unit_cost = xcalloc(units, sizeof *p->unit_cost);
    if (read_numbers(p->unit_cost, units, json_object_get(planned, "units"), true) &&
        read_numbers(p->speed, p->ranks, json_object_get(planned, "speeds"), false)) {
        *ret = p;
        return 0;
    }
    pace_free(p);
    return err_set(err, -EBADMSG, "the plan names no cost of its %zu units, or no speed of its %zu ranks",
                   units, plan->ranks);
}

void pace_free(struct pace *p)
{
    if (!p)
        return;
    free(p->unit_cost);
    free(p);
}

const double *pace_unit_cost(const struct pace *p)
{
    return p->unit_cost;
}

const double *pace_speed(const struct pace *p)
{
    return p->speed;
}

/* --- what is said ----------------------------------------------------------------------------- */

static bool read_made(struct made *ret, const json_t *json)
{
    json_int_t v[3];
    for (size_t i = 0; i < 3; i++) {
        const json_t *number = json_array_get(json, i);
        v[i] = json_integer_value(number);
        if (!json_is_integer(number) || v[i] < 0)
            return false;
    }
    *ret = (struct made){v[0], v[1], v[2]};
    return json_array_size(json) == 3 && v[1] <= v[2];
}

int pace_hear(struct pace *p, size_t rank, const json_t *made)
{
    struct made now;
    if (rank >= p->ranks || !read_made(&now, made))
        return -EBADMSG;
    struct rank_pace *r = &p->rank[rank];
    const struct made past = {now.microbatches - r->last.microbatches, now.computed_us - r->last.computed_us,
                              now.us - r->last.us};
    if (past.microbatches < 0 || past.computed_us < 0 || past.us < 0)
        return -EBADMSG;
    if (r->has_begun && (past.us < SPAN_US || !past.microbatches))
        return 0;
    if (r->has_begun) { /* the first word says nothing of how long it took: the model was cold */
        r->computes[r->spans % PACE_SPANS] = (double)past.computed_us / 1e6 / (double)past.microbatches;
        r->takes[r->spans++ % PACE_SPANS] = (double)past.us / 1e6 / (double)past.microbatches;
    }
    r->has_begun = true;
    r->last = now;
    return 0;
}

/* --- what follows ----------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double of[PACE_SPANS])
{
    double sorted[PACE_SPANS];
    memcpy(sorted, of, sizeof sorted);
    qsort(sorted, PACE_SPANS, sizeof *sorted, by_size);
    return sorted[PACE_SPANS / 2];
}

bool pace_read(const struct pace *p, double *ret_computes, double *ret_takes)
{
    for (size_t r = 0; r < p->ranks; r++) {
        if (p->rank[r].spans < PACE_SPANS)
            return false;
        ret_computes[r] = median(p->rank[r].computes);
    }
    *ret_takes = median(p->rank[0].takes);
    return true;
}
