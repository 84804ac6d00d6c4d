/* SPDX-License-Identifier: MIT
 *
 * A unit's lists, memory and binding. Called by the stage, on the computing thread. */
#include "model/unit_impl.h"

#include <stdio.h>
#include <string.h>

#include "model/stored.h"

/* --- lists ------------------------------------------------------------------------------------ */

/* Fills the lists as tensors and parameters are shown. */
struct unit_filling {
    struct unit *unit;
    const struct tune *tune;
    size_t tensors, params;
};

static int fill_tensor(void *arg, const struct tensor_def *def)
{
    struct unit_filling *f = arg;
    struct unit *u = f->unit;
    const struct slice_rows own = slice_rows(u->slice, def->rows, def->grain),
                            rows = u->has_all ? (struct slice_rows){0, def->rows} : own;
    u->defs[f->tensors] = *def;
    u->cut[f->tensors] = own;
    u->defs[f->tensors].rows = rows.n;
    u->whole[f->tensors] = def->rows;
    u->first[f->tensors++] = rows.first;
    for (size_t p = (size_t)def->part + 1; p <= LAYER_PARTS; p++)
        f->unit->block.first[p] = f->tensors;
    return 0;
}

static int fill_param(void *arg, const struct param_def *def)
{
    struct unit_filling *f = arg;
    struct unit *u = f->unit;
    u->params[f->params++] = (struct param){.def = *def, .n = param_elements(def)};
    if (def->role == PARAM_A) {
        u->lora[def->tensor] = (struct lora){.rank = def->rows,
                                             .scale = (float)def->scale,
                                             .dropout = f->tune->dropout,
                                             .fixed = f->tune->fixed};
        struct linear *lin = &u->block.weights.lin[def->tensor];
        lin->lora = &u->lora[def->tensor];
        lin->apart = u->ntensors;
        lin->widest = def->rows > lin->widest ? def->rows : lin->widest;
    } else if (def->role == PARAM_M) { /* the output lies behind what the factors keep */
        struct linear *lin = &u->block.weights.lin[def->tensor];
        const size_t wide = u->lora[def->tensor].rank + u->defs[def->tensor].rows;
        lin->widest = wide > lin->widest ? wide : lin->widest;
    }
    return 0;
}

static void carve_lists(struct unit *u)
{
    const size_t n = u->ntensors;
    struct slab *s = &u->lists;
    u->defs = slab_take(s, n, 1, sizeof *u->defs);
    u->all_params = slab_take(s, u->sets, u->most, sizeof *u->all_params);
    u->all_nparams = slab_take(s, u->sets, 1, sizeof *u->all_nparams);
    u->all_lora = slab_take(s, u->sets, n, sizeof *u->all_lora);
    u->vec = slab_take(s, n, 1, sizeof *u->vec);
    u->first = slab_take(s, n, 1, sizeof *u->first);
    u->whole = slab_take(s, n, 1, sizeof *u->whole);
    u->cut = slab_take(s, n, 1, sizeof *u->cut);
    u->all_rows = slab_take(s, n, 1, sizeof *u->all_rows);
    u->cut_quant = slab_take(s, n, 1, sizeof *u->cut_quant);
    u->block.weights.cut = u->cut;
    u->block.weights.whole = u->all_rows;
    u->scale = slab_take(s, n, 1, sizeof *u->scale);
    u->joined = slab_take(s, n, 1, sizeof *u->joined);
    u->quant = slab_take(s, n, 1, sizeof *u->quant);
    u->block.weights.lin = slab_take(s, n, 1, sizeof *u->block.weights.lin);
    u->block.weights.vec = slab_take(s, n, 1, sizeof *u->block.weights.vec);
    u->block.grads.full = slab_take(s, n, 1, sizeof *u->block.grads.full);
    u->all_a = slab_take(s, u->sets, n, sizeof *u->all_a);
    u->all_b = slab_take(s, u->sets, n, sizeof *u->all_b);
    u->all_m = slab_take(s, u->sets, n, sizeof *u->all_m);
    u->stale = slab_take(s, u->sets, 1, sizeof *u->stale);
    u->block.grads.bias = slab_take(s, n, 1, sizeof *u->block.grads.bias);
    u->all_grads = slab_take(s, u->sets, 1, sizeof *u->all_grads);
}

void unit_choose(struct unit *u, size_t set)
{
    u->lora = u->all_lora + set * u->ntensors;
    u->params = u->all_params + set * u->most;
    u->nparams = u->all_nparams[set];
    u->grads = u->all_grads + set;
    u->block.grads.a = u->all_a + set * u->ntensors;
    u->block.grads.b = u->all_b + set * u->ntensors;
    u->block.grads.m = u->all_m + set * u->ntensors;
    for (size_t t = 0; t < u->ntensors; t++)
        if (u->block.weights.lin[t].widest)
            u->block.weights.lin[t].lora = &u->lora[t];
}

void unit_choose_none(struct unit *u)
{
    for (size_t t = 0; t < u->ntensors; t++)
        u->block.weights.lin[t].lora = NULL;
}

int unit_init(struct unit *u, const struct family *f, const struct config *c, const struct tune *tunes,
              size_t sets, struct unit_which which, struct err *err)
{
    const size_t index = which.index;
    *u = (struct unit){.index = index,
                       .slice = which.slice,
                       .has_all = which.has_all,
                       .sets = sets,
                       .fp8 = c->fp8,
                       .fp8_rows = c->fp8_rows,
                       .joins = c->mla.kv_b_parts,
                       .ntensors = family_tensor_count(f, c, index)};
    for (size_t set = 0; set < sets; set++) {
        const size_t n = tune_param_count(&tunes[set], f, c, index);
        u->most = n > u->most ? n : u->most;
    }
    carve_lists(u);
    int r = slab_alloc(&u->lists, "the list of a layer's tensors", err);
    if (r)
        return r;
    carve_lists(u);
    struct unit_filling fill = {.unit = u};
    family_tensors(f, c, index, fill_tensor, &fill);
    for (size_t set = sets; set-- > 0;) { /* the first comes last, and stays chosen */
        unit_choose(u, set);
        fill.tune = &tunes[set];
        fill.params = 0;
        tune_params(&tunes[set], f, c, index, fill_param, &fill);
        u->nparams = u->all_nparams[set] = fill.params;
    }
    if (index > 0 && index <= c->layers)
        block_init(&u->block, c, index - 1);
    return 0;
}

void unit_done(struct unit *u)
{
    st_close(u->made);
    slab_free(&u->lists);
}

struct tensor_def unit_whole(const struct unit *u, size_t tensor)
{
    struct tensor_def def = u->defs[tensor];
    def.rows = u->whole[tensor];
    return def;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* The parameter that trains the whole tensor, or NULL where it is frozen. */
static const struct param *param_of(const struct unit *u, size_t tensor)
{
    for (size_t i = 0; i < u->nparams; i++)
        if (u->params[i].def.tensor == tensor && u->params[i].def.role == PARAM_FULL)
            return &u->params[i];
    return NULL;
}

static bool is_trained(const struct unit *u, size_t tensor)
{
    return param_of(u, tensor) != NULL;
}

void unit_attach_grad(struct unit *u, const struct param *p)
{
    const size_t t = p->def.tensor;
    switch (p->def.role) {
    case PARAM_A: u->block.grads.a[t] = p->g; break;
    case PARAM_B: u->block.grads.b[t] = p->g; break;
    case PARAM_M: u->block.grads.m[t] = p->g; break;
    case PARAM_FULL: u->block.grads.full[t] = p->def.fixed ? NULL : p->g; break;
    }
}

static void param_attach(struct unit *u, struct param *p)
{
    size_t t = p->def.tensor;
    unit_attach_grad(u, p);
    switch (p->def.role) {
    case PARAM_A: u->lora[t].a = p->w; break;
    case PARAM_B: u->lora[t].b = p->w ? p->w + u->first[t] * p->def.cols : NULL; break;
    case PARAM_M: u->lora[t].m = p->w ? p->w + u->first[t] : NULL; break;
    case PARAM_FULL:
        u->block.weights.vec[t] = p->w;
        u->block.weights.lin[t].w =
            (struct mat){.data = p->w, .dtype = DTYPE_F32, .rows = p->def.rows, .cols = p->def.cols};
        break;
    }
}

/* Is this matrix stored in two parts? */
static bool is_joined(const struct unit *u, size_t tensor)
{
    const char *end = strstr(u->defs[tensor].name, ".kv_b_proj.weight");
    return u->joins && end && !end[strlen(".kv_b_proj.weight")];
}

static void carve_vector(struct unit *u, size_t t, struct slab *slab)
{
    u->vec[t] = slab_floats(slab, u->whole[t], 1);
    u->block.weights.vec[t] = u->vec[t] ? u->vec[t] + u->first[t] : NULL;
}

void unit_carve(struct unit *u, struct slab *slab, const struct grad_groups *groups)
{
    u->groups = groups ? *groups : (struct grad_groups){0};
    u->buffers = groups ? sum_tree_buffers(groups->groups, groups->first, groups->end) : 0;
    for (size_t set = u->sets; set-- > 0;) {
        unit_choose(u, set);
        for (size_t i = 0; i < u->nparams; i++) {
            struct param *p = &u->params[i];
            p->own = groups ? param_slice(p->n, groups->slice, groups->slices) : (struct param_slice){0};
            p->w = slab_floats(slab, p->n, 1);
            p->g = p->sums = groups ? slab_floats(slab, u->buffers, p->n) : NULL;
            p->m = groups ? slab_floats(slab, p->own.n, 1) : NULL;
            p->v = groups ? slab_floats(slab, p->own.n, 1) : NULL;
            param_attach(u, p);
            if (p->def.role == PARAM_M) {
                struct lora *lora = &u->lora[p->def.tensor];
                lora->inv = slab_floats(slab, u->defs[p->def.tensor].rows, 1);
                lora->gain = slab_floats(slab, u->defs[p->def.tensor].rows, 1);
            }
        }
    }
    for (size_t t = 0; t < u->ntensors; t++) {
        const struct tensor_def *def = &u->defs[t], whole = unit_whole(u, t);
        if (!def->cols && (!is_trained(u, t) || def->plus_one))
            carve_vector(u, t, slab);
        if (is_joined(u, t) && !is_trained(u, t))
            u->joined[t] = slab_floats(slab, def->rows, def->cols);
        if (u->fp8 && def->linear)
            u->scale[t] = slab_floats(slab, stored_scale_count(&whole, u->fp8_rows), 1);
    }
}

void unit_carve_lent(struct unit *u, struct slab *slab, size_t rows, size_t cols)
{
    u->lent_n = rows * cols;
    u->lent_rows = rows;
    u->lent_g = u->lent_sums = slab_floats(slab, u->buffers, u->lent_n);
}

static void complain(char *complaints, size_t size, const char *text)
{
    size_t len = strlen(complaints);
    snprintf(complaints + len, size - len, "%s%s", len ? "; " : "", text);
}

static const struct st_tensor *find_part(const struct unit *u, size_t i, const struct st *st, const char *end)
{
    char name[STORED_NAME];
    snprintf(name, sizeof name, "%.*s%s", (int)stored_stem(u->defs[i].name), u->defs[i].name, end);
    const struct st_tensor *t = st_find(st, name);
    return t && t->ndim == 3 && (t->dtype < DTYPE_F8_E4M3 || t->block) ? t : NULL;
}

/* Rows of a head's keys, then rows of its values: row a of the keys is column a of what is
 * stored. */
static void bind_parts(struct unit *u, size_t i, const struct st *st, float *to, char *why, size_t size)
{
    enum { WIDEST = 1024 };
    const struct tensor_def *def = &u->defs[i];
    const struct st_tensor *k = find_part(u, i, st, STORED_KEYS), *v = find_part(u, i, st, STORED_VALUES);
    const size_t nope = k ? k->shape[2] : 0, value = v ? v->shape[1] : 0;
    float row[WIDEST];
    if (!k || !v || nope > WIDEST || k->shape[0] != v->shape[0] || k->shape[1] != def->cols ||
        v->shape[2] != def->cols || k->shape[0] * (nope + value) != def->rows) {
        snprintf(why, size, "%s is not in two parts of keys and values, or they are misshapen", def->name);
        return;
    }
    for (size_t head = 0; head < k->shape[0]; head++) {
        float *own = to + head * (nope + value) * def->cols;
        for (size_t c = 0; c < def->cols; c++) {
            st_row(k, head * def->cols + c, nope, row);
            for (size_t a = 0; a < nope; a++)
                own[a * def->cols + c] = row[a];
        }
        for (size_t b = 0; b < value; b++)
            st_row(v, head * value + b, def->cols, own + (nope + b) * def->cols);
    }
    st_dontneed(st, k);
    st_dontneed(st, v);
}

static void bind_joined(struct unit *u, size_t i, const struct st *st, char *why, size_t size)
{
    const struct tensor_def *def = &u->defs[i];
    float *to = u->joined[i] ? u->joined[i] : param_of(u, i)->w;
    *why = 0;
    bind_parts(u, i, st, to, why, size);
    if (u->joined[i])
        u->block.weights.lin[i].w =
            (struct mat){.data = to, .dtype = DTYPE_F32, .rows = def->rows, .cols = def->cols};
}

static struct mat own_rows(struct unit *u, size_t i, struct mat whole)
{
    return slice_is_part(u->slice) && !u->has_all
               ? gemm_cut(whole, u->first[i], u->defs[i].rows, &u->quant[i])
               : whole;
}

static void will_need(const struct st *st, const struct stored *s)
{
    st_willneed(st, s->t);
    if (s->rest)
        st_willneed(st, s->rest);
}

/* Of a slice its rows alone; of a table that all look up in, what they will ask for is not
 * known. */
static void read_ahead(const struct unit *u, size_t i, const struct st *st, const struct stored *s)
{
    const struct mat w = u->block.weights.lin[i].w;
    if (!slice_is_part(u->slice) || u->has_all || (!u->defs[i].grain && u->index))
        will_need(st, s);
    else if (u->defs[i].grain && !w.step && !w.down)
        st_willneed_part(st, s->t, w.data, s->bytes / u->whole[i] * w.rows);
}

/* Finds what the tensor is stored as, and puts it where it is computed from; `why` says what is
 * wrong. */
static void bind_one(struct unit *u, size_t i, const struct st *st, char *why, size_t size)
{
    const struct tensor_def whole = unit_whole(u, i), *def = &whole;
    struct stored s;
    if (is_joined(u, i)) {
        bind_joined(u, i, st, why, size);
        return;
    }
    if (stored_find(&s, st, def, u->fp8, why, size) && s.t->dtype == DTYPE_F8_E4M3)
        stored_scales(u->scale[i], st, def, u->fp8_rows, why, size);
    if (!*why && s.is_quantized && is_trained(u, i)) /* config.json need not say so */
        snprintf(why, size, "%s is quantized, and such weights are not trained: train LoRA on them",
                 def->name);
    if (*why)
        return;
    if (u->vec[i] && !is_trained(u, i)) {
        stored_to_f32(&s, def, u->vec[i]);
        for (size_t k = 0; def->plus_one && k < def->rows; k++)
            u->vec[i][k] += 1;
    } else if (is_trained(u, i)) {
        stored_to_f32(&s, def, param_of(u, i)->w);
    } else {
        struct mat w = stored_mat(&s, def, &u->quant[i], u->scale[i]);
        w.scale_rows = u->fp8_rows && w.dtype == DTYPE_F8_E4M3;
        u->block.weights.lin[i].w = own_rows(u, i, w);
        if (!def->cold && !u->later) /* in the order of the layers, while the rest is set up */
            read_ahead(u, i, st, &s);
    }
}

/* A linear's bias is the vector whose name differs only in its last word. */
static void bind_biases(struct unit *u)
{
    for (size_t b = 0; b < u->ntensors; b++) {
        const char *dot = strrchr(u->defs[b].name, '.');
        if (!dot || strcmp(dot, ".bias"))
            continue;
        for (size_t t = 0; t < u->ntensors; t++)
            if (t != b && !strncmp(u->defs[t].name, u->defs[b].name, (size_t)(dot - u->defs[b].name) + 1)) {
                u->block.weights.lin[t].bias = u->block.weights.vec[b];
                u->block.grads.bias[t] = u->block.grads.full[b];
            }
    }
}

static int params_start(struct unit *u, const struct tune *tune, const struct config *c)
{
    int r = 0;
    for (size_t i = 0; i < u->nparams && !r; i++)
        if ((u->params[i].def.role != PARAM_FULL || tune->random_init) && u->params[i].def.role != PARAM_M)
            r = param_init(u->params[i].w, &u->params[i].def, tune, c);
    return r;
}

void unit_refresh(struct unit *u)
{
    for (size_t i = 0; i < u->nparams; i++) {
        const struct param *p = &u->params[i];
        float *to = u->vec[p->def.tensor];
        for (size_t k = 0; to && p->def.role == PARAM_FULL && k < p->n; k++)
            to[k] = p->w[k] + 1;
    }
    u->stale[u->grads - u->all_grads] = true;
}

size_t unit_bind(struct unit *u, const struct st *st, const struct tune *tunes, const struct config *c,
                 char *complaints, size_t size)
{
    size_t bad = 0;
    for (size_t i = 0; st && i < u->ntensors; i++) {
        char why[256];
        bind_one(u, i, st, why, sizeof why);
        if (*why) {
            complain(complaints, size, why);
            bad++;
        }
    }
    bind_biases(u);
    for (size_t set = u->sets; set-- > 0;) {
        unit_choose(u, set);
        if (params_start(u, &tunes[set], c)) {
            complain(complaints, size, "no memory to draw its factors");
            bad++;
        }
        unit_refresh(u);
    }
    return bad;
}

void unit_bind_products(struct unit *u, const struct config *c)
{
    const bool is_layer = u->index > 0 && u->index <= c->layers;
    for (size_t i = 0; i < u->ntensors; i++) {
        struct mat *w = &u->block.weights.lin[i].w;
        w->exact = is_layer && !u->defs[i].linear;
        w->stream = rng_stream(u->defs[i].name);
    }
}

static void cut_factors(struct unit *u, size_t tensor)
{
    for (size_t set = 0; set < u->sets; set++) {
        struct lora *lora = &u->all_lora[set * u->ntensors + tensor];
        *lora = lora_moved(lora, (ptrdiff_t)u->cut[tensor].first);
    }
}

void unit_cut(struct unit *u)
{
    for (size_t t = 0; u->has_all && t < u->ntensors; t++) {
        const struct slice_rows own = u->cut[t];
        struct linear *lin = &u->block.weights.lin[t];
        u->all_rows[t] = lin->w;
        if (!u->defs[t].grain)
            continue;
        if (lin->w.cols)
            lin->w = gemm_cut(lin->w, own.first, own.n, &u->cut_quant[t]);
        lin->bias = lin->bias ? lin->bias + own.first : NULL;
        if (u->block.weights.vec[t])
            u->block.weights.vec[t] += own.first;
        cut_factors(u, t);
    }
}

int unit_mapped(size_t *ret, const struct unit *u, const struct config *c, const struct quant_forms *forms,
                size_t weight_bits, struct err *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < u->ntensors; i++) {
        const struct tensor_def *def = &u->defs[i], whole = unit_whole(u, i);
        if (!weight_bits && c->mixed && forms) {
            bytes += is_joined(u, i) ? 0 : quant_form_bytes(forms, &whole) * def->rows / whole.rows;
            continue;
        }
        if (!weight_bits && c->compressed && def->cols) {
            size_t own = 0;
            const int r = quant_form_compressed(&own, forms, def, c, err);
            if (r)
                return r;
            bytes += own;
            continue;
        }
        struct quant_form form = quant_form_of(forms, def, c);
        if (weight_bits && !form.is_own)
            form = (struct quant_form){.bits = weight_bits, .group = QUANT_GROUP};
        bytes += form.bits && (form.is_own || stored_is_quantizable(def))
                     ? stored_quantized_bytes(def, form.bits, form.group, form.kind)
                     : def->rows * def->cols * dtype_size(c->fp8 && def->linear ? DTYPE_F8_E4M3 : c->dtype);
    }
    *ret = bytes;
    return 0;
}

/* What there is of the piece in each parameter's values, one after the other; of moments, in the
 * own slice of them. */
static void unit_copy(const struct unit *u, const struct param_piece *piece,
                      void (*copy)(float *param, float *travelling, size_t n), float *travelling)
{
    size_t pos = 0;
    for (int value = 0; value < 3; value++)
        for (size_t i = 0; i < u->nparams; i++) {
            const struct param *p = &u->params[i];
            const struct param_slice all = {0, p->n}, here = value ? p->own : all;
            const struct param_piece_part part = param_piece_overlap(piece, pos + here.at, here.n);
            if (part.n)
                copy((value == 0   ? p->w
                      : value == 1 ? p->m
                                   : p->v) +
                         part.first,
                     travelling + part.at, part.n);
            pos += p->n;
        }
}

static void copy_out(float *param, float *travelling, size_t n)
{
    memcpy(travelling, param, n * sizeof *param);
}

static void copy_in(float *param, float *travelling, size_t n)
{
    memcpy(param, travelling, n * sizeof *param);
}

void unit_pack(const struct unit *u, const struct param_piece *piece, float *out)
{
    unit_copy(u, piece, copy_out, out);
}

void unit_unpack(struct unit *u, const struct param_piece *piece, const float *in)
{
    unit_copy(u, piece, copy_in, (float *)in); /* only read */
    unit_refresh(u);
}
