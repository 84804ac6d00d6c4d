/* SPDX-License-Identifier: MIT
 *
 * The update of a stage's trained values: at which rate each learns, and what is left as it is. */
#include "model/stage_impl.h"

/* Values [at, at + n) of a factor, of which each row has `wide`, and of these the first `learnt`
 * are updated alone: weight decay would change the others too. */
static void update_learnt(const struct stage *s, const struct param *p, size_t wide, size_t learnt,
                          float gscale, const struct adamw *opt, uint64_t step)
{
    const struct param_slice own = p->own;
    for (size_t row = own.at / wide; row * wide < own.at + own.n; row++) {
        const size_t first = row * wide > own.at ? row * wide : own.at, end = row * wide + learnt,
                     last = end < own.at + own.n ? end : own.at + own.n, at = first - own.at;
        if (first < last)
            adamw_step(s->num, p->w + first, p->m + at, p->v + at, p->g + first, last - first, gscale, opt,
                       step);
    }
}

static void update(const struct stage *s, const struct param *p, float gscale, const struct adamw *opt,
                   uint64_t step)
{
    const size_t fixed = s->tune->fixed, rank = p->def.role == PARAM_A ? p->def.rows : p->def.cols;
    if (p->def.role == PARAM_A && fixed)
        update_learnt(s, p, p->n, (rank - fixed) * p->def.cols, gscale, opt, step);
    else if (p->def.role == PARAM_B && fixed)
        update_learnt(s, p, rank, rank - fixed, gscale, opt, step);
    else if (!p->def.fixed)
        adamw_step(s->num, p->w + p->own.at, p->m, p->v, p->g + p->own.at, p->own.n, gscale, opt, step);
}

void stage_update(struct stage *s, float gscale, const struct adamw *opt, uint64_t step)
{
    const double plus = s->tune->plus_ratio > 0 ? s->tune->plus_ratio : 1;
    stage_end_groups(s);
    for (size_t i = 0; i < s->nunits; i++) {
        const struct unit *u = &s->units[i];
        const double rate = tune_layer_rate(s->tune, &s->spec.config, u->index);
        struct adamw usual = *opt, faster = *opt;
        usual.lr = (float)(opt->lr * rate);
        faster.lr = (float)(opt->lr * plus * rate);
        for (size_t p = 0; p < u->nparams; p++) {
            const enum param_role role = u->params[p].def.role;
            update(s, &u->params[p], gscale, role == PARAM_B || role == PARAM_M ? &faster : &usual, step);
        }
    }
    for (size_t i = 0; i < s->nunits; i++) {
        unit_refresh(&s->units[i]);
        if (stage_groups(&s->spec).slices == 1) /* else more is to come */
            unit_ready(&s->units[i], s->num);
    }
    stage_skip_update(s);
}
