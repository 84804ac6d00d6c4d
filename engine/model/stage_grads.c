/* SPDX-License-Identifier: MIT
 *
 * What replicas share out: a stage's sums over its groups of microbatches, what they make of them
 * together, the norm of it, and the updated values. */
#include <assert.h>
#include <math.h>

#include "model/stage_impl.h"
#include "num/vec.h"

size_t stage_shared_values(const struct stage *s, enum unit_shared what, size_t adapter, size_t slice)
{
    size_t n = 0;
    for (size_t i = 0; i < s->nunits; i++)
        n += unit_shared_values(&s->units[i], what, adapter, slice);
    return n;
}

static size_t chosen(const struct stage *s)
{
    return (size_t)(s->tune - s->tunes);
}

/* Goes through what units have of a part. */
struct share_walk {
    struct stage *s;
    enum unit_shared what;
    const struct param_share *part;
    size_t unit, pos;       /* of the stage's units the one looked at, where its values begin */
    struct param_share own; /* of its own values those in the part, */
    size_t to;              /* and where in the part they begin */
};

static struct unit *walk_next(struct share_walk *w)
{
    const struct param_piece wanted = {.at = w->part->at, .n = w->part->n};
    while (w->unit > 0) {
        struct unit *u = &w->s->units[--w->unit];
        const size_t values = unit_shared_values(u, w->what, chosen(w->s), w->part->slice);
        const struct param_piece_part one = param_piece_overlap(&wanted, w->pos, values);
        w->pos += values;
        w->own = (struct param_share){w->part->slice, one.first, one.n};
        w->to = one.at;
        if (one.n)
            return u;
    }
    return NULL;
}

static struct share_walk walk_of(struct stage *s, enum unit_shared what, const struct param_share *part)
{
    return (struct share_walk){.s = s, .what = what, .part = part, .unit = s->nunits};
}

/* --- gradients -------------------------------------------------------------------------------- */

void stage_pack_grads(struct stage *s, const struct param_share *part, float *out)
{
    const struct grad_groups g = stage_groups(&s->spec);
    struct sum_node roots[SUM_TREE_NODES];
    const size_t nodes = sum_tree_roots(roots, g.groups, g.first, g.end);
    struct share_walk w = walk_of(s, UNIT_GRADS, part);
    struct unit *u;
    while ((u = walk_next(&w))) {
        unit_end_groups(u, s->num); /* units below may not be through */
        for (size_t k = 0; k < nodes; k++)
            unit_pack_grads(u, roots[k], &w.own, out + k * part->n + w.to);
    }
}

void stage_unpack_grads(struct stage *s, const struct param_share *part, const float *sum)
{
    struct share_walk w = walk_of(s, UNIT_GRADS, part);
    struct unit *u;
    while ((u = walk_next(&w))) {
        unit_end_groups(u, s->num);
        unit_unpack_grads(u, &w.own, sum + w.to);
    }
}

bool stage_part_is_above(struct stage *s, const struct param_share *part, size_t unit)
{
    struct share_walk w = walk_of(s, UNIT_GRADS, part);
    struct unit *u;
    while ((u = walk_next(&w)))
        if (u->index < unit)
            return false;
    return true;
}

const float *stage_join_grads(struct stage *s, const struct param_share *part,
                              const struct grad_share *shares, size_t nshares)
{
    float *sums[GRAD_SHARES * SUM_TREE_NODES] = {NULL};
    struct sum_tree tree;
    uint32_t next = 0;
    assert(nshares <= GRAD_SHARES);
    sum_tree_begin(&tree, stage_groups(&s->spec).groups);
    for (size_t i = 0; i < nshares; i++) {
        struct sum_node roots[SUM_TREE_NODES];
        const size_t nodes = sum_tree_roots(roots, tree.leaves, shares[i].first_group, shares[i].end_group);
        for (size_t k = 0; k < nodes; k++) {
            struct sum_add adds[SUM_TREE_LEVELS];
            sums[next] = shares[i].sums + k * part->n;
            const size_t many = sum_tree_put(&tree, roots[k], next++, adds);
            for (size_t a = 0; a < many; a++)
                vec_add(s->num, sums[adds[a].to], sums[adds[a].to], sums[adds[a].from], part->n);
        }
    }
    const float *sum = sums[tree.kept[0].buffer];
    stage_unpack_grads(s, part, sum);
    return sum;
}

/* --- of slices -------------------------------------------------------------------------------- */

static void gather_values(struct stage *s, float *g, size_t rows, size_t grain, size_t across)
{
    struct gather_columns what =
        part_columns_of(&s->gather, g, NULL, 1, rows, grain); /* in rows; now in values */
    what.width *= across;
    for (size_t i = 0; i <= s->spec.slice.count; i++)
        what.first[i] *= across;
    what.own = g + what.first[s->spec.slice.index];
    part_gather_run(&s->gather, &what);
}

void stage_gather_grads(struct stage *s)
{
    stage_end_groups(s);
    for (size_t i = s->nunits; stage_gather(s) && i-- > 0;) {
        struct unit *u = &s->units[i];
        for (size_t p = u->nparams; p-- > 0;) {
            const struct param *param = &u->params[p];
            const size_t rows = param->def.rows;
            if (param->def.grain)
                gather_values(s, param->g, rows, param->def.grain, param->n / rows);
        }
        if (u->lent_n)
            gather_values(s, u->lent_g, s->spec.config.vocab, SLICE_ANY, s->spec.config.dim);
    }
}

/* --- the norm --------------------------------------------------------------------------------- */

static size_t chunks_in(const struct stage *s, const struct param *p, size_t slice)
{
    return p->def.fixed ? 0 : vec_sum_chunks(param_slice(p->n, slice, stage_groups(&s->spec).slices).n);
}

size_t stage_squares_count(const struct stage *s, size_t slice)
{
    size_t n = 0;
    for (size_t i = 0; i < s->nunits; i++)
        for (size_t p = 0; p < s->units[i].nparams; p++)
            n += chunks_in(s, &s->units[i].params[p], slice);
    return n;
}

/* In the order of stage_sumsq. */
void stage_squares(struct stage *s, double *out)
{
    stage_end_groups(s);
    for (size_t i = s->nunits; i-- > 0;)
        for (size_t p = s->units[i].nparams; p-- > 0;) {
            const struct param *param = &s->units[i].params[p];
            if (param->def.fixed)
                continue;
            vec_chunks_sumsq(s->num, out, param->g + param->own.at, param->own.n);
            out += vec_sum_chunks(param->own.n);
        }
}

double stage_sum_squares(struct stage *s, double partial, const double *const *squares, size_t *ret_unit)
{
    const double *at[GRAD_SHARES];
    const size_t slices = stage_groups(&s->spec).slices;
    assert(slices <= GRAD_SHARES);
    for (size_t slice = 0; slice < slices; slice++)
        at[slice] = squares[slice];
    *ret_unit = STAGE_NO_UNIT;
    for (size_t i = s->nunits; i-- > 0;)
        for (size_t p = s->units[i].nparams; p-- > 0;) {
            double sum = 0;
            for (size_t slice = 0; slice < slices; slice++)
                for (size_t c = chunks_in(s, &s->units[i].params[p], slice); c; c--)
                    sum += *at[slice]++;
            if (!isfinite(sum) && *ret_unit == STAGE_NO_UNIT)
                *ret_unit = s->units[i].index;
            partial += sum;
        }
    return partial;
}

/* --- values ----------------------------------------------------------------------------------- */

void stage_pack_values(struct stage *s, const struct param_share *part, float *out)
{
    struct share_walk w = walk_of(s, UNIT_VALUES, part);
    struct unit *u;
    while ((u = walk_next(&w)))
        unit_pack_values(u, &w.own, out + w.to);
}

void stage_unpack_values(struct stage *s, const struct param_share *part, const float *in)
{
    struct share_walk w = walk_of(s, UNIT_VALUES, part);
    struct unit *u;
    while ((u = walk_next(&w))) {
        unit_unpack_values(u, &w.own, in + w.to);
        unit_refresh(u);
    }
}
