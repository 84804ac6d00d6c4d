/* SPDX-License-Identifier: MIT
 *
 * The plan is read from a file: nothing in it is believed. */
#include "daemon/ctl/forecast/serve_plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "engine/pipe/sched.h"
#include "engine/pipe/split.h"

enum { LAYERS_MOST = 4096, SEQS_MOST = 4096, TOKENS_MOST = 1 << 20, DIM_MOST = 1 << 24 };
static const double LONGEST_S = 1e6;

/* --- reading ---------------------------------------------------------------------------------- */

static int wrong(struct err *err, const char *what)
{
    return err_set(
        err, -EINVAL,
        "%s: what ringctl plan serve --json prints is a plan of serving, where its nodes were timed", what);
}

static size_t whole(const json_t *of, const char *key, size_t most)
{
    const json_int_t n = json_integer_value(json_object_get(of, key));
    return n < 1 || (size_t)n > most ? 0 : (size_t)n;
}

static bool is_time(const json_t *value)
{
    const double x = json_number_value(value);
    return json_is_number(value) && x >= 0 && x <= LONGEST_S;
}

static const json_t *at(const json_t *list, size_t i)
{
    return json_array_get(list, i);
}

/* Points of a line; of the head, only those with a choice behind each row. */
static bool read_line(struct rows_line *ret, const json_t *speed, const json_t *seconds, bool is_head)
{
    const json_t *rows = json_object_get(speed, "rows"), *seqs = json_object_get(speed, "row_seqs");
    const size_t n = json_array_size(rows);
    *ret = (struct rows_line){0};
    if (!n || n > ROWS_LINE_MOST || json_array_size(seqs) != n || json_array_size(seconds) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_int_t is = json_integer_value(at(rows, i));
        if (is < 1 || is > TOKENS_MOST || !is_time(at(seconds, i)) ||
            (ret->n && (size_t)is <= ret->rows[ret->n - 1]))
            return false;
        if (is_head && json_integer_value(at(seqs, i)) != is)
            continue;
        ret->rows[ret->n] = (size_t)is;
        ret->seconds[ret->n++] = json_number_value(at(seconds, i));
    }
    return ret->n > 0;
}

static bool read_kinds(struct serve_plan *p, const json_t *kinds)
{
    for (size_t u = 0; u < p->layers + 2; u++) {
        const json_t *kind = at(kinds, u);
        const json_int_t k = json_integer_value(kind);
        if (!json_is_integer(kind) || k < 0 || (size_t)k >= p->kinds)
            return false;
        p->kind[u] = (size_t)k;
    }
    return true;
}

static bool read_node(struct serve_plan *p, const json_t *speed, size_t node)
{
    const json_t *seconds = at(json_object_get(speed, "row_seconds"), node),
                 *positions = at(json_object_get(speed, "position_seconds"), node),
                 *hop = at(json_object_get(speed, "hops"), node);
    for (size_t k = 0; k < p->kinds; k++) {
        struct timed_unit *unit = &p->unit[node * p->kinds + k];
        if (!read_line(&unit->rows, speed, at(seconds, k), k == p->kind[p->layers + 1]) ||
            !is_time(at(positions, k)))
            return false;
        unit->position = json_number_value(at(positions, k));
    }
    for (size_t i = 0; i < 2 && p->limits.ranks > 1; i++) {
        if (!is_time(at(hop, i)))
            return false;
        p->hop[node][i] = json_number_value(at(hop, i));
    }
    return true;
}

static bool read_split(struct serve_plan *p, const json_t *split)
{
    struct err quiet;
    for (size_t r = 0; r < p->limits.ranks; r++) {
        const json_int_t first = json_integer_value(at(at(split, r), 0)),
                         end = json_integer_value(at(at(split, r), 1));
        if (first < 0 || end < first || (size_t)end > p->layers)
            return false;
        p->first[r] = (size_t)first;
        p->first[r + 1] = (size_t)end;
    }
    return !split_check(p->first, p->limits.ranks, p->layers, &quiet);
}

static int read_sizes(struct serve_plan *p, const json_t *plan, const json_t *speed, struct err *err)
{
    const json_t *seconds = json_object_get(speed, "row_seconds");
    const size_t ranks = json_array_size(seconds),
                 units = json_array_size(json_object_get(speed, "unit_kinds"));
    p->limits = (struct rows_limits){.ranks = ranks,
                                     .seqs = whole(speed, "max_num_seqs", SEQS_MOST),
                                     .prompt = whole(speed, "prefill_step_size", TOKENS_MOST)};
    p->dim = whole(plan, "dim", DIM_MOST);
    p->layers = units > 2 ? units - 2 : 0;
    p->kinds = json_array_size(at(seconds, 0));
    if (!ranks || ranks > SCHED_MAX_RANKS || !p->limits.seqs || !p->limits.prompt || !p->dim || !p->layers ||
        p->layers > LAYERS_MOST || !p->kinds || p->kinds > units)
        return wrong(err, "this is no plan of serving with its costs");
    p->kind = calloc(units, sizeof *p->kind);
    p->first = calloc(ranks + 1, sizeof *p->first);
    p->unit = calloc(ranks * p->kinds, sizeof *p->unit);
    p->hop = calloc(ranks, sizeof *p->hop);
    return p->kind && p->first && p->unit && p->hop ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int serve_plan_read(struct serve_plan *ret, const json_t *plan, struct err *err)
{
    const json_t *speed = json_object_get(plan, "speed"), *choice = json_object_get(speed, "choice_seconds"),
                 *text = json_object_get(speed, "text_seconds");
    struct serve_plan p = {0};
    int r = read_sizes(&p, plan, speed, err);
    if (!r && (!read_kinds(&p, json_object_get(speed, "unit_kinds")) ||
               !read_split(&p, json_object_get(plan, "split")) || !is_time(choice) || !is_time(text)))
        r = wrong(err, "the layers or the times of this plan cannot be");
    for (size_t node = 0; node < p.limits.ranks && !r; node++)
        if (!read_node(&p, speed, node))
            r = wrong(err, "the costs of this plan cannot be");
    if (r) {
        serve_plan_done(&p);
        return r;
    }
    p.choice = json_number_value(choice);
    p.text = json_number_value(text);
    *ret = p;
    return 0;
}

void serve_plan_done(struct serve_plan *p)
{
    free(p->kind);
    free(p->first);
    free(p->unit);
    free(p->hop);
    *p = (struct serve_plan){0};
}

/* --- rings ------------------------------------------------------------------------------------ */

static const struct timed_unit *unit_of(const struct serve_plan *p, size_t like, size_t unit)
{
    return &p->unit[like * p->kinds + p->kind[unit]];
}

static void add_unit(struct serve_stage *stage, const struct timed_unit *unit)
{
    stage->rows.n = unit->rows.n;
    for (size_t i = 0; i < unit->rows.n; i++) {
        stage->rows.rows[i] = unit->rows.rows[i];
        stage->rows.seconds[i] += unit->rows.seconds[i];
    }
    stage->position += unit->position;
}

/* Of so many nodes that are all like the first, and their cables like its. */
static int split_evenly(size_t *first, const struct serve_plan *p, size_t nodes, struct err *err)
{
    double *cost = calloc(p->layers + 2, sizeof *cost);
    if (!cost)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t u = 0; u < p->layers + 2; u++)
        cost[u] = rows_line_at(&unit_of(p, 0, u)->rows, 1);
    const int r = split_layers(
        first, &(struct split_request){.stages = nodes, .layers = p->layers, .unit_cost = cost}, err);
    free(cost);
    return r;
}

int serve_plan_ring(struct serve_ring *ret, const struct serve_plan *p, size_t nodes, const double hop[2],
                    struct err *err)
{
    const bool is_own = nodes == p->limits.ranks;
    struct serve_stage *stage = calloc(nodes, sizeof *stage);
    size_t *first = calloc(nodes + 1, sizeof *first);
    int r = stage && first ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (!r && !is_own)
        r = split_evenly(first, p, nodes, err);
    for (size_t n = 0; n < nodes && !r; n++) {
        const size_t like = is_own ? n : 0, *bound = is_own ? p->first : first;
        const double *way = is_own ? p->hop[n] : p->limits.ranks > 1 ? p->hop[0] : hop;
        stage[n].hop = way[0];
        stage[n].hop_byte = way[1];
        stage[n].layers = bound[n + 1] - bound[n];
        if (!n)
            add_unit(&stage[n], unit_of(p, like, 0));
        for (size_t u = bound[n] + 1; u < bound[n + 1] + 1; u++)
            add_unit(&stage[n], unit_of(p, like, u));
        if (n + 1 == nodes)
            stage[n].choices = unit_of(p, like, p->layers + 1)->rows;
    }
    free(first);
    if (r) {
        free(stage);
        return r;
    }
    *ret = (struct serve_ring){.limits = {nodes, p->limits.seqs, p->limits.prompt},
                               .stage = stage,
                               .row_bytes = (double)p->dim * sizeof(float),
                               .choice = p->choice,
                               .text = p->text};
    return 0;
}
