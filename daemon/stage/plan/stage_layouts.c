/* SPDX-License-Identifier: MIT
 *
 * Planning, the part of --parallel auto: which nodes train as how many replicas of which stages,
 * and how many share each. Called by head_split, in the stage process of rank 0. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_alike.h"
#include "daemon/stage/plan/stage_search.h"
#include "daemon/stage/plan/stage_search_impl.h"
#include "daemon/stage/plan/stage_sharing.h"

struct layouts {
    struct search s;
    struct sharing_table *sharing; /* owned */
    struct parallel_found found[PARALLEL_MOST_FOUND];
    size_t n;
};

static struct parallel_request request_of(const struct layouts *l)
{
    struct parallel_request req = search_request(&l->s);
    req.sharing = &l->sharing->ask;
    req.apart = alike_left_out(l->s.h, PLAN_MAX_REPLICAS);
    return req;
}

/* What a slice costs is timed when it could win: so the best is never one that was not timed. */
static int find(struct layouts *l, bool mirror, struct err *err)
{
    struct parallel_request req = request_of(l);
    req.mirror = mirror;
    for (;;) {
        int e = parallel_search(l->found, &l->n, &req, err);
        const size_t slices = e ? 1 : l->found[0].slices;
        if (e || slices < 2 || l->sharing->of[slices].is_timed)
            return e;
        sharing_time(l->sharing, slices);
    }
}

int layouts_find(struct layouts **ret, struct head *h, struct err *err)
{
    struct layouts *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "out of memory");
    int e = search_init(&l->s, h, !strcmp(h->spec.schedule, "auto"), err);
    l->sharing = e ? NULL : sharing_new(&l->s);
    if (!e && !l->sharing)
        e = err_set(err, -ENOMEM, "out of memory");
    e = e ? e : find(l, search_may_mirror(h), err);
    if (e) {
        layouts_free(l);
        return err_prefix(err, e, "--parallel auto");
    }
    cost_table_say(l->s.timed);
    *ret = l;
    return 0;
}

void layouts_free(struct layouts *l)
{
    if (!l)
        return;
    sharing_free(l->sharing);
    search_done(&l->s);
    free(l);
}

size_t layouts_count(const struct layouts *l)
{
    return l->n;
}

const struct parallel_found *layouts_at(const struct layouts *l, size_t i)
{
    return &l->found[i];
}

/* Replicas of as many nodes each, or stages that nodes share. */
static int take_layout(struct layouts *l, const struct parallel_found *f, struct head *h, struct err *err)
{
    const struct parallel_request req = request_of(l);
    struct search *s = &l->s;
    struct planner_found plan = f->plan;
    parallel_question_done(&s->question);
    s->question = (struct parallel_question){0};
    if (!parallel_layout_make(&s->layout, &req, f->mask, f->replicas, f->slices, f->mirrored))
        return err_set(err, -EINVAL, "too few groups of microbatches");
    for (plan.cut = 0; s->layout.cut[plan.cut] != f->plan.cut;)
        plan.cut++;
    memcpy(s->layout.share[plan.cut], f->share, sizeof f->share);
    int e = parallel_ask(&s->question, &s->layout, &req, err);
    if (!e)
        search_take(h, s, &plan);
    return e;
}

int layouts_take(struct layouts *l, size_t i, struct head *h, struct err *err)
{
    const struct parallel_found *f = &l->found[i];
    struct search *s = &l->s;
    if (f->is_unlike) {
        search_take_unlike(h, s, &f->unlike);
    } else {
        const int e = take_layout(l, f, h, err);
        if (e)
            return e;
    }
    bool timed[SLICE_MOST + 1] = {true, true};
    for (size_t n = 2; n <= SLICE_MOST; n++)
        timed[n] = l->sharing->of[n].is_timed;
    json_object_set_new(h->planning.forecast, "choices", forecast_choices(s, f, l->found, l->n, timed));
    if (f->mirrored)
        head_mirror(h);
    h->planning.has_layout = true;
    return 0;
}
