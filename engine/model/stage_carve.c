/* SPDX-License-Identifier: MIT
 *
 * The memory of a stage: what lies where in its four slabs. A layout is written once and serves
 * measuring, with slabs that have no base, and carving alike. Called by stage.c. */
#include "model/stage_impl.h"

#include "num/sizes.h"

bool stage_trains_all(const struct stage_spec *spec)
{
    return spec->tune.kind == TUNE_FULL && spec->training;
}

struct grad_groups stage_groups(const struct stage_spec *spec)
{
    const size_t all = spec->groups ? spec->groups : 1;
    return (struct grad_groups){.groups = all,
                                .first = spec->first_group,
                                .end = spec->end_group ? spec->end_group : all,
                                .slice = spec->updated,
                                .slices = spec->updates ? spec->updates : 1};
}

void stage_carve_params(struct stage *s, struct slab *slab)
{
    const struct config *c = &s->spec.config;
    const struct grad_groups groups = stage_groups(&s->spec);
    for (size_t i = 0; i < s->nunits; i++)
        unit_carve(&s->units[i], slab, s->spec.training ? &groups : NULL);
    bool tied = s->head && c->tied && s->spec.tune.kind == TUNE_FULL;
    if (tied && s->spec.training)
        unit_carve_lent(s->head, slab, c->vocab, c->dim);
    s->tied_weight = tied && !s->embed ? slab_floats(slab, c->vocab, c->dim) : NULL;
}

static struct block_layout layout_of(const struct stage *s, size_t layer)
{
    return (struct block_layout){.config = &s->own,
                                 .whole = slice_is_part(s->spec.slice) && s->spec.training ? &s->spec.config
                                                                                           : NULL,
                                 .block = &s->layer0[layer].block,
                                 .tokens = s->spec.tokens,
                                 .positions = s->spec.kv ? stage_cached(&s->spec) : 0,
                                 .blocks = s->spec.kv_blocks,
                                 .ring_blocks = s->layer0[layer].block.layer.window ? s->spec.ring_blocks : 0,
                                 .states = s->spec.states,
                                 .kept = s->spec.kept,
                                 .guesses = s->spec.guesses,
                                 .kv_type = s->spec.kv_type,
                                 .longest = s->spec.positions};
}

static struct block_layout cached_layout_of(const struct stage *s, size_t layer)
{
    struct block_layout layout = layout_of(s, layer);
    layout.positions = layout.longest = stage_cached(&s->spec);
    layout.blocks = layout.ring_blocks = layout.states = layout.kept = layout.guesses = 0;
    if (layout.tokens > layout.positions)
        layout.tokens = layout.positions;
    layout.ring = layout.block->layer.window ? stage_ring(&s->spec) : 0;
    return layout;
}

static size_t slot_tokens(const struct stage_spec *spec)
{
    return spec->kv ? 0 : spec->tokens; /* generation keeps nothing but positions */
}

/* What layers keep of a forward: in `keep` until backward_w, in `bwd_x_only` until backward_x. `to`
 * receives the pointers. */
static void carve_kept(const struct stage *s, struct kept *to, struct slab *keep, struct slab *bwd_x_only)
{
    const struct stage_spec *spec = &s->spec;
    for (size_t l = 0; l < s->layers; l++) {
        struct block_layout layout = layout_of(s, l);
        struct block_saved saved = {0};
        float *out = slab_floats(keep, slot_tokens(spec), spec->config.dim);
        if (!spec->kv && !spec->by_layer)
            block_saved_carve(&saved, keep, bwd_x_only, &layout);
        if (!to)
            continue;
        to->x[l + 1] = out;
        to->saved[l] = saved;
    }
}

/* What backward_x leaves for backward_w. */
static void carve_bwd_w_only(const struct stage *s, struct kept *to, struct slab *slab)
{
    const struct stage_spec *spec = &s->spec;
    for (size_t l = 0; spec->split_backward && l < s->layers; l++) {
        struct block_layout layout = layout_of(s, l);
        struct block_dys dys = {0};
        block_dys_carve(&dys, slab, &layout);
        float *dy = slab_floats(slab, slot_tokens(spec), spec->config.dim);
        if (!to)
            continue;
        to->dys[l] = dys;
        to->dy[l] = dy;
    }
}

void stage_use_activations(struct stage *s, size_t at, size_t activations, size_t bwd_x_only)
{
    struct slot *slot = &s->slot[at];
    struct slab keep = {.base = s->activations[activations]}, passing = {.base = s->bwd_x_only[bwd_x_only]};
    carve_kept(s, &slot->in, &keep, &passing);
    slot->in.x[0] = slot->input;
}

void stage_use_bwd_w_only(struct stage *s, size_t at, size_t bwd_w_only)
{
    struct slab slab = {.base = s->bwd_w_only[bwd_w_only]};
    carve_bwd_w_only(s, &s->slot[at].in, &slab);
}

static void carve_slot(struct stage *s, struct slot *slot, struct slab *slab)
{
    const struct stage_spec *spec = &s->spec;
    size_t t = slot_tokens(spec), d = spec->config.dim;
    struct slot made = {0};
    made.start = slab_take(slab, spec->seqs + 1, 1, sizeof *made.start);
    made.pos = slab_take(slab, spec->tokens, 1, sizeof *made.pos);
    made.ids = s->embed ? slab_take(slab, t, 1, sizeof *made.ids) : NULL;
    made.input = slab_floats(slab, t, d);
    made.dtop = s->head && spec->training ? slab_floats(slab, t, d) : NULL;
    made.dbottom = s->embed && stage_trains_all(spec) ? slab_floats(slab, t, d) : NULL;
    made.in.x = slab_take(slab, s->layers + 1, 1, sizeof *made.in.x);
    made.in.saved = slab_take(slab, s->layers, 1, sizeof *made.in.saved);
    made.in.dys = slab_take(slab, s->layers, 1, sizeof *made.in.dys);
    made.in.dy = slab_take(slab, s->layers, 1, sizeof *made.in.dy);
    if (slab->base)
        *slot = made;
}

size_t stage_activations(const struct stage_spec *spec)
{
    return spec->activations ? spec->activations : spec->slots;
}

size_t stage_bwd_x_only(const struct stage_spec *spec)
{
    return spec->bwd_x_only ? spec->bwd_x_only : spec->slots;
}

size_t stage_bwd_w_only(const struct stage_spec *spec)
{
    return spec->bwd_w_only ? spec->bwd_w_only : spec->slots;
}

static void carve_many(char **to, size_t n, const struct slab *one, struct slab *slab)
{
    slab->overflow = slab->overflow || one->overflow;
    for (size_t i = 0; i < n; i++) {
        char *at = slab_take(slab, one->used, 1, 1);
        if (slab->base)
            to[i] = at;
    }
}

void stage_carve_slots(struct stage *s, struct slab *slab)
{
    const struct stage_spec *spec = &s->spec;
    struct slab keep = {0}, bwd_x_only = {0}, bwd_w_only = {0};
    for (size_t i = 0; i < spec->slots; i++)
        carve_slot(s, s->slot ? &s->slot[i] : NULL, slab);
    carve_kept(s, NULL, &keep, &bwd_x_only);
    carve_bwd_w_only(s, NULL, &bwd_w_only);
    carve_many(s->activations, stage_activations(spec), &keep, slab);
    carve_many(s->bwd_x_only, stage_bwd_x_only(spec), &bwd_x_only, slab);
    carve_many(s->bwd_w_only, stage_bwd_w_only(spec), &bwd_w_only, slab);
    if (!slab->base)
        return;
    for (size_t i = 0; i < spec->slots; i++) {
        stage_use_activations(s, i, spec->activations ? 0 : i, spec->bwd_x_only ? 0 : i);
        stage_use_bwd_w_only(s, i, spec->bwd_w_only ? 0 : i);
    }
}

/* What one layer needs while it works; all layers get the same place, and so does generation
 * between steps. */
static void carve_shared(struct stage *s, struct slab *slab)
{
    const bool caches = stage_cached(&s->spec) > 0;
    const bool overlaps = slab->overlaps;
    slab->overlaps = true;
    const struct slab start = *slab;
    for (size_t l = 0; l < s->layers; l++) {
        struct block_layout layout = layout_of(s, l);
        struct block_layout caching = cached_layout_of(s, l);
        struct slab own = start, other = start;
        struct block_work w = {0}, c = {0};
        struct block_dys d = {0};
        struct block_saved kept = {0};
        block_work_carve(&w, &own, &layout);
        if (s->spec.training)
            block_dys_carve(&d, &own, &layout);
        if (s->spec.by_layer)
            block_saved_carve(&kept, &own, &own, &layout);
        if (caches)
            block_work_carve(&c, &other, &caching);
        if (slab->base) {
            s->block_work[l] = w;
            s->shared_dys[l] = d;
            s->cached_work[l] = c;
            s->shared_saved[l] = kept;
        }
        slab_join(slab, &own);
        slab_join(slab, &other);
    }
    slab->overlaps = overlaps;
}

static bool trains_magnitudes(const struct stage_spec *spec)
{
    bool has = spec->training && spec->tune.dora;
    for (size_t i = 0; i < spec->nmore && !has; i++)
        has = spec->training && spec->more[i].dora;
    return has;
}

/* Own columns of a part's output, and of gradients, where matrices or magnitudes get some. */
static size_t widest_own(const struct stage_spec *spec)
{
    const struct config *c = &spec->config;
    const size_t
        dim = slice_rows(spec->slice, c->dim, SLICE_ANY).n,
        ffn = slice_rows(spec->slice, max_size(c->ffn, max_size(c->moe.ffn, c->moe.shared_ffn)), SLICE_ANY).n,
        heads = slice_rows(spec->slice, c->heads, c->heads / c->kv_heads).n;
    return stage_trains_all(spec) || trains_magnitudes(spec)
               ? max_size(max_size(dim, c->heads), max_size(ffn, 2 * heads * c->head))
               : dim;
}

/* Of a slice: the widest rows that it gathers before a product, and the widest that it gives. */
static void carve_gather(struct stage *s, struct slab *slab, size_t logits)
{
    const struct stage_spec *spec = &s->spec;
    const struct config *c = &spec->config;
    const size_t t = spec->tokens, experts = c->moe.experts ? part_moe_rows(c, t) : 0;
    const size_t dense = max_size(c->heads * c->head, max_size(c->ffn, c->moe.shared_ffn));
    s->gather.wide = slab_floats(slab, max_size(t * dense, experts * c->moe.ffn), 1);
    s->gather.own = slab_floats(slab, t, widest_own(spec));
    const size_t vocab = slice_rows(spec->slice, c->vocab, SLICE_ANY).n;
    s->own_logits = slab_floats(slab, logits, max_size(vocab, slice_rows(spec->slice, c->dim, SLICE_ANY).n));
}

void stage_carve_work(struct stage *s, struct slab *slab)
{
    const struct stage_spec *spec = &s->spec;
    size_t t = spec->tokens, d = spec->config.dim;
    carve_shared(s, slab);
    for (int i = 0; i < 2; i++)
        s->ping[i] = slab_floats(slab, t, d);
    s->both = spec->config.is_ahead ? slab_floats(slab, t, 2 * d) : NULL;
    s->hn = s->head ? slab_floats(slab, t, d) : NULL;
    s->dh = s->head && spec->training ? slab_floats(slab, t, d) : NULL;
    s->rstd = s->head ? slab_floats(slab, t, 1) : NULL;
    s->logprob = s->head && spec->pairs ? slab_floats(slab, t, 1) : NULL;
    s->weight = s->head && spec->pairs ? slab_floats(slab, t, 1) : NULL;
    const size_t logits = spec->kv_blocks ? spec->logit_rows : stage_cached(spec) ? 1 : 0;
    s->logits = s->head && logits ? slab_floats(slab, logits, spec->config.vocab) : NULL;
    const size_t losses = spec->training ? xent_rows(t, spec->config.vocab, d) : 0;
    if (slice_is_part(spec->slice))
        carve_gather(s, slab, s->head ? max_size(logits, losses) : 0);
    const size_t rows = spec->kv_blocks ? t : 0;
    s->spans = slab_take(slab, rows, 1, sizeof *s->spans);
    s->set = slab_take(slab, rows, 1, sizeof *s->set);
    s->pos = slab_take(slab, rows, 1, sizeof *s->pos);
    s->pieces = slab_take(slab, rows, 1, sizeof *s->pieces);
}

static void carve_pool(struct stage *s, struct slab *slab)
{
    s->states = slab_take(slab, 2, s->spec.states + s->spec.kept, sizeof *s->states);
    union part_pool *pool = slab_take(slab, s->layers, 1, sizeof *pool);
    for (size_t l = 0; l < s->layers; l++) {
        const struct block_layout layout = layout_of(s, l);
        union part_pool at;
        block_pool_carve(&at, slab, &layout);
        if (slab->base)
            pool[l] = at;
    }
    s->pool = pool;
}

void stage_carve_kv(struct stage *s, struct slab *slab)
{
    if (s->spec.kv_blocks)
        carve_pool(s, slab);
    if (!stage_cached(&s->spec))
        return;
    union part_kv *kv = slab_take(slab, s->layers, 1, sizeof *kv);
    for (size_t l = 0; l < s->layers; l++) {
        struct block_layout layout = cached_layout_of(s, l);
        union part_kv at;
        block_kv_carve(&at, slab, &layout);
        if (slab->base)
            kv[l] = at;
    }
    s->kv = kv;
}
