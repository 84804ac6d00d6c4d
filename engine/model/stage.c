/* SPDX-License-Identifier: MIT
 *
 * Opening a stage: which shards to map, every tensor bound and checked, and four slabs of memory,
 * whose layout is in stage_carve.c. */
#include "model/stage_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/sizes.h"

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

void stage_select_no_adapter(struct stage *s)
{
    s->tune = NULL;
    for (size_t i = 0; i < s->nunits; i++)
        if (s->units[i].most)
            unit_choose_none(&s->units[i]);
}

static void carve_params(struct stage *s, struct slab *slab)
{
    stage_carve_params(s, slab);
    s->tune = NULL; /* carving chose for each unit */
    stage_select_adapter(s, 0);
}

/* --- units ------------------------------------------------------------------------------------ */

/* What is used forward and back is there whole: back, a slice multiplies by columns. */
static struct unit_which unit_which(const struct stage *s, size_t index)
{
    return (struct unit_which){index, s->spec.slice, slice_is_part(s->spec.slice) && s->spec.training};
}

static int add_unit(struct stage *s, struct unit **ret, size_t index, struct err *err)
{
    struct unit *u = &s->units[s->nunits++];
    if (ret)
        *ret = u;
    return unit_init(u, s->family, &s->spec.config, s->tunes, stage_sets(&s->spec), unit_which(s, index),
                     err);
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
    if (spec->tune.kind == TUNE_FULL && (c->quant_bits || c->experts_fp4 || spec->weight_bits))
        return err_set(err, -ENOTSUP,
                       "quantized weights are not trained: train LoRA on them, or take the model in bfloat16 "
                       "with --weights stored");
    if (spec->kv_blocks && (!spec->kv || spec->sample))
        return err_set(err, -EINVAL, "a stage with a paged KV pool serves, and does nothing else");
    if (spec->kv_blocks > UINT32_MAX)
        return err_set(err, -EOVERFLOW, "%zu blocks of keys and values are more than can be numbered",
                       spec->kv_blocks);
    if (spec->guesses > STAGE_GUESSES)
        return err_set(err, -EINVAL, "%zu guesses behind a text are more than %d", spec->guesses,
                       STAGE_GUESSES);
    if (c->quant_bits && spec->weight_bits)
        return err_set(err, -EINVAL, "this model is stored in %zu bits already: leave out --weights",
                       c->quant_bits);
    if (slice_is_part(spec->slice) && !spec->kv && !spec->training)
        return err_set(err, -EINVAL, "a stage that is shared by several ranks generates or trains");
    return slice_check(c, spec->slice.count, spec->training, err);
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
    s->own = slice_config(c, spec->slice);
    s->gather.how = spec->gather;
    s->layers = stage_layers(spec);
    s->has_state = stage_has_state(spec);
    size_t lowest = tune_lowest_layer(&spec->tune, c);
    s->lowest = lowest > spec->first_layer ? lowest - spec->first_layer : 0;
    s->units = calloc(s->layers + 2, sizeof *s->units);
    s->tunes = calloc(stage_sets(spec), sizeof *s->tunes);
    if (!s->units || !s->tunes)
        return err_set(err, -ENOMEM, "out of memory");
    s->tunes[0] = spec->tune;
    for (size_t a = 0; a < spec->nmore; a++)
        s->tunes[a + 1] = spec->more[a];
    for (size_t a = 0; a < stage_sets(spec) && !r; a++)
        r = tune_check(&s->tunes[a], s->family, c, err);
    if (r)
        return r;
    r = spec->embed ? add_unit(s, &s->embed, 0, err) : 0;
    s->layer0 = &s->units[s->nunits];
    for (size_t l = spec->first_layer; l < spec->end_layer && !r; l++)
        r = add_unit(s, NULL, l + 1, err);
    if (!r && spec->head)
        r = add_unit(s, &s->head, c->layers + 1, err);
    if (!r && stage_head_borrows(s) && spec->tune.kind != TUNE_FULL)
        r = unit_init(&s->lender, s->family, c, &spec->tune, 1, unit_which(s, 0), err);
    return r;
}

static int mapped_bytes(size_t *ret, const struct stage *s, const struct quant_forms *forms, struct err *err)
{
    const struct config *c = &s->spec.config;
    const size_t bits = s->spec.weight_bits;
    const struct slice part = s->spec.training ? (struct slice){0, 1} : s->spec.slice;
    const struct slice_rows rows = slice_rows(part, c->vocab, SLICE_ANY);
    size_t own = 0;
    int r = s->lender.ntensors ? unit_mapped(&own, &s->lender, c, forms, bits, err) : 0;
    *ret = own / c->vocab * rows.n; /* only rows */
    for (size_t i = 0; i < s->nunits && !r; i++) {
        r = unit_mapped(&own, &s->units[i], c, forms, bits, err);
        *ret += own;
    }
    return r;
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
    size_t mapped = 0;
    int r = make_units(&s, err);
    if (!r)
        r = quant_forms_open(&forms, spec->model_dir, &spec->config, err);
    if (!r && !stage_trains_all(spec))
        r = mapped_bytes(&mapped, &s, forms, err);
    if (!r) {
        carve_params(&s, &s.params);
        stage_carve_slots(&s, &s.slots);
        stage_carve_work(&s, &s.work);
        stage_carve_kv(&s, &s.kvs);
        if (s.params.overflow || s.slots.overflow || s.work.overflow || s.kvs.overflow)
            r = err_set(err, -EOVERFLOW,
                        "the memory of this stage does not fit this machine's address space");
    }
    if (!r) {
        *ret = (struct stage_bytes){mapped,       s.params.used,
                                    s.slots.used, s.work.used + shared_scratch(spec) * sizeof(float),
                                    s.kvs.used,   0};
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
    for (size_t i = 0; i < s.nunits && !r; i++) {
        ret[i] = 0;
        if (!stage_trains_all(spec))
            r = unit_mapped(&ret[i], &s.units[i], &spec->config, forms, spec->weight_bits, err);
    }
    quant_forms_close(forms);
    free_units(&s);
    return r;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Its scratch is that of others too. */
static int borrow_scratch(struct stage *s, struct err *err)
{
    s->work = (struct slab){.base = s->spec.scratch->base, .overlaps = s->spec.scratch->overlaps};
    stage_carve_work(s, &s->work);
    if (!s->work.overflow && s->work.used <= s->spec.scratch->used)
        return 0;
    return err_set(err, -ENOBUFS, "the scratch of a stage needs %zu bytes, but only %zu are set aside",
                   s->work.used, s->spec.scratch->used);
}

static int carve_all(struct stage *s, struct err *err)
{
    static void (*const carve[])(struct stage *, struct slab *) = {carve_params, stage_carve_slots,
                                                                   stage_carve_work, stage_carve_kv};
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
    if (!r && stage_trains_all(spec)) { /* every weight has been copied: its pages need not stay */
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
