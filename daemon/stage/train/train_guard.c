/* SPDX-License-Identifier: MIT */
#include "daemon/stage/train/train_guard.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LINES_SHOWN = 8 };

static uint64_t whole(const json_t *record, const char *key)
{
    const json_int_t n = json_integer_value(json_object_get(record, key));
    return n > 0 ? (uint64_t)n : 0;
}

static void go_on(struct guard_of *of, const json_t *so_far)
{
    const json_t *best = json_object_get(so_far, "best");
    of->skipped = whole(so_far, "skipped");
    of->skipped = of->skipped < of->done ? of->skipped : of->done;
    of->has_best = json_is_number(best);
    of->best = json_number_value(best);
    of->best_step = whole(so_far, "best_step");
    of->worse = whole(so_far, "worse");
    of->evaluated = whole(so_far, "evaluated");
}

/* What was said up to the step that the adapter begins behind, the latest last. */
static void go_on_from_said(struct guard_of *of, const json_t *said)
{
    const json_t *entry;
    size_t i;
    json_array_foreach (said, i, entry)
        if (whole(entry, "step") <= of->done)
            go_on(of, json_object_get(entry, "so_far"));
}

void guard_init(struct train_guard *g, const struct head *h)
{
    *g = (struct train_guard){.head = h};
    for (size_t a = 0; a < h->nadapters; a++) {
        const struct head_adapter *adapter = &h->adapters[a];
        g->of[a].done = adapter->first_step;
        if (adapter->in && h->spec.resume)
            go_on(&g->of[a], json_object_get(adapter_in_record(adapter->in), HEAD_SO_FAR));
        go_on_from_said(&g->of[a], json_object_get(json_object_get(h->spec.said, "so-far"), adapter->name));
        if (guard_is_early(g, a)) /* others were a while longer under way */
            g->of[a].done = g->of[a].evaluated;
    }
}

json_t *guard_encode(const struct train_guard *g, size_t adapter)
{
    const struct guard_of *of = &g->of[adapter];
    json_t *record = json_pack("{s:I s:I s:I}", "skipped", (json_int_t)of->skipped, "worse",
                               (json_int_t)of->worse, "evaluated", (json_int_t)of->evaluated);
    if (record && of->has_best)
        json_object_update_new(
            record, json_pack("{s:f s:I}", "best", of->best, "best_step", (json_int_t)of->best_step));
    return record;
}

/* --- steps ------------------------------------------------------------------------------------ */

enum guard_verdict guard_step(struct train_guard *g, size_t adapter, uint64_t step, double loss, double norm)
{
    struct guard_of *of = &g->of[adapter];
    const bool is_good = isfinite(loss) && isfinite(norm);
    if (of->stopped)
        return GUARD_STOP;
    if (!is_good && g->head->spec.on_nan == ON_NAN_STOP) {
        of->stopped = step;
        return GUARD_STOP;
    }
    of->done = step;
    of->skipped += !is_good;
    return is_good ? GUARD_APPLY : GUARD_SKIP;
}

uint64_t guard_updates(const struct train_guard *g, size_t adapter)
{
    return g->of[adapter].done - g->of[adapter].skipped;
}

static void add(char *text, size_t size, const char *more)
{
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s", more);
}

/* The rank is another node's word. */
static bool is_place(const struct head *h, const struct bad_value *bad)
{
    return bad->kind != BAD_NONE && bad->unit < h->config.layers + 2 && bad->rank < h->plan.ranks;
}

static void add_place(char *text, size_t size, const struct head *h, const struct bad_value *bad)
{
    char unit[40], place[100];
    if (!is_place(h, bad))
        return;
    if (bad->unit == 0)
        snprintf(unit, sizeof unit, "the embedding");
    else if (bad->unit == h->config.layers + 1)
        snprintf(unit, sizeof unit, "the head");
    else
        snprintf(unit, sizeof unit, "layer %" PRIu32, bad->unit - 1);
    snprintf(place, sizeof place, ", first in the %s of %s, on rank %" PRIu32,
             bad->kind == BAD_OUTPUT ? "output" : "gradients", unit, bad->rank);
    add(text, size, place);
}

static void add_lines(char *text, size_t size, const struct head *h, const json_t *lines)
{
    const size_t n = json_array_size(lines);
    char word[60];
    add(text, size, n == 1 ? ", with line " : ", with lines ");
    for (size_t i = 0; i < n && i < LINES_SHOWN; i++) {
        snprintf(word, sizeof word, "%s%lld", i ? ", " : "",
                 (long long)json_integer_value(json_array_get(lines, i)));
        add(text, size, word);
    }
    if (n > LINES_SHOWN) {
        snprintf(word, sizeof word, " and %zu more", n - LINES_SHOWN);
        add(text, size, word);
    }
    add(text, size, " of ");
    add(text, size, h->spec.data);
}

void guard_tell(char *text, size_t size, const struct train_guard *g, size_t adapter, uint64_t step,
                double loss, const struct bad_value *bad, const json_t *lines)
{
    const char *name = g->head->adapters[adapter].name;
    snprintf(text, size, "the %s of step %" PRIu64 "%s%s is not finite",
             isfinite(loss) ? "norm of the gradients" : "loss", step, *name ? " of " : "", name);
    add_place(text, size, g->head, bad);
    add_lines(text, size, g->head, lines);
}

/* --- evaluations ------------------------------------------------------------------------------ */

bool guard_evaluated(struct train_guard *g, size_t adapter, uint64_t step, double loss)
{
    struct guard_of *of = &g->of[adapter];
    if (!g->head->spec.early_stop || step <= of->evaluated)
        return false;
    of->evaluated = step;
    if (of->has_best && !(loss < of->best)) {
        of->worse++;
        return false;
    }
    of->has_best = true;
    of->best = loss;
    of->best_step = step;
    of->worse = 0;
    return true;
}

bool guard_is_early(const struct train_guard *g, size_t adapter)
{
    const size_t most = g->head->spec.early_stop;
    return most && g->of[adapter].worse >= most;
}

bool guard_is_needed(const struct train_guard *g)
{
    return g->head->spec.early_stop || g->head->spec.on_nan == ON_NAN_SKIP;
}

bool guard_is_over(const struct train_guard *g, size_t adapter)
{
    return g->of[adapter].done >= g->head->steps || guard_is_early(g, adapter);
}
