/* SPDX-License-Identifier: MIT
 *
 * Planning, the part about whose nodes they are: a job may take fewer than the ring has, because
 * its schedule or --parallel say so, or because a search found that faster. Called by head_plan, in
 * the stage process of rank 0. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_alike.h"
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

/* Replicas, nodes, order and split as they were found; where the plan then takes more memory than
 * by the planner's sums, as the next best. */
static int split_as_found(struct head *h, struct err *err)
{
    const struct before_try before = before_tries(h);
    struct layouts *layouts = NULL;
    json_t *all = json_incref(h->planning.nodes);
    struct err first = {""}, why;
    int e = replicas_share_out(h, &first);
    e = e ? e : layouts_find(&layouts, h, &first);
    for (size_t i = 0; layouts && i < layouts_count(layouts) && (!i || e == -ENOSPC); i++) {
        const struct parallel_found *found = layouts_at(layouts, i);
        begin_try(h, &before);
        h->plan.replicas = found->replicas > 1 ? found->replicas : 0;
        h->plan.slices = found->slices > 1 ? found->slices : 0;
        take_nodes(h, all, found->mask, (size_t)__builtin_popcount(found->mask));
        e = stage_shared_note(h, &why);
        e = e ? e : layouts_take(layouts, i, h, &why);
        e = e ? e : head_split_on_nodes(h, &why);
        if (e && (i == 0 || e != -ENOSPC))
            first = why;
    }
    layouts_free(layouts);
    json_decref(all);
    if (e)
        *err = first;
    return e;
}

/* --- --parallel auto of a generation ---------------------------------------------------------- */

/* Nodes of the ring as stages, each shared by so many of them, and what the answer then takes. */
struct answer_layout {
    uint32_t mask;
    size_t slices, places;
    double prompt, token, seconds; /* seconds; INFINITY: it cannot be */
};
enum {
    MOST_ANSWER_LAYOUTS = 64,
    MOST_SETS = 4,  /* of so many nodes each: the best ones */
    MOST_SHOWN = 3, /* layouts */
};

static size_t list_answers(struct answer_layout *ret, const struct head *h, const json_t *all)
{
    const size_t nodes = json_array_size(all);
    size_t n = 0;
    struct err quiet;
    for (size_t slices = 1; slices <= SLICE_MOST; slices *= 2)
        for (size_t places = 1; slices * places <= nodes && !slice_check(&h->config, slices, false, &quiet);
             places++) {
            uint32_t masks[MOST_SETS];
            const size_t sets = stage_nodes_choose(masks, MOST_SETS, all, slices * places, NULL, 0);
            for (size_t i = 0; i < sets && n < MOST_ANSWER_LAYOUTS; i++)
                ret[n++] = (struct answer_layout){masks[i], slices, places, 0, 0, INFINITY};
        }
    return n;
}

static void take_answer(struct head *h, json_t *all, const struct answer_layout *l)
{
    json_decref(h->planning.nodes);
    h->planning.nodes = stage_nodes_take(all, l->mask);
    h->plan.ranks = l->slices * l->places;
    h->plan.slices = l->slices > 1 ? l->slices : 0;
    h->planning.is_mirrored = false;
}

/* The plan on those nodes, and what it says of its speed. */
static int try_answer(struct answer_layout *l, struct head *h, json_t *all, struct err *err)
{
    take_answer(h, all, l);
    int e = stage_shared_note(h, err);
    e = e ? e : head_split_on_nodes(h, err);
    const json_t *speed = h->planning.speed;
    if (e || !speed)
        return e;
    l->prompt = json_number_value(json_object_get(speed, "prompt_seconds"));
    l->token = json_number_value(json_object_get(speed, "token_seconds"));
    l->seconds = l->prompt + (double)h->spec.max_tokens * l->token;
    return 0;
}

/* Where nothing could be timed, the fewest nodes; of those that take as long, always the same. */
static int by_seconds(const void *a, const void *b)
{
    const struct answer_layout *x = a, *y = b;
    const int nodes = __builtin_popcount(x->mask) - __builtin_popcount(y->mask);
    return x->seconds > y->seconds   ? 1
           : x->seconds < y->seconds ? -1
           : nodes                   ? nodes
           : x->slices != y->slices  ? (x->slices > y->slices) - (x->slices < y->slices)
                                     : (x->mask > y->mask) - (x->mask < y->mask);
}

/* The best of each shape: a list for the plan, the fastest first. */
static json_t *show_answers(const struct answer_layout *l, size_t n, const json_t *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n && json_array_size(list) < MOST_SHOWN && isfinite(l[i].seconds); i++) {
        char parallel[40];
        bool is_new = true;
        for (size_t k = 0; k < i; k++)
            is_new = is_new && (l[k].slices != l[i].slices || l[k].places != l[i].places);
        if (!is_new)
            continue;
        snprintf(parallel, sizeof parallel, "tp=%zu,pp=%zu", l[i].slices, l[i].places);
        json_t *names = json_array(), *nodes = stage_nodes_take(all, l[i].mask);
        for (size_t r = 0; r < json_array_size(nodes); r++)
            json_array_append(names, json_object_get(json_array_get(nodes, r), "name"));
        json_decref(nodes);
        json_array_append_new(list, json_pack("{s:s s:o s:f s:f s:f}", "parallel", parallel, "nodes", names,
                                              "prompt_seconds", l[i].prompt, "token_seconds", l[i].token,
                                              "seconds", l[i].seconds));
    }
    return list;
}

/* Of those that can be, the best first; returns how many. None: err says why not the first. */
static size_t try_answers(struct answer_layout *list, size_t n, struct head *h, json_t *all, struct err *err)
{
    size_t kept = 0;
    struct err other;
    for (size_t i = 0; i < n; i++)
        if (!try_answer(&list[i], h, all, i ? &other : err))
            list[kept++] = list[i];
    qsort(list, kept, sizeof *list, by_seconds);
    return kept;
}

/* The plan with which all of the answer is there first. */
static int split_for_answer(struct head *h, struct err *err)
{
    struct answer_layout list[MOST_ANSWER_LAYOUTS];
    json_t *all = json_incref(h->planning.nodes);
    h->planning.wants_speed = true; /* of the plan that is taken, too: a job says how far off that was */
    const size_t listed = list_answers(list, h, all), n = try_answers(list, listed, h, all, err);
    json_t *shown = show_answers(list, n, all);
    int e = n ? 0 : -ENOSPC;
    if (n) {
        take_answer(h, all, &list[0]);
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
