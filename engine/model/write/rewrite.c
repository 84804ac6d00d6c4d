/* SPDX-License-Identifier: MIT
 *
 * Writing a model in another form, unit by unit and tensor by tensor. A unit is opened as a stage
 * opens it, so every form that is computed with can be written. */
#include "model/write/rewrite.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "model/quant/quant_out.h"
#include "model/write/rewrite_dir.h"
#include "model/write/rewrite_plan.h"
#include "model/unit.h"

enum { PIECE = 1 << 16 /* floats that are written at once, or one row */ };
#define F16_OVERFLOW 65520.0f /* rounds to infinity from here on */

struct rewriting {
    const struct rewrite_how *how;
    struct st *st;           /* owned */
    struct num *num;         /* owned */
    struct rewrite_dir *dir; /* owned */
    struct rewrite_plan plan;
    struct unit unit; /* the one whose tensors are written, */
    struct slab slab; /* owned: and what it has beside the files */
    bool is_open;
    float *piece; /* owned */
    size_t piece_floats;
    struct rewrite_result result;
    struct err *err;
};

/* --- units ------------------------------------------------------------------------------------ */

static void close_unit(struct rewriting *m)
{
    if (m->is_open)
        unit_done(&m->unit);
    slab_free(&m->slab);
    m->is_open = false;
}

static int open_unit(struct rewriting *m, size_t index)
{
    const struct config *c = m->how->config;
    const struct tune none = {.end_layer = c->layers};
    char complaints[400] = "";
    if (m->is_open && m->unit.index == index)
        return 0;
    close_unit(m);
    int r = unit_init(&m->unit, m->how->family, c, &none, 1, (struct unit_which){.index = index}, m->err);
    m->is_open = !r;
    if (r)
        return r;
    m->unit.later = true; /* each tensor is asked for when it is written */
    unit_carve(&m->unit, &m->slab, NULL);
    r = slab_alloc(&m->slab, "what a layer has beside its matrices", m->err);
    if (r)
        return r;
    unit_carve(&m->unit, &m->slab, NULL);
    return unit_bind(&m->unit, m->st, &none, c, complaints, sizeof complaints)
               ? err_set(m->err, -EINVAL, "%s: %s", m->how->model, complaints)
               : 0;
}

/* --- one tensor ------------------------------------------------------------------------------- */

static int append(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item, const float *x,
                  size_t n)
{
    char name[512];
    rewrite_item_name(name, item);
    for (size_t i = 0; item->dtype == DTYPE_F16 && i < n; i++)
        if (fabsf(x[i]) >= F16_OVERFLOW && !isinf(x[i]))
            return err_set(m->err, -ERANGE, "%s: %s has a value of %g, too large for f16: use --dtype bf16",
                           m->how->model, input_quote(name).text, (double)x[i]);
    return st_writer_append(out, name, x, n, m->err);
}

static int grow_piece(struct rewriting *m, size_t floats)
{
    if (floats <= m->piece_floats)
        return 0;
    float *grown = realloc(m->piece, floats * sizeof *grown);
    if (!grown)
        return err_set(m->err, -ENOMEM, "no memory for a row of %zu numbers", floats);
    m->piece = grown;
    m->piece_floats = floats;
    return 0;
}

/* Row after row; changed on the way where `change` is not NULL. */
static int put_rows(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item, struct mat w,
                    const struct rewrite_change *change)
{
    const size_t fit = w.cols < PIECE ? PIECE / (w.cols + !w.cols) : 1;
    int r = grow_piece(m, fit * w.cols);
    for (size_t row = 0, now; row < w.rows && w.cols && !r; row += now) {
        now = w.rows - row < fit ? w.rows - row : fit;
        gemm_rows(m->num, m->piece, w, row, now);
        for (size_t i = 0; change && i < now; i++)
            change->row(change->owner, row + i, m->piece + i * w.cols);
        r = append(m, out, item, m->piece, now * w.cols);
    }
    return r;
}

static int put_changed(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item,
                       struct mat w)
{
    const struct rewrite_change *change = m->how->change;
    const int begun = change && item->def.linear ? change->begin(change->owner, &item->def, m->err) : 0;
    if (begun < 0)
        return begun;
    int r = put_rows(m, out, item, w, begun ? change : NULL);
    if (begun)
        change->end(change->owner);
    m->result.changed += begun && !r;
    return r;
}

static int put_quantized(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item,
                         struct mat w)
{
    char name[512];
    rewrite_item_name(name, item);
    const struct quant_out q = {name, item->experts, item->bits, m->how->group};
    const int r = quant_out_put(&q, out, m->num, w, m->err);
    m->result.quantized += !r;
    return r;
}

/* All rows of one matrix in f32, or a vector, as they are written. */
static int make_rows(struct rewriting *m, const struct rewrite_item *item, float *x)
{
    const struct rewrite_change *change = m->how->change;
    const struct tensor_def *def = &item->def;
    if (!def->cols) {
        memcpy(x, m->unit.vec[item->index], def->rows * sizeof *x);
        return 0;
    }
    struct stored s;
    char why[256];
    const int begun = change ? change->begin(change->owner, def, m->err) : 0;
    if (begun < 0)
        return begun;
    gemm_rows(m->num, x, m->unit.block.weights.lin[item->index].w, 0, def->rows);
    if (stored_find(&s, m->st, def, m->how->config->fp8, why, sizeof why))
        st_dontneed(m->st, s.t);
    for (size_t row = 0; begun && row < def->rows; row++)
        change->row(change->owner, row, x + row * def->cols);
    if (begun)
        change->end(change->owner);
    m->result.changed += (size_t)begun;
    return 0;
}

/* Column after column, rows of all by turns; x [ways, rows, cols]. */
static int put_turned(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item,
                      const float *x)
{
    const size_t ways = item->ways, rows = item->def.rows, cols = item->def.cols ? item->def.cols : 1,
                 wide = ways * rows, fit = wide < PIECE ? PIECE / wide : 1;
    int r = grow_piece(m, fit * wide);
    for (size_t c = 0, now; c < cols && !r; c += now) {
        now = cols - c < fit ? cols - c : fit;
        for (size_t i = 0; i < wide; i++)
            for (size_t k = 0; k < now; k++)
                m->piece[k * wide + i] = x[(i % ways * rows + i / ways) * cols + c + k];
        r = append(m, out, item, m->piece, now * wide);
    }
    return r;
}

/* With the last of those that are woven, all of them; the others come right before it. */
static int put_woven(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item)
{
    char name[STORED_NAME];
    struct stored_woven at;
    stored_woven_name(name, &at, &item->def);
    if (at.way + 1 < at.ways)
        return 0;
    const size_t n = item->def.rows * (item->def.cols ? item->def.cols : 1);
    float *x = calloc(at.ways * n + 1, sizeof *x);
    int r = x ? open_unit(m, item->unit) : err_set(m->err, -ENOMEM, "no memory for %s", name);
    for (size_t i = 0; i < at.ways && !r; i++)
        r = make_rows(m, item - at.way + i, x + i * n);
    if (!r)
        r = item->def.weave == WEAVE_HALVES ? append(m, out, item, x, at.ways * n)
                                            : put_turned(m, out, item, x);
    free(x);
    return r;
}

/* As it is stored: a unit may have it with 1 more. */
static int put_vector(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item,
                      const struct stored *s)
{
    const int r = grow_piece(m, item->def.rows);
    if (r)
        return r;
    stored_to_f32(s, &item->def, m->piece);
    return append(m, out, item, m->piece, item->def.rows);
}

static int put_own(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item)
{
    int r = open_unit(m, item->unit);
    if (r)
        return r;
    const struct tensor_def *def = &item->def;
    const struct mat w = m->unit.block.weights.lin[item->index].w;
    struct stored s;
    char why[256];
    const bool is_found = stored_find(&s, m->st, def, m->how->config->fp8, why, sizeof why);
    if (is_found)
        st_willneed(m->st, s.t);
    r = !def->cols   ? put_vector(m, out, item, &s)
        : item->bits ? put_quantized(m, out, item, w)
                     : put_changed(m, out, item, w);
    if (is_found)
        st_dontneed(m->st, s.t); /* what is done would count as ours until the end */
    return r;
}

static int put_other(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item)
{
    const struct st_tensor *t = item->other;
    const struct tensor_def def = rewrite_other_def(t);
    const bool is_fp8 = t->dtype == DTYPE_F8_E4M3, rows = m->how->config->fp8_rows;
    float *scales = is_fp8 ? calloc(stored_scale_count(&def, rows) + 1, sizeof *scales) : NULL;
    char why[256];
    if (is_fp8 && !scales)
        return err_set(m->err, -ENOMEM, "out of memory");
    if (is_fp8)
        stored_scales(scales, m->st, &def, rows, why, sizeof why); /* the plan has seen that it can */
    const struct mat w = {.data = t->data,
                          .dtype = t->block ? DTYPE_F32 : t->dtype,
                          .rows = def.rows,
                          .cols = def.cols,
                          .scale = scales,
                          .scale_rows = is_fp8 && rows,
                          .block = t->block,
                          .turn = t->turn,
                          .row_heads = t->row_heads,
                          .col_heads = t->col_heads};
    int r = put_rows(m, out, item, w, NULL);
    st_dontneed(m->st, t);
    free(scales);
    return r;
}

static int put(struct rewriting *m, struct st_writer *out, const struct rewrite_item *item)
{
    if (m->how->stop && m->how->stop(m->how->arg))
        return err_set(m->err, -ECANCELED, "interrupted: the unfinished result was removed");
    return item->other  ? put_other(m, out, item)
           : item->ways ? put_woven(m, out, item)
                        : put_own(m, out, item);
}

/* --- files ------------------------------------------------------------------------------------ */

/* What a file is to hold, as its writer wants it. */
struct announced {
    struct st_out_tensor *list; /* owned */
    char (*names)[512];         /* owned: of the items, */
    char (*sides)[STORED_NAME]; /* owned: and of their scales and biases */
    size_t n;
};

static void announce(const struct rewriting *m, struct announced *a, size_t i)
{
    const struct rewrite_item *item = &m->plan.items[i];
    const struct tensor_def *def = &item->def;
    struct st_out_tensor *t = &a->list[a->n];
    rewrite_item_name(a->names[i], item);
    const struct quant_out q = {a->names[i], item->experts, item->bits, m->how->group};
    if (item->bits) {
        quant_out_list(t, &a->sides[2 * i], &q, def);
        a->n += QUANT_OUT_TENSORS;
        return;
    }
    *t = (struct st_out_tensor){.name = a->names[i], .dtype = item->dtype};
    a->n++;
    if (item->other) {
        t->ndim = item->other->ndim;
        memcpy(t->shape, item->other->shape, sizeof t->shape);
        return;
    }
    if (item->experts)
        t->shape[t->ndim++] = item->experts;
    const size_t rows = def->rows * (item->ways ? item->ways : 1);
    if (!item->ways || def->weave == WEAVE_HALVES) {
        t->ndim += tensor_shape(rows, def->cols, def->taps, t->shape + t->ndim);
        return;
    }
    if (def->cols)
        t->shape[t->ndim++] = def->cols;
    t->shape[t->ndim++] = rows;
}

static size_t bytes_of(const struct st_out_tensor *t)
{
    size_t n = t->words ? sizeof(uint32_t) : dtype_size(t->dtype);
    for (size_t d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

static int open_shard(struct rewriting *m, struct st_writer **ret, size_t shard)
{
    char file[64], path[4096];
    struct announced a = {.list = calloc(QUANT_OUT_TENSORS * m->plan.n + 1, sizeof *a.list),
                          .names = calloc(m->plan.n + 1, sizeof *a.names),
                          .sides = calloc(2 * m->plan.n + 1, sizeof *a.sides)};
    int r = a.list && a.names && a.sides ? 0 : err_set(m->err, -ENOMEM, "out of memory");
    snprintf(file, sizeof file,
             m->plan.nshards == 1 ? "model.safetensors" : "model-%05zu-of-%05zu.safetensors", shard + 1,
             m->plan.nshards);
    for (size_t i = 0; i < m->plan.n && !r; i++)
        if (m->plan.items[i].shard == shard && m->plan.items[i].is_first)
            announce(m, &a, i);
    for (size_t i = 0; i < a.n && !r; i++) {
        m->result.bytes += bytes_of(&a.list[i]);
        r = rewrite_dir_list(m->dir, a.list[i].name, file, bytes_of(&a.list[i]), m->err);
    }
    if (!r)
        r = rewrite_dir_path(m->dir, file, path, m->err);
    if (!r)
        r = st_writer_open(ret, path, a.list, a.n, m->err);
    free(a.list);
    free(a.names);
    free(a.sides);
    return r;
}

static int put_shard(struct rewriting *m, size_t shard)
{
    struct st_writer *out = NULL;
    int r = open_shard(m, &out, shard);
    for (size_t i = 0; i < m->plan.n && !r; i++)
        if (m->plan.items[i].shard == shard)
            r = put(m, out, &m->plan.items[i]);
    if (r)
        st_writer_abort(out);
    else
        r = st_writer_finish(out, m->err);
    m->result.files += !r;
    return r;
}

/* A type of its own, or none any more: what config.json said no longer holds. */
static struct rewrite_says says_of(const struct rewriting *m)
{
    const struct rewrite_how *how = m->how;
    const struct config *c = how->config;
    return (struct rewrite_says){.architecture = config_architecture(c->family),
                                 .differs = how->dtype != DTYPE_COUNT || how->bits || c->mixed || c->fp8 ||
                                            c->experts_fp4 || c->quant_bits || c->is_text_part,
                                 .dtype = how->dtype != DTYPE_COUNT                     ? how->dtype
                                          : c->mixed || c->quant_bits || c->experts_fp4 ? c->dtype
                                          : c->fp8                                      ? DTYPE_BF16
                                                                                        : DTYPE_COUNT,
                                 .bits = how->bits,
                                 .group = how->group,
                                 .left = m->plan.left};
}

static int put_all(struct rewriting *m)
{
    int r = st_open_dir(&m->st, m->how->model, NULL, NULL, m->err);
    if (!r)
        r = rewrite_plan_make(&m->plan, m->how, m->st, m->err);
    if (!r)
        r = num_new(&m->num, 0, m->err);
    if (!r)
        r = rewrite_dir_open(&m->dir, m->how->out, m->err);
    if (!r)
        r = rewrite_dir_check_room(m->dir, m->plan.bytes, m->err);
    for (size_t s = 0; s < m->plan.nshards && !r; s++)
        r = put_shard(m, s);
    const struct rewrite_says says = says_of(m);
    if (!r)
        r = rewrite_dir_copy(m->dir, m->how->model, &says, m->err);
    return r ? r : rewrite_dir_finish(m->dir, m->plan.nshards > 1, m->err);
}

int rewrite_run(const struct rewrite_how *how, struct rewrite_result *ret, struct err *err)
{
    struct rewriting m = {.how = how, .err = err};
    const int r = put_all(&m);
    if (!r)
        *ret = m.result;
    close_unit(&m);
    rewrite_dir_free(m.dir);
    rewrite_plan_done(&m.plan);
    num_free(m.num);
    st_close(m.st);
    free(m.piece);
    return r;
}
