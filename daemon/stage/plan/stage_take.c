/* SPDX-License-Identifier: MIT
 *
 * Planning, the part about whose nodes they are: a job may take fewer than the ring has, because
 * its schedule or --parallel say so, or because a search found that faster. Called by head_plan, in
 * the stage process of rank 0. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_alike.h"
#include "daemon/stage/plan/stage_answer.h"
#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_schedule.h"
#include "daemon/stage/plan/stage_search.h"
#include "daemon/stage/plan/stage_shared.h"
#include "daemon/stage/plan/stage_unlike.h"
#include "daemon/stage/stage_nodes.h"
#include "engine/pipe/parallel.h"
#include "engine/pipe/sched_text.h"

/* Ranks of a schedule of the user's; 0 of all others, and where it cannot be read, which is said
 * later. */
static size_t ranks_of_order(struct head *h)
{
    struct job_plan *p = &h->plan;
    struct sched *sched = NULL;
    struct err quiet;
    if (!p->training || p->nmore || sched_info(p->schedule) || !strcmp(p->schedule, "auto") ||
        stage_schedule_read(h, &quiet) || sched_read(&sched, p->order, &quiet))
        return 0;
    const size_t ranks = sched->ranks;
    sched_free(sched);
    return ranks;
}

/* Why there are no more of them. */
static void say_ranks(char *text, size_t size, const struct head *h, size_t ranks)
{
    if (h->spec.parallel)
        snprintf(text, size, "--parallel %s takes %zu node%s", h->spec.parallel, ranks,
                 ranks == 1 ? "" : "s");
    else
        snprintf(text, size, "the schedule has %zu line%s", ranks, ranks == 1 ? "" : "s");
}

/* Reports which nodes it is, and gives the job no others. */
static void take_nodes(struct head *h, const json_t *all, uint32_t mask, size_t ranks)
{
    char in[1100], out[1100], why[80];
    const uint32_t every = (1u << json_array_size(all)) - 1;
    stage_nodes_text(in, sizeof in, all, mask);
    stage_nodes_text(out, sizeof out, all, every & ~mask);
    say_ranks(why, sizeof why, h, ranks);
    if (*out)
        stage_say(h->events, "%s: %s take%s part, and %s only relay%s data", why, in, ranks == 1 ? "s" : "",
                  out, json_array_size(all) - ranks == 1 ? "s" : "");
    json_decref(h->planning.nodes);
    h->planning.nodes = stage_nodes_take(all, mask);
    h->plan.ranks = ranks;
    h->planning.chosen = mask;
}

/* What a try on some nodes may change, as it was before: the next try finds it again. */
struct before_try {
    char schedule[sizeof((struct job_plan *)NULL)->schedule];
    size_t chunks;
    bool copies;
};

static struct before_try before_tries(const struct head *h)
{
    struct before_try before = {.chunks = h->spec.chunks, .copies = h->plan.copies};
    memcpy(before.schedule, h->plan.schedule, sizeof before.schedule);
    return before;
}

static void begin_try(struct head *h, const struct before_try *before)
{
    memcpy(h->plan.schedule, before->schedule, sizeof before->schedule);
    h->spec.chunks = before->chunks;
    h->plan.copies = before->copies;
    h->planning.is_mirrored = false;
    if (h->spec.any_parallel)
        h->plan.nothers = h->plan.slices = 0;
}

/* On the best nodes that have the memory: those whose memory does not do are left for the next
 * best. */
static int split_on_some(struct head *h, size_t ranks, struct err *err)
{
    enum { TRIES = 32 };
    uint32_t masks[TRIES];
    const struct before_try before = before_tries(h);
    json_t *all = json_incref(h->planning.nodes);
    const size_t copies = (h->plan.slices ? h->plan.slices : 1) * job_plan_replicas(&h->plan),
                 n = stage_nodes_choose(masks, TRIES, all, ranks, h->spec.split_nodes,
                                        alike_left_out(h, copies));
    struct err first = {""}, why;
    int e = n ? -ENOSPC
              : err_set(&first, -EINVAL,
                        "the plan is for %zu nodes, but not all of them are in the ring now: plan again",
                        json_array_size(h->spec.split_nodes));
    e = n ? e : alike_explain(h, copies, e, &first);
    for (size_t i = 0; i < n && e == -ENOSPC; i++) {
        json_decref(h->planning.nodes);
        h->planning.nodes = json_incref(all);
        begin_try(h, &before);
        take_nodes(h, all, masks[i], ranks);
        e = head_split_on_nodes(h, &why);
        if (e && (i == 0 || e != -ENOSPC))
            first = why;
    }
    json_decref(all);
    if (e)
        *err = first;
    return e;
}

/* One of what was found: replicas, nodes, order and split. */
static int take_found(struct head *h, struct layouts *layouts, size_t i, const json_t *all, struct err *err)
{
    const struct parallel_found *found = layouts_at(layouts, i);
    h->plan.replicas = found->replicas > 1 ? found->replicas : 0;
    h->plan.slices = found->slices > 1 ? found->slices : 0;
    take_nodes(h, all, found->mask, (size_t)__builtin_popcount(found->mask));
    int e = stage_shared_note(h, err);
    e = e ? e : layouts_take(layouts, i, h, err);
    return e ? e : head_split_on_nodes(h, err);
}

/* Where the best then takes more memory than by the planner's sums, or cannot be, the next best. Of
 * none that can, why not the best. */
static int split_as_found(struct head *h, struct err *err)
{
    const struct before_try before = before_tries(h);
    struct layouts *layouts = NULL;
    struct err why;
    json_t *all = json_incref(h->planning.nodes);
    int first = replicas_share_out(h, err), e;
    first = first ? first : layouts_find(&layouts, h, err);
    e = first;
    for (size_t i = 0; layouts && i < layouts_count(layouts) && (!i || plan_cannot_be(e)); i++) {
        begin_try(h, &before);
        e = take_found(h, layouts, i, all, &why);
        if (e && (!i || !plan_cannot_be(e))) {
            first = e;
            *err = why;
        }
    }
    layouts_free(layouts);
    json_decref(all);
    return e ? first : 0;
}

/* The plan with which all of the answer is there first. */
static int split_for_answer(struct head *h, struct err *err)
{
    struct answer_layout list[ANSWER_MOST_LAYOUTS];
    json_t *all = json_incref(h->planning.nodes);
    h->planning.wants_speed = true; /* of the plan that is taken, too: a job says how far off that was */
    size_t n = answer_list(list, h, all);
    int e = answer_try(list, &n, h, all, err);
    json_t *shown = answer_show(list, e ? 0 : n, all);
    if (!e) {
        answer_take(h, all, &list[0]);
        if (h->plan.ranks < json_array_size(all))
            take_nodes(h, all, list[0].mask, h->plan.ranks);
        e = stage_shared_note(h, err);
    }
    e = e ? e : head_split_on_nodes(h, err);
    h->planning.wants_speed = false;
    if (h->planning.speed)
        json_object_set(h->planning.speed, "choices", shown);
    json_decref(shown);
    json_decref(all);
    return e;
}

int head_split(struct head *h, struct err *err)
{
    size_t ranks = h->plan.ranks;
    const bool is_searched = h->spec.any_parallel, is_answer = is_searched && !h->plan.training;
    int e = is_searched                           ? 0
            : *h->spec.unlike                     ? unlike_of_job(h, &ranks, err)
            : h->plan.training && !h->spec.slices ? replicas_of_job(h, ranks_of_order(h), &ranks, err)
                                                  : slices_of_job(h, ranks_of_order(h), &ranks, err);
    if (!e)
        e = stage_shared_note(h, err);
    if (e)
        return e;
    e = is_answer               ? split_for_answer(h, err)
        : is_searched           ? split_as_found(h, err)
        : ranks < h->plan.ranks ? split_on_some(h, ranks, err)
                                : head_split_on_nodes(h, err);
    if (!e)
        alike_note(h);
    return e;
}
