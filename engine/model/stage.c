/* SPDX-License-Identifier: MIT
 *
 * Opening a stage: which shards to map, every tensor bound and checked, all memory carved from four
 * slabs whose layout is written once and serves measuring and carving alike. */
#include "model/stage_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool trains_all(const struct stage_spec *spec)
{
    return spec->tune.kind == TUNE_FULL && spec->training;
}

static size_t stage_layers(const struct stage_spec *spec)
{
    return spec->end_layer - spec->first_layer;
}

/* --- adapters --------------------------------------------------------------------------------- */

size_t stage_sets(const struct stage_spec *spec)
{
    return 1 + spec->nmore;
}

void stage_select_adapter(struct stage *s, size_t adapter)
{
    if (s->tune == &s->tunes[adapter])
        return;
    s->tune = &s->tunes[adapter];
    for (size_t i = 0; i < s->nunits; i++)
        if (s->units[i].most)
            unit_choose(&s->units[i], adapter);
}

/* --- layouts ---------------------------------------------------------------------------------- */

static void carve_params(struct stage *s, struct slab *slab)
{
    const struct config *c = &s->spec.config;
    for (size_t i = 0; i < s->nunits; i++)
        unit_carve(&s->units[i], slab, s->spec.training);
    s->tune = NULL; /* carving chose for each unit */
    stage_select_adapter(s, 0);
    bool tied = s->head && c->tied && s->spec.tune.kind == TUNE_FULL;
    s->tied_grad = tied && s->spec.training ? slab_floats(slab, c->vocab, c->dim) : NULL;
    s->tied_weight = tied && !s->embed ? slab_floats(slab, c->vocab, c->dim) : NULL;
}

size_t stage_cached(const struct stage_spec *spec)
{
    return spec->kv && !spec->kv_blocks ? spec->positions : spec->sample;
}

static struct block_layout layout_of(const struct stage *s, size_t layer)
{
    return (struct block_layout){&s->spec.config,   &s->layer0[layer].block,
                                 s->spec.tokens,    s->spec.kv ? stage_cached(&s->spec) : 0,
                                 s->spec.kv_blocks, s->spec.kv_type};
}

static struct block_layout cached_layout_of(const struct stage *s, size_t layer)
{
    struct block_layout layout = layout_of(s, layer);
    layout.positions = stage_cached(&s->spec);
    layout.blocks = 0;
    if (layout.tokens > layout.positions)
        layout.tokens = layout.positions;
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
    made.dbottom = s->embed && trains_all(spec) ? slab_floats(slab, t, d) : NULL;
    made.in.x = slab_take(slab, s->layers + 1, 1, sizeof *made.in.x);
    made.in.saved = slab_take(slab, s->layers, 1, sizeof *made.in.saved);
    made.in.dys = slab_take(slab, s->layers, 1, sizeof *made.in.dys);
    made.in.dy = slab_take(slab, s->layers, 1, sizeof *made.in.dy);
    if (slab->base)
        *slot = made;
}

static size_t stage_activations(const struct stage_spec *spec)
{
    return spec->activations ? spec->activations : spec->slots;
}

static size_t stage_bwd_x_only(const struct stage_spec *spec)
{
    return spec->bwd_x_only ? spec->bwd_x_only : spec->slots;
}

static size_t stage_bwd_w_only(const struct stage_spec *spec)
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

static void carve_slots(struct stage *s, struct slab *slab)
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

static void carve_work(struct stage *s, struct slab *slab)
{
    const struct stage_spec *spec = &s->spec;
    size_t t = spec->tokens, d = spec->config.dim;
    carve_shared(s, slab);
    for (int i = 0; i < 2; i++)
        s->ping[i] = slab_floats(slab, t, d);
    s->hn = s->head ? slab_floats(slab, t, d) : NULL;
    s->dh = s->head && spec->training ? slab_floats(slab, t, d) : NULL;
    s->rstd = s->head ? slab_floats(slab, t, 1) : NULL;
    const size_t logits = spec->kv_blocks ? spec->logit_rows : stage_cached(spec) ? 1 : 0;
    s->logits = s->head && logits ? slab_floats(slab, logits, spec->config.vocab) : NULL;
    const size_t rows = spec->kv_blocks ? t : 0;
    s->spans = slab_take(slab, rows, 1, sizeof *s->spans);
    s->set = slab_take(slab, rows, 1, sizeof *s->set);
    s->pos = slab_take(slab, rows, 1, sizeof *s->pos);
}

static void carve_pool(struct stage *s, struct slab *slab)
{
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

static void carve_kv(struct stage *s, struct slab *slab)
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

/* --- units ------------------------------------------------------------------------------------ */

static int add_unit(struct stage *s, struct unit **ret, size_t index, struct err *err)
{
    struct unit *u = &s->units[s->nunits++];
    if (ret)
        *ret = u;
    return unit_init(u, s->family, &s->spec.config, s->tunes, stage_sets(&s->spec), index, err);
}

static void free_units(struct stage *s)
{
    for (size_t i = 0; i < s->nunits; i++)
        unit_done(&s->units[i]);
    unit_done(&s->lender);
    free(s->units);
    free(s->tunes);
}

/* What cannot be, whatever the model's size. */
static int check_spec(const struct stage_spec *spec, struct err *err)
{
    const struct config *c = &spec->config;
    if (spec->tune.kind == TUNE_FULL && (c->quant_bits || spec->weight_bits))
        return err_set(err, -ENOTSUP,
                       "quantized weights are not trained: train LoRA on them, or take the model in bfloat16 "
                       "with --weights stored");
    if (spec->kv_blocks && (!spec->kv || spec->sample))
        return err_set(err, -EINVAL, "a stage with a paged KV pool serves, and does nothing else");
    if (spec->kv_blocks > UINT32_MAX)
        return err_set(err, -EOVERFLOW, "%zu blocks of keys and values are more than can be numbered",
                       spec->kv_blocks);
    if (c->quant_bits && spec->weight_bits)
        return err_set(err, -EINVAL, "this model is stored in %zu bits already: leave out --weights",
                       c->quant_bits);
    return 0;
}

static int make_units(struct stage *s, struct err *err)
{
    const struct stage_spec *spec = &s->spec;
    const struct config *c = &spec->config;
    s->family = family_find(c->family);
    if (!s->family)
        return err_set(err, -ENOTSUP, "models of the family \"%s\" are not supported", c->family);
    if (spec->first_layer > spec->end_layer || spec->end_layer > c->layers)
        return err_set(err, -EINVAL, "layers %zu to %zu do not exist in a model of %zu layers",
                       spec->first_layer, spec->end_layer, c->layers);
    if (spec->tune.random_init && spec->tune.kind != TUNE_FULL)
        return err_set(
            err, -EINVAL,
            "random weights are for training all of a model: name a model to read, or train it fully");
    if (spec->tune.kind == TUNE_FULL && c->fp8)
        return err_set(err, -ENOTSUP,
                       "weights stored as FP8 are not trained here: train LoRA on them, or take the model in "
                       "bfloat16");
    int r = check_spec(spec, err);
    if (r)
        return r;
    s->layers = stage_layers(spec);
    size_t lowest = tune_lowest_layer(&spec->tune, c);
    s->lowest = lowest > spec->first_layer ? lowest - spec->first_layer : 0;
    s->units = calloc(s->layers + 2, sizeof *s->units);
    s->tunes = calloc(stage_sets(spec), sizeof *s->tunes);
    if (!s->units || !s->tunes)
        return err_set(err, -ENOMEM, "out of memory");
    s->tunes[0] = spec->tune;
    for (size_t a = 0; a < spec->nmore; a++)
        s->tunes[a + 1] = spec->more[a];
    r = spec->embed ? add_unit(s, &s->embed, 0, err) : 0;
    s->layer0 = &s->units[s->nunits];
    for (size_t l = spec->first_layer; l < spec->end_layer && !r; l++)
        r = add_unit(s, NULL, l + 1, err);
    if (!r && spec->head)
        r = add_unit(s, &s->head, c->layers + 1, err);
    if (!r && stage_head_borrows(s) && spec->tune.kind != TUNE_FULL)
        r = unit_init(&s->lender, s->family, c, &spec->tune, 1, 0, err);
    return r;
}

static size_t mapped_bytes(const struct stage *s, const struct quant_forms *forms)
{
    const struct config *c = &s->spec.config;
    const size_t bits = s->spec.weight_bits;
    size_t bytes = s->lender.ntensors ? unit_mapped(&s->lender, c, forms, bits) : 0;
    for (size_t i = 0; i < s->nunits; i++)
        bytes += unit_mapped(&s->units[i], c, forms, bits);
    return bytes;
}

static void stage_free(struct stage *s)
{
    slab_free(&s->params);
    slab_free(&s->slots);
    if (!s->spec.scratch)
        slab_free(&s->work);
    slab_free(&s->kvs);
    st_close(s->st);
    for (size_t i = 0; i < ROPE_TABLES; i++)
        rope_done(&s->ropes[i]);
    free(s->slot);
    free(s->activations);
    free(s->bwd_x_only);
    free(s->bwd_w_only);
    free(s->block_work);
    free(s->cached_work);
    free(s->shared_dys);
    free(s->shared_saved);
    free_units(s);
}

/* What its layers touch of num's block. */
static size_t shared_scratch(const struct stage_spec *spec)
{
    const struct config *c = &spec->config;
    const size_t wide = c->ffn > c->dim ? c->ffn : c->dim;
    size_t most = spec->head && !spec->kv ? xent_scratch(spec->tokens, c->vocab, c->dim) : 0;
    bool drops = spec->tune.dropout > 0;
    for (size_t a = 0; a < spec->nmore; a++)
        drops = drops || spec->more[a].dropout > 0;
    if (spec->training && drops && spec->tokens * wide > most)
        most = spec->tokens * wide;
    return most < NUM_BLOCK_FLOATS ? most : NUM_BLOCK_FLOATS;
}

int stage_measure(struct stage_bytes *ret, const struct stage_spec *spec, struct err *err)
{
    struct stage s = {.spec = *spec};
    struct quant_forms *forms = NULL;
    int r = make_units(&s, err);
    if (!r)
        r = quant_forms_open(&forms, spec->model_dir, &spec->config, err);
    if (!r) {
        carve_params(&s, &s.params);
        carve_slots(&s, &s.slots);
        carve_work(&s, &s.work);
        carve_kv(&s, &s.kvs);
        if (s.params.overflow || s.slots.overflow || s.work.overflow || s.kvs.overflow)
            r = err_set(err, -EOVERFLOW,
                        "the memory of this stage does not fit this machine's address space");
    }
    if (!r) {
        *ret = (struct stage_bytes){
            trains_all(spec) ? 0 : mapped_bytes(&s, forms),     s.params.used, s.slots.used,
            s.work.used + shared_scratch(spec) * sizeof(float), s.kvs.used,    0};
        ret->total = ret->mapped + ret->params + ret->slots + ret->work + ret->kv;
    }
    quant_forms_close(forms);
    free_units(&s);
    return r;
}

int stage_measure_units(size_t *ret, const struct stage_spec *spec, struct err *err)
{
    struct stage s = {.spec = *spec};
    struct quant_forms *forms = NULL;
    int r = make_units(&s, err);
    if (!r)
        r = quant_forms_open(&forms, spec->model_dir, &spec->config, err);
    for (size_t i = 0; i < s.nunits && !r; i++)
        ret[i] = trains_all(spec) ? 0 : unit_mapped(&s.units[i], &spec->config, forms, spec->weight_bits);
    quant_forms_close(forms);
    free_units(&s);
    return r;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Its scratch is that of others too. */
static int borrow_scratch(struct stage *s, struct err *err)
{
    s->work = (struct slab){.base = s->spec.scratch->base, .overlaps = s->spec.scratch->overlaps};
    carve_work(s, &s->work);
    if (!s->work.overflow && s->work.used <= s->spec.scratch->used)
        return 0;
    return err_set(err, -ENOBUFS, "the scratch of a stage needs %zu bytes, but only %zu are set aside",
                   s->work.used, s->spec.scratch->used);
}

static int carve_all(struct stage *s, struct err *err)
{
    static void (*const carve[])(struct stage *, struct slab *) = {carve_params, carve_slots, carve_work,
                                                                   carve_kv};
    static const char *const what[] = {"trained parameters", "activations of microbatches in flight",
                                       "scratch", "KV cache"};
    struct slab *const slabs[] = {&s->params, &s->slots, &s->work, &s->kvs};
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++) {
        if (slabs[i] == &s->work && s->spec.scratch)
            continue;
        carve[i](s, slabs[i]);
        int r = slab_alloc(slabs[i], what[i], err);
        if (r)
            return r;
        carve[i](s, slabs[i]);
    }
    return s->spec.scratch ? borrow_scratch(s, err) : 0;
}

static int open_table(struct stage *s, enum rope_table table, const double *inv, size_t rows, double scale,
                      struct err *err)
{
    const struct config *c = &s->spec.config;
    return rope_init(&s->ropes[table], inv, rows, config_rope_width(c),
                     c->rope_pairs ? ROPE_NEIGHBOURS : ROPE_HALVES, scale, err);
}

/* Where longer texts are rotated otherwise, their rows lie behind those of the others. */
static int open_ropes(struct stage *s, struct err *err)
{
    const struct config *c = &s->spec.config;
    const size_t positions = s->spec.positions > s->spec.sample ? s->spec.positions : s->spec.sample,
                 first = config_is_long(c, positions) ? c->rope_original : positions;
    double *inv = calloc(config_rope_width(c) / 2 + 1, sizeof *inv);
    if (!inv)
        return err_set(err, -ENOMEM, "out of memory");
    config_inv_freq(c, inv);
    int r = open_table(s, ROPE_OF_ALL, inv, first, config_rope_scale(c), err);
    if (!r && c->rope_query_beta > 0)
        r = open_table(s, ROPE_OF_QUERY, inv, first, config_rope_scale(c), err);
    for (size_t p = 0; !r && c->rope_query_beta > 0 && p < first; p++)
        rope_scale_row(&s->ropes[ROPE_OF_QUERY], p, config_query_scale(c, p));
    if (!r && first < positions) {
        s->long_row = first;
        config_inv_freq_long(c, inv);
        r = rope_extend(&s->ropes[ROPE_OF_ALL], inv, positions, config_rope_scale(c), err);
    }
    if (!r && c->rope_window_theta > 0) {
        config_inv_freq_window(c, inv);
        r = open_table(s, ROPE_OF_WINDOW, inv, positions, 1, err);
    }
    free(inv);
    return r;
}

int stage_open(struct stage **ret, struct num *num, const struct stage_spec *spec, struct err *err)
{
    struct stage *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "out of memory");
    s->num = num;
    s->spec = *spec;
    int r = make_units(s, err);
    if (!r && !spec->tune.random_init)
        r = stage_open_files(s, err);
    s->slot = calloc(spec->slots + 1, sizeof *s->slot);
    s->activations = calloc(stage_activations(spec) + 1, sizeof *s->activations);
    s->bwd_x_only = calloc(stage_bwd_x_only(spec) + 1, sizeof *s->bwd_x_only);
    s->bwd_w_only = calloc(stage_bwd_w_only(spec) + 1, sizeof *s->bwd_w_only);
    s->block_work = calloc(s->layers + 1, sizeof *s->block_work);
    s->cached_work = calloc(s->layers + 1, sizeof *s->cached_work);
    s->shared_dys = calloc(s->layers + 1, sizeof *s->shared_dys);
    s->shared_saved = calloc(s->layers + 1, sizeof *s->shared_saved);
    if (!r && (!s->slot || !s->activations || !s->bwd_x_only || !s->bwd_w_only || !s->block_work ||
               !s->cached_work || !s->shared_dys || !s->shared_saved))
        r = err_set(err, -ENOMEM, "out of memory");
    if (!r)
        r = carve_all(s, err);
    if (!r)
        r = stage_bind(s, err);
    if (!r && trains_all(spec)) { /* every weight has been copied: its pages need not stay */
        st_close(s->st);
        s->st = NULL;
    }
    if (!r)
        r = open_ropes(s, err);
    if (r) {
        stage_close(s);
        return r;
    }
    stage_select_adapter(s, 0);
    *ret = s;
    return 0;
}

void stage_close(struct stage *s)
{
    if (!s)
        return;
    stage_free(s);
    free(s);
}

void stage_requanted(const struct stage *s, struct requant_told *ret)
{
    *ret = s->told;
}
