/* SPDX-License-Identifier: MIT
 *
 * What a plan that was looked for takes over, and says of itself: a step's time, what it is made
 * of, what would be better. Owns nothing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/stage/plan/stage_replicas.h"
#include "daemon/stage/plan/stage_search_impl.h"

enum { MOST_CHOICES = 3 };
static const double WORTH_MOVING = 0.97; /* of a step's time: less is not worth a word */

void search_take_cut(struct head *h, const struct search *s, size_t cut, const char *schedule, size_t chunks)
{
    struct job_plan *p = &h->plan;
    const size_t was = h->spec.micro_batch, is = s->micro[cut];
    p->tokens = p->tokens / was * is;
    p->seqs = p->seqs / was * is;
    p->microbatches = s->cut[cut].microbatches;
    p->groups = s->cut[cut].groups;
    h->spec.micro_batch = is;
    h->spec.chunks = chunks;
    snprintf(p->schedule, sizeof p->schedule, "%s", schedule);
}

/* Of a pipeline that is alone: whose rank it is. */
static const char *name_at(const struct search *s, size_t node)
{
    return cost_table_name(s->timed, s->layout.node[node]);
}

/* Of each place of a pipeline the sum of what `of` says of its stages. */
static json_t *by_place(const struct search *s, const struct planner_found *f,
                        double (*of)(const struct head *, const size_t *, size_t, size_t))
{
    json_t *list = json_array();
    for (size_t place = 0; place < s->layout.places; place++) {
        double bytes = 0;
        for (uint32_t i = 0; i < f->stages; i++)
            if (sched_place(sched_info(f->schedule)->placement, s->layout.places, i) == place)
                bytes += of(s->h, f->first, f->stages, i);
        json_array_append_new(list, json_real(bytes));
    }
    return list;
}

/* A forward alone. Of what the head adds to a forward the gradient is a half. */
double forecast_reference(const struct sched_cost *cost, size_t stages, const char *schedule, size_t ranks,
                          size_t microbatches)
{
    const struct sched_info *info = sched_info(schedule);
    double through = 0, most = 0, of[PLANNER_MAX_RANKS] = {0};
    for (size_t i = 0; i < stages; i++) {
        const double forward = (cost[i].r + cost[i].f) / 2;
        double *at = &of[sched_place(info ? info->placement : PLACE_LOOP, ranks, (uint32_t)i)];
        through += forward;
        *at += forward;
        most = *at > most ? *at : most;
    }
    return through + (double)(microbatches - 1) * most;
}

json_t *forecast_of(const struct search *s, const struct planner_found *f)
{
    json_t *costs = json_array(), *timed = json_array();
    const size_t steps = s->h->nadapters * f->turns;
    for (size_t r = 0; r < s->h->plan.ranks; r++) {
        const size_t at = job_plan_pipelines(&s->h->plan) > 1 ? r : planner_node(f, s->layout.places, r),
                     node = s->layout.node[at];
        json_array_append_new(timed, json_boolean(!r || s->timed->node[node].any));
    }
    for (size_t i = 0; i < f->stages; i++)
        json_array_append_new(costs, json_pack("[f,f,f,f]", f->cost[i].f, f->cost[i].i, f->cost[i].w,
                                               f->again[i] ? f->cost[i].r : 0.0));
    json_t *forecast =
        json_pack("{s:s s:I s:I s:I s:I s:f s:f s:o s:o}", "schedule", f->schedule, "chunks",
                  (json_int_t)f->chunks, "steps", (json_int_t)steps, "microbatches",
                  (json_int_t)(steps * s->question.cut[f->cut].microbatches), "micro_batch_size",
                  (json_int_t)s->micro[s->layout.cut[f->cut]], "seconds", f->seconds * (double)steps,
                  "bubble", f->bubble, "costs", costs, "timed", timed);
    if (s->h->plan.replicas)
        json_object_update_new(forecast, json_pack("{s:f s:o}", "exchange_seconds", f->sums * (double)steps,
                                                   "sent_bytes", by_place(s, f, replicas_sent_bytes)));
    if (s->h->plan.loss == LOSS_DPO)
        json_object_set_new(
            forecast, "reference_seconds",
            json_real((double)steps * forecast_reference(f->cost, f->stages, f->schedule, s->layout.places,
                                                         s->question.cut[f->cut].microbatches)));
    if (s->h->plan.divided)
        json_object_set_new(forecast, "spared_bytes", by_place(s, f, replicas_spared_bytes));
    return forecast;
}

/* That split, but a layer of its neighbours on stage `s`. */
static void give_layer(size_t *first, size_t stages, size_t s)
{
    const size_t layers = first[stages];
    if (first[s] < layers)
        for (size_t i = s + 1; i < stages && first[i] <= first[s]; i++)
            first[i] = first[s] + 1;
    else
        for (size_t i = s; i && first[i] == layers; i--)
            first[i] = layers - 1;
}

json_t *forecast_left_out(const struct search *s, const struct planner_found *f)
{
    json_t *list = json_array();
    const struct sched_info *info = sched_info(f->schedule);
    for (size_t r = 0; r < s->layout.places; r++) {
        size_t first[PLANNER_MAX_STAGES + 1], mine = SIZE_MAX;
        bool any = false;
        char text[200];
        for (uint32_t i = 0; i < f->stages; i++)
            if (sched_place(info->placement, s->layout.places, i) == r) {
                mine = mine < i ? mine : i;
                any = any || f->first[i] < f->first[i + 1];
            }
        if (any || mine == SIZE_MAX)
            continue;
        memcpy(first, f->first, sizeof first);
        give_layer(first, f->stages, mine);
        struct planner_request req = s->question.req;
        struct planner_found with, none;
        struct err quiet;
        req.schedule = f->schedule;
        req.chunks = f->chunks;
        req.first = first;
        req.mirror = f->mirrored;
        req.cut = &s->question.cut[f->cut];
        req.cuts = 1;
        if (planner_search(&with, &none, &req, &quiet))
            continue;
        snprintf(text, sizeof text,
                 with.fits ? "%s holds no layer: with one, a step would take %.3g s, not %.3g s"
                           : "%s holds no layer: there is not the memory for one",
                 name_at(s, planner_node(f, s->layout.places, r)), with.seconds, f->seconds);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

/* Rank 0 has the user's files and is where the job was submitted; another beginning can only be
 * recommended. */
void forecast_elsewhere(const struct search *s, const struct planner_found *f)
{
    struct planner_request req = s->question.req;
    struct planner_found turned;
    struct err quiet;
    if (planner_turn(&turned, f, &req, &quiet) || !turned.schedule || !turned.fits ||
        turned.seconds > f->seconds * WORTH_MOVING)
        return;
    json_object_set_new(s->h->planning.forecast, "elsewhere",
                        json_pack("{s:s s:f}", "node", name_at(s, turned.start), "seconds",
                                  turned.seconds * (double)(f->turns * s->h->nadapters)));
}

/* --- choices of --parallel auto --------------------------------------------------------------- */

/* Of what differs, what differs most. */
static void why_slower(char *text, size_t size, const struct parallel_found *it,
                       const struct parallel_found *best)
{
    const struct planner_parts *a = &it->parts, *b = &best->parts;
    const struct {
        double more;
        const char *what;
    } parts[] = {{a->work - b->work, "the busiest node has more work, for"},
                 {a->bubble - b->bubble, "nodes wait longer for each other (bubble), for"},
                 {a->cables - b->cables, "messages between stages take longer, by"},
                 {a->gather - b->gather, "nodes that share a stage gather outputs for longer, by"},
                 {a->sums - b->sums, "replicas add up gradients for longer, by"},
                 {a->update - b->update, "norm, optimizer and copies of what is trained take longer, by"}};
    size_t most = 0;
    for (size_t i = 1; i < sizeof parts / sizeof *parts; i++)
        most = parts[i].more > parts[most].more ? i : most;
    if (!it->plan.fits)
        snprintf(text, size, "it does not fit into the memory of its nodes");
    else if (it->plan.seconds <= best->plan.seconds * (1 + 1e-3))
        snprintf(text, size, "it takes as long");
    else
        snprintf(text, size, "%s %.3g s", parts[most].what, parts[most].more);
}

/* What the best is better by than the next. */
static void why_best(char *text, size_t size, const struct parallel_found *best,
                     const struct parallel_found *next)
{
    if (!next || next->plan.seconds <= best->plan.seconds * (1 + 1e-3)) {
        snprintf(text, size, "nothing else that was looked at is faster");
        return;
    }
    char other[120];
    why_slower(other, sizeof other, next, best);
    snprintf(text, size, "the next one is slower by %.0f %%: %s",
             100 * (next->plan.seconds / best->plan.seconds - 1), other);
}

static void parallel_text(char *text, size_t size, const struct parallel_found *f)
{
    size_t used = 0;
    if (!f->is_unlike && f->slices > 1 && f->replicas > 1)
        snprintf(text, size, "dp=%zu,tp=%zu,pp=%zu", f->replicas, f->slices, f->places);
    else if (!f->is_unlike)
        snprintf(text, size, "%s=%zu,pp=%zu", f->slices > 1 ? "tp" : "dp",
                 f->slices > 1 ? f->slices : f->replicas, f->places);
    for (size_t d = 0; d < f->replicas && f->is_unlike && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%zu", d ? "+" : "pp=", f->unlike.size[d]);
}

static json_t *choice_of(const struct search *s, const struct parallel_found *f, const char *why)
{
    json_t *nodes = json_array(), *bytes = json_array();
    char parallel[40];
    const size_t ranks = (size_t)__builtin_popcount(f->mask);
    for (size_t r = 0; r < ranks; r++) {
        const size_t at = f->is_unlike ? r
                                       : r / f->places / f->slices * f->places +
                                             plan_place_of(f->places, r); /* in `bytes` */
        json_array_append_new(nodes, json_string(cost_table_name(s->timed, f->node[r])));
        json_array_append_new(bytes, json_integer((json_int_t)(f->plan.bytes[at] + s->taken[f->node[r]])));
    }
    parallel_text(parallel, sizeof parallel, f);
    const double steps = (double)(s->h->nadapters * f->plan.turns);
    const struct planner_parts *p = &f->parts;
    return json_pack("{s:s s:o s:s s:I s:I s:I s:b s:f s:f s:f s:f s:f s:f s:f s:o s:s}", "parallel",
                     parallel, "nodes", nodes, "schedule", f->plan.schedule, "chunks",
                     (json_int_t)f->plan.chunks, "microbatches", (json_int_t)s->cut[f->plan.cut].microbatches,
                     "micro_batch_size", (json_int_t)s->micro[f->plan.cut], "fits", f->plan.fits, "seconds",
                     f->plan.seconds * steps, "work_seconds", p->work * steps, "bubble_seconds",
                     p->bubble * steps, "cable_seconds", p->cables * steps, "gather_seconds",
                     p->gather * steps, "sum_seconds", p->sums * steps, "update_seconds", p->update * steps,
                     "bytes", bytes, "why", why);
}

static bool is_same_shape(const struct parallel_found *a, const struct parallel_found *b)
{
    return a->replicas == b->replicas && a->slices == b->slices && a->places == b->places;
}

/* Such a plan lost even so, and was not worth the time. */
static void note_untimed(char *text, size_t size)
{
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "; its slices were not timed, so it takes that at least");
}

/* Others of unlike replicas and places first, as far as there are any. */
json_t *forecast_choices(const struct search *s, const struct parallel_found *taken,
                         const struct parallel_found *found, size_t n, const bool *timed)
{
    const struct parallel_found *chosen[MOST_CHOICES] = {taken};
    size_t nchosen = 1;
    char why[300];
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n && nchosen < MOST_CHOICES; i++) {
            bool is_new = true;
            for (size_t k = 0; k < nchosen; k++)
                is_new = is_new && &found[i] != chosen[k] && (pass || !is_same_shape(&found[i], chosen[k]));
            if (is_new)
                chosen[nchosen++] = &found[i];
        }
    if (nchosen == MOST_CHOICES && chosen[2]->plan.seconds < chosen[1]->plan.seconds) {
        const struct parallel_found *swap = chosen[1];
        chosen[1] = chosen[2];
        chosen[2] = swap;
    }
    json_t *list = json_array();
    for (size_t k = 0; k < nchosen; k++) {
        if (k)
            why_slower(why, sizeof why, chosen[k], taken);
        else
            why_best(why, sizeof why, taken, nchosen > 1 ? chosen[1] : NULL);
        if (!timed[chosen[k]->slices])
            note_untimed(why, sizeof why);
        json_array_append_new(list, choice_of(s, chosen[k], why));
    }
    return list;
}
