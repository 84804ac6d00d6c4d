/* SPDX-License-Identifier: MIT
 *
 * Opening a stage: which shards to map, every tensor bound and checked, all memory carved from four slabs
 * whose layout is written once and serves measuring and carving alike. */
#include "model/stage_priv.h"

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

/* --- layouts ---------------------------------------------------------------------------------- */

static void carve_params(struct stage *s, struct slab *slab)
{
    const struct config *c = &s->spec.config;
    for (size_t i = 0; i < s->nunits; i++)
        unit_carve(&s->units[i], slab, s->spec.training);
    bool tied = s->head && c->tied && s->spec.tune.kind == TUNE_FULL;
    s->tied_grad = tied && s->spec.training ? slab_floats(slab, c->vocab, c->dim) : NULL;
    s->tied_weight = tied && !s->embed ? slab_floats(slab, c->vocab, c->dim) : NULL;
}

static struct block_layout layout_of(const struct stage *s, size_t layer)
{
    return (struct block_layout){&s->spec.config, &s->layer0[layer].weights, s->spec.tokens,
                                 s->spec.kv ? s->spec.positions : 0};
}

static void carve_slot(struct stage *s, struct slot *slot, struct slab *slab)
{
    const struct stage_spec *spec = &s->spec;
    size_t t = spec->kv ? 0 : spec->tokens, d = spec->config.dim; /* generation keeps nothing but positions */
    struct slot made = {0};
    made.start = slab_take(slab, spec->seqs + 1, 1, sizeof *made.start);
    made.pos = slab_take(slab, spec->tokens, 1, sizeof *made.pos);
    made.ids = s->embed ? slab_take(slab, t, 1, sizeof *made.ids) : NULL;
    made.x = slab_take(slab, s->layers + 1, 1, sizeof *made.x);
    made.saved = slab_take(slab, s->layers, 1, sizeof *made.saved);
    made.dys = spec->split_backward ? slab_take(slab, s->layers, 1, sizeof *made.dys) : NULL;
    made.dy = spec->split_backward ? slab_take(slab, s->layers, 1, sizeof *made.dy) : NULL;
    for (size_t l = 0; l < s->layers; l++) {
        struct block_layout layout = layout_of(s, l);
        float *x = slab_floats(slab, t, d);
        struct block_saved *saved = spec->kv ? NULL : s->family->saved_carve(slab, &layout);
        struct block_dys *dys = spec->split_backward ? s->family->dys_carve(slab, &layout) : NULL;
        float *dy = spec->split_backward ? slab_floats(slab, t, d) : NULL;
        if (!slab->base)
            continue;
        made.x[l] = x;
        made.saved[l] = saved;
        if (spec->split_backward) {
            made.dys[l] = dys;
            made.dy[l] = dy;
        }
    }
    float *last = slab_floats(slab, t, d);
    made.dtop = s->head && spec->training ? slab_floats(slab, t, d) : NULL;
    made.dbottom = s->embed && trains_all(spec) ? slab_floats(slab, t, d) : NULL;
    if (slab->base) {
        made.x[s->layers] = last;
        *slot = made;
    }
}

static void carve_slots(struct stage *s, struct slab *slab)
{
    for (size_t i = 0; i < s->spec.slots; i++)
        carve_slot(s, s->slot ? &s->slot[i] : NULL, slab);
}

/* The layer whose needs cover those of all others: one that has LoRA, where any has. */
static size_t widest_layer(const struct stage *s)
{
    return s->lowest < s->layers ? s->lowest : 0;
}

static void carve_work(struct stage *s, struct slab *slab)
{
    const struct stage_spec *spec = &s->spec;
    size_t t = spec->tokens, d = spec->config.dim;
    if (s->layers) {
        struct block_layout layout = layout_of(s, widest_layer(s));
        s->block_work = s->family->work_carve(slab, &layout);
        s->shared_dys = spec->training ? s->family->dys_carve(slab, &layout) : NULL;
    }
    for (int i = 0; i < 2; i++)
        s->ping[i] = slab_floats(slab, t, d);
    s->hn = s->head ? slab_floats(slab, t, d) : NULL;
    s->dh = s->head && spec->training ? slab_floats(slab, t, d) : NULL;
    s->rstd = s->head ? slab_floats(slab, t, 1) : NULL;
    s->logits = s->head && spec->kv ? slab_floats(slab, spec->config.vocab, 1) : NULL;
}

static void carve_kv(struct stage *s, struct slab *slab)
{
    if (!s->spec.kv)
        return;
    struct block_kv **kv = slab_take(slab, s->layers, 1, sizeof *kv);
    for (size_t l = 0; l < s->layers; l++) {
        struct block_layout layout = layout_of(s, l);
        struct block_kv *at = s->family->kv_carve(slab, &layout);
        if (slab->base)
            kv[l] = at;
    }
    s->kv = kv;
}

/* --- units ------------------------------------------------------------------------------------ */

static int make_units(struct stage *s, struct err *err)
{
    const struct stage_spec *spec = &s->spec;
    const struct config *c = &spec->config;
    s->family = family_find(c->family);
    if (!s->family)
        return err_set(err, -ENOTSUP, "models of the family \"%s\" are not known here", c->family);
    if (spec->first_layer > spec->end_layer || spec->end_layer > c->layers)
        return err_set(err, -EINVAL, "layers %zu to %zu are not layers of a model that has %zu",
                       spec->first_layer, spec->end_layer, c->layers);
    if (spec->tune.random_init && spec->tune.kind != TUNE_FULL)
        return err_set(
            err, -EINVAL,
            "random weights are for training all of a model: name a model to read, or train it fully");
    s->layers = stage_layers(spec);
    size_t lowest = tune_lowest_layer(&spec->tune, c);
    s->lowest = lowest > spec->first_layer ? lowest - spec->first_layer : 0;
    s->units = calloc(s->layers + 2, sizeof *s->units);
    if (!s->units)
        return err_set(err, -ENOMEM, "out of memory");
    if (spec->embed)
        unit_init(s->embed = &s->units[s->nunits++], s->family, c, &spec->tune, 0);
    s->layer0 = &s->units[s->nunits];
    for (size_t l = spec->first_layer; l < spec->end_layer; l++)
        unit_init(&s->units[s->nunits++], s->family, c, &spec->tune, l + 1);
    if (spec->head)
        unit_init(s->head = &s->units[s->nunits++], s->family, c, &spec->tune, c->layers + 1);
    return 0;
}

/* A tied head on a stage without the embedding still reads the embedding's tensor. */
static bool head_borrows(const struct stage *s)
{
    return s->head && s->spec.config.tied && !s->embed;
}

static bool wants_tensor(void *arg, const char *name)
{
    const struct stage *s = arg;
    for (size_t i = 0; i < s->nunits; i++)
        for (size_t t = 0; t < s->units[i].ntensors; t++)
            if (!strcmp(s->units[i].defs[t].name, name))
                return true;
    struct tensor_def embed[UNIT_MAX_TENSORS];
    s->family->tensors(&s->spec.config, 0, embed);
    return head_borrows(s) && !strcmp(embed[0].name, name);
}

static size_t mapped_bytes(const struct stage *s)
{
    const struct config *c = &s->spec.config;
    size_t bytes = 0, size = dtype_size(c->dtype);
    for (size_t i = 0; i < s->nunits; i++)
        for (size_t t = 0; t < s->units[i].ntensors; t++)
            bytes +=
                s->units[i].defs[t].cols ? s->units[i].defs[t].rows * s->units[i].defs[t].cols * size : 0;
    return bytes + (head_borrows(s) ? c->vocab * c->dim * size : 0);
}

static void stage_free(struct stage *s)
{
    slab_free(&s->params);
    slab_free(&s->slots);
    slab_free(&s->work);
    slab_free(&s->kvs);
    st_close(s->st);
    rope_done(&s->rope);
    free(s->slot);
    free(s->units);
}

int stage_measure(struct stage_bytes *ret, const struct stage_spec *spec, struct err *err)
{
    struct stage s = {.spec = *spec};
    int r = make_units(&s, err);
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
            trains_all(spec) ? 0 : mapped_bytes(&s), s.params.used, s.slots.used, s.work.used, s.kvs.used, 0};
        ret->total = ret->mapped + ret->params + ret->slots + ret->work + ret->kv;
    }
    free(s.units);
    return r;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int carve_all(struct stage *s, struct err *err)
{
    static void (*const carve[])(struct stage *, struct slab *) = {carve_params, carve_slots, carve_work,
                                                                   carve_kv};
    static const char *const what[] = {"trained parameters", "activations of microbatches in flight",
                                       "scratch", "KV cache"};
    struct slab *const slabs[] = {&s->params, &s->slots, &s->work, &s->kvs};
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++) {
        carve[i](s, slabs[i]);
        int r = slab_alloc(slabs[i], what[i], err);
        if (r)
            return r;
        carve[i](s, slabs[i]);
    }
    return 0;
}

/* The head multiplies by its own matrix, by the embedding's, or by its copy of a trained embedding that lies
 * elsewhere. */
static int bind_head(struct stage *s, struct err *err)
{
    const struct config *c = &s->spec.config;
    if (!s->head)
        return 0;
    if (!c->tied) {
        s->head_w = s->head->weights.lin[1].w;
        return 0;
    }
    if (s->embed) {
        s->head_w = s->embed->weights.lin[0].w;
        return 0;
    }
    struct tensor_def def[UNIT_MAX_TENSORS];
    s->family->tensors(c, 0, def);
    const struct st_tensor *t = s->st ? st_find(s->st, def[0].name) : NULL;
    if (s->st &&
        (!t || t->ndim != 2 || t->shape[0] != c->vocab || t->shape[1] != c->dim || t->dtype == DTYPE_COUNT))
        return err_set(err, -EINVAL, "the head is tied to %s, which is missing or misshapen", def[0].name);
    if (t && !s->tied_weight) {
        s->head_w = (struct mat){t->data, t->dtype, c->vocab, c->dim};
        return 0;
    }
    if (t) {
        dtype_to_f32(s->tied_weight, t->data, t->dtype, t->elements);
    } else {
        struct param_def p[UNIT_MAX_PARAMS];
        tune_params(&s->spec.tune, s->family, c, 0, p);
        param_init(s->tied_weight, &p[0], &s->spec.tune, c);
    }
    s->head_w = (struct mat){s->tied_weight, DTYPE_F32, c->vocab, c->dim};
    return 0;
}

/* Old checkpoints carry tables that are computed here, and some a copy of the tied head. */
static bool is_redundant(const struct stage *s, const char *name)
{
    const char *dot = strstr(name, ".rotary_emb.inv_freq");
    return (dot && !dot[strlen(".rotary_emb.inv_freq")]) ||
           (s->spec.config.tied && !strcmp(name, "lm_head.weight"));
}

static bool is_known(const struct stage *s, const char *name)
{
    const struct config *c = &s->spec.config;
    size_t layer;
    if (sscanf(name, "model.layers.%zu.", &layer) == 1)
        return layer < c->layers && family_tensor_index(s->family, c, layer + 1, name) >= 0;
    return family_tensor_index(s->family, c, 0, name) >= 0 ||
           family_tensor_index(s->family, c, c->layers + 1, name) >= 0;
}

/* A tensor that the recipe has no place for means another recipe: leaving it out would give another model, silently. */
static int check_names(const struct stage *s, struct err *err)
{
    const char *const *names;
    size_t n = s->st ? st_names(s->st, &names) : 0, unknown = 0;
    char list[400] = "";
    for (size_t i = 0; i < n; i++) {
        if (is_known(s, names[i]) || is_redundant(s, names[i]))
            continue;
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s%s", unknown++ ? ", " : "", names[i]);
    }
    return unknown ? err_set(err, -ENOTSUP, "%s holds %zu tensor%s that a %s model has no place for: %s",
                             s->spec.model_dir, unknown, unknown == 1 ? "" : "s", s->spec.config.family, list)
                   : 0;
}

static int bind_units(struct stage *s, struct err *err)
{
    char complaints[400] = "";
    size_t bad = 0;
    for (size_t i = 0; i < s->nunits; i++)
        bad += unit_bind(&s->units[i], s->st, &s->spec.tune, &s->spec.config, complaints, sizeof complaints);
    if (bad)
        return err_set(err, -EINVAL, "%s: %zu tensor%s not what config.json says: %s", s->spec.model_dir, bad,
                       bad == 1 ? " is" : "s are", complaints);
    int r = check_names(s, err);
    return r ? r : bind_head(s, err);
}

static int open_rope(struct stage *s, struct err *err)
{
    const struct config *c = &s->spec.config;
    double *inv = calloc(c->head / 2 + 1, sizeof *inv);
    if (!inv)
        return err_set(err, -ENOMEM, "out of memory");
    config_inv_freq(c, inv);
    int r = rope_init(&s->rope, inv, s->spec.positions, c->head, 1.0, err);
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
        r = st_open_dir(&s->st, spec->model_dir, wants_tensor, s, err);
    if (!r && !(s->slot = calloc(spec->slots + 1, sizeof *s->slot)))
        r = err_set(err, -ENOMEM, "out of memory");
    if (!r)
        r = carve_all(s, err);
    if (!r)
        r = bind_units(s, err);
    if (!r)
        r = open_rope(s, err);
    if (r) {
        stage_close(s);
        return r;
    }
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
