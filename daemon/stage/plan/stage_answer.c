/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_answer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/stage/plan/stage_shared.h"
#include "daemon/stage/stage_nodes.h"

enum { MOST_SHOWN = 3 /* layouts */ };

/* --- which are looked at ---------------------------------------------------------------------- */

/* The sets of so many nodes each, for all shapes that have as many. */
struct answer_sets {
    size_t n[JOB_MAX_RANKS + 1];
    uint32_t mask[JOB_MAX_RANKS + 1][ANSWER_MOST_SETS];
};

static void list_sets(struct answer_sets *s, const json_t *all)
{
    for (size_t ranks = 1; ranks <= JOB_MAX_RANKS && ranks <= json_array_size(all); ranks++)
        s->n[ranks] = stage_nodes_choose(s->mask[ranks], ANSWER_MOST_SETS, all, ranks, NULL, 0);
}

/* A limit that is met leaves out sets that are worse than others of as many nodes, and no shape:
 * 16 nodes can be in 31 shapes, and there is room for 64 layouts. */
size_t answer_list(struct answer_layout ret[ANSWER_MOST_LAYOUTS], const struct head *h, const json_t *all)
{
    struct answer_sets sets = {{0}, {{0}}};
    struct err quiet;
    size_t n = 0;
    list_sets(&sets, all);
    for (size_t i = 0; i < ANSWER_MOST_SETS; i++)
        for (size_t slices = 1; slices <= SLICE_MOST && !slice_check(&h->config, slices, false, &quiet);
             slices *= 2)
            for (size_t places = 1; slices * places <= JOB_MAX_RANKS; places++)
                if (i < sets.n[slices * places] && n < ANSWER_MOST_LAYOUTS)
                    ret[n++] =
                        (struct answer_layout){sets.mask[slices * places][i], slices, places, 0, 0, INFINITY};
    return n;
}

/* --- what they take --------------------------------------------------------------------------- */

void answer_take(struct head *h, json_t *all, const struct answer_layout *l)
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
    answer_take(h, all, l);
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

json_t *answer_show(const struct answer_layout *l, size_t n, const json_t *all)
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

int answer_try(struct answer_layout *list, size_t *n, struct head *h, json_t *all, struct err *err)
{
    size_t kept = 0;
    int first = 0;
    struct err why;
    for (size_t i = 0; i < *n; i++) {
        const int e = try_answer(&list[i], h, all, &why);
        if (e && !plan_cannot_be(e))
            return err_set(err, e, "%s", why.text);
        if (!e)
            list[kept++] = list[i];
        else if (!first)
            first = err_set(err, e, "%s", why.text);
    }
    if (!*n)
        first = err_set(err, -EINVAL, "--parallel auto looks at no more than %d nodes", JOB_MAX_RANKS);
    qsort(list, kept, sizeof *list, by_seconds);
    *n = kept;
    return kept ? 0 : first;
}
