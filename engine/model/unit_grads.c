/* SPDX-License-Identifier: MIT
 *
 * The sums of a unit's gradients over groups of microbatches. A sum lies in one buffer of each
 * parameter; which one, changes as groups are added, and nothing is copied. */
#include <assert.h>
#include <string.h>

#include "model/unit_impl.h"
#include "num/vec.h"

/* Biases are gradients of a linear, and of the vector that they are. */
static void attach_bias(struct unit *u, size_t tensor, const float *before)
{
    for (size_t t = 0; t < u->ntensors; t++)
        if (u->block.grads.bias[t] && u->block.grads.bias[t] == before)
            u->block.grads.bias[t] = u->block.grads.full[tensor];
}

static void attach(struct unit *u, uint32_t buffer)
{
    for (size_t i = 0; i < u->nparams; i++) {
        struct param *p = &u->params[i];
        const float *before = p->g;
        p->g = p->sums + buffer * p->n;
        unit_attach_grad(u, p);
        if (p->def.role == PARAM_FULL && !p->def.cols)
            attach_bias(u, p->def.tensor, before);
    }
    if (u->lent_n)
        u->lent_g = u->lent_sums + buffer * u->lent_n;
}

static void add(const struct unit *u, struct num *num, const struct sum_add *what)
{
    for (size_t i = 0; i < u->nparams; i++) {
        const struct param *p = &u->params[i];
        float *to = p->sums + what->to * p->n;
        if (!p->def.fixed)
            vec_add(num, to, to, p->sums + what->from * p->n, p->n);
    }
    float *to = u->lent_sums + what->to * u->lent_n;
    if (u->lent_n)
        vec_add(num, to, to, u->lent_sums + what->from * u->lent_n, u->lent_n);
}

static void close_group(struct unit *u, struct num *num)
{
    struct grad_sum *g = u->grads;
    struct sum_add adds[SUM_TREE_LEVELS];
    if (!g->is_open)
        return;
    const size_t n = sum_tree_put(&g->tree, (struct sum_node){0, g->group}, g->buffer, adds);
    for (size_t i = 0; i < n; i++) {
        add(u, num, &adds[i]);
        g->used &= ~(1u << adds[i].from);
    }
    g->is_open = false;
}

static void clear(const struct unit *u, uint32_t buffer)
{
    for (size_t i = 0; i < u->nparams; i++)
        memset(u->params[i].sums + buffer * u->params[i].n, 0, u->params[i].n * sizeof(float));
    if (u->lent_n)
        memset(u->lent_sums + buffer * u->lent_n, 0, u->lent_n * sizeof(float));
}

void unit_drop_grads(struct unit *u)
{
    *u->grads = (struct grad_sum){.used = 0};
}

/* A unit without parameters has one state for all adapters, whose groups come by turns. */
static bool is_summed(const struct unit *u)
{
    return u->buffers && (u->nparams || u->lent_n);
}

void unit_add_to_group(struct unit *u, struct num *num, size_t group)
{
    struct grad_sum *g = u->grads;
    if (!is_summed(u) || (g->is_open && g->group == group))
        return;
    if (g->is_ended)
        unit_drop_grads(u);
    close_group(u, num);
    if (!g->used)
        sum_tree_begin(&g->tree, u->groups.groups);
    uint32_t buffer = 0;
    while (g->used >> buffer & 1)
        buffer++;
    assert(buffer < u->buffers);
    clear(u, buffer);
    attach(u, buffer);
    g->is_open = true;
    g->group = (uint32_t)group;
    g->buffer = buffer;
    g->used |= 1u << buffer;
}

void unit_end_groups(struct unit *u, struct num *num)
{
    if (!is_summed(u))
        return;
    const bool is_empty = !u->grads->used; /* no microbatch came: all groups are zero */
    for (size_t group = u->groups.first; is_empty && group < u->groups.end; group++)
        unit_add_to_group(u, num, group);
    close_group(u, num);
    attach(u, u->grads->tree.kept[0].buffer);
    u->grads->is_ended = true;
}

/* --- out and in ------------------------------------------------------------------------------- */

/* Of one of `set`'s parameters, those values of a slice that travel; of gradients, what this slice
 * of a stage makes. The parameter behind all others is what is lent. */
static struct param_slice travels(const struct unit *u, enum unit_shared what, size_t set, size_t i,
                                  size_t slice)
{
    const bool is_lent = i == u->all_nparams[set];
    const struct param_def lent = {.rows = u->lent_rows, .grain = SLICE_ANY};
    const struct param *p = &u->all_params[set * u->most + i];
    const struct param_def *def = is_lent ? &lent : &p->def;
    const size_t n = is_lent ? u->lent_n : p->n;
    if (def->fixed || !n || (is_lent && what == UNIT_VALUES))
        return (struct param_slice){0, 0};
    const struct param_slice part = param_slice(n, slice, u->groups.slices);
    return what == UNIT_VALUES
               ? part
               : param_slice_both(part, param_made(u->slice, def->rows, n / def->rows, def->grain));
}

static float *base_of(const struct unit *u, enum unit_shared what, uint32_t buffer, size_t at)
{
    if (at == u->nparams)
        return u->lent_sums + buffer * u->lent_n;
    return what == UNIT_VALUES ? u->params[at].w : u->params[at].sums + buffer * u->params[at].n;
}

/* What there is of the part in what travels of each parameter, one after the other. */
static void copy(const struct unit *u, enum unit_shared what, uint32_t buffer, const struct param_share *part,
                 float *out, const float *in)
{
    const struct param_piece wanted = {.at = part->at, .n = part->n};
    const size_t set = (size_t)(u->grads - u->all_grads);
    size_t pos = 0;
    for (size_t i = 0; i <= u->nparams; i++) {
        const struct param_slice slice = travels(u, what, set, i, part->slice);
        const struct param_piece_part one = param_piece_overlap(&wanted, pos, slice.n);
        float *at = one.n ? base_of(u, what, buffer, i) + slice.at + one.first : NULL;
        if (one.n && out)
            memcpy(out + one.at, at, one.n * sizeof *out);
        else if (one.n)
            memcpy(at, in + one.at, one.n * sizeof *in);
        pos += slice.n;
    }
}

size_t unit_shared_values(const struct unit *u, enum unit_shared what, size_t set, size_t slice)
{
    size_t n = 0;
    for (size_t i = 0; u->buffers && i <= u->all_nparams[set]; i++)
        n += travels(u, what, set, i, slice).n;
    return n;
}

void unit_pack_grads(const struct unit *u, struct sum_node node, const struct param_share *part, float *out)
{
    const struct sum_tree *t = &u->grads->tree;
    size_t k = 0;
    while (t->kept[k].node.level != node.level || t->kept[k].node.index != node.index)
        k++;
    copy(u, UNIT_GRADS, t->kept[k].buffer, part, out, NULL);
}

void unit_unpack_grads(struct unit *u, const struct param_share *part, const float *in)
{
    copy(u, UNIT_GRADS, u->grads->tree.kept[0].buffer, part, NULL, in);
}

void unit_pack_values(const struct unit *u, const struct param_share *part, float *out)
{
    copy(u, UNIT_VALUES, 0, part, out, NULL);
}

void unit_unpack_values(struct unit *u, const struct param_share *part, const float *in)
{
    copy(u, UNIT_VALUES, 0, part, NULL, in);
}
