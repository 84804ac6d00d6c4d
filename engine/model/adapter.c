/* SPDX-License-Identifier: MIT
 *
 * Reading the values of adapters and training states: what a run starts from. adapter_config.c
 * reads what an adapter is. Called by the head of a job and by a merge, on one thread. */
#include "model/adapter.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/input.h"
#include "model/adapter_names.h"

/* --- values ----------------------------------------------------------------------------------- */

enum form { FORM_PEFT, FORM_MLX, FORM_STATE };

struct adapter_in {
    struct st *st;  /* owned */
    json_t *record; /* owned; of a state: {"adapter": its configuration, "caller": the caller's record} */
    enum form form;
    struct tune tune;
    const struct family *family; /* borrowed */
    struct config config;
};

enum value { VALUE_W, VALUE_M, VALUE_V };
enum { MAX_STEP = 1 << 24 }; /* what an f32 counts to */

/* Where a value lies in the file. */
struct adapter_place {
    char name[ADAPTER_NAME];
    size_t ndim, shape[3]; /* wanted of the tensor */
    size_t first;          /* element */
    bool turned;
    bool shared; /* with another value, whose place comes before */
};

static struct adapter_place place_of(const struct adapter_in *in, const struct param_def *def,
                                     enum value value)
{
    static const char *const suffix[] = {"w", "m", "v"};
    struct adapter_place p = {.first = 0};
    p.ndim = tensor_shape(def->rows, def->cols, def->taps, p.shape);
    if (in->form == FORM_STATE) {
        snprintf(p.name, sizeof p.name, "%s.%s", def->name, suffix[value]);
    } else if (in->form == FORM_PEFT) {
        snprintf(p.name, sizeof p.name, ADAPTER_PEFT_PREFIX "%s", def->name);
    } else {
        const struct mlx_factor f = mlx_factor_of(def);
        if (def->cols)
            p = (struct adapter_place){.ndim = 2, .shape = {def->cols, def->rows}, .turned = true};
        if (f.expert)
            p = (struct adapter_place){.ndim = 3,
                                       .shape = {in->config.moe.experts, def->rows, def->cols},
                                       .first = f.index * param_elements(def),
                                       .shared = f.index > 0};
        memcpy(p.name, f.name, sizeof f.name);
    }
    return p;
}

static void shape_text(char ret[64], const size_t *shape, size_t ndim)
{
    size_t n = 0;
    for (size_t i = 0; i < ndim && i < 3; i++)
        n += (size_t)snprintf(ret + n, 64 - n, "%s%zu", i ? ", " : "[", shape[i]);
    if (n < 64)
        snprintf(ret + n, 64 - n, "%s", ndim > 3 ? ", …]" : ndim ? "]" : "[]");
}

static int check_param(const struct adapter_in *in, const struct adapter_place *p, const char *path,
                       struct err *err)
{
    const struct st_tensor *t = st_find(in->st, p->name);
    if (!t)
        return err_set(err, -EINVAL, "%s lacks %s", path, p->name);
    bool same = t->ndim == p->ndim && t->dtype != DTYPE_COUNT && t->dtype != DTYPE_F8_E4M3;
    for (size_t i = 0; i < p->ndim && same; i++)
        same = t->shape[i] == p->shape[i];
    if (same)
        return 0;
    char is[64], wanted[64];
    shape_text(is, t->shape, t->ndim);
    shape_text(wanted, p->shape, p->ndim);
    return err_set(err, -EINVAL,
                   "%s: %s has the wrong shape or type: %s %s, wanted %s; was it made for another model?",
                   path, p->name, is, t->dtype_name, wanted);
}

struct checking {
    const struct adapter_in *in;
    const char *path;
    struct err *err;
    const struct st_tensor **found; /* owned, [n] */
    size_t n, cap;
};

static int check_one(void *arg, const struct param_def *def)
{
    struct checking *k = arg;
    for (int v = VALUE_W; v <= (adapter_in_has_state(k->in) ? VALUE_V : VALUE_W); v++) {
        const struct adapter_place p = place_of(k->in, def, (enum value)v);
        int r = check_param(k->in, &p, k->path, k->err);
        if (r)
            return r;
        if (p.shared)
            continue;
        if (k->n < k->cap)
            k->found[k->n] = st_find(k->in->st, p.name);
        k->n++;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct st_tensor *const *)a)->name, (*(const struct st_tensor *const *)b)->name);
}

/* All that were found are there, and there are more: the first that was not found is one too
 * many. */
static int refuse_extra(struct checking *k)
{
    size_t i = 0;
    qsort(k->found, k->n, sizeof(const struct st_tensor *), by_name);
    while (i < k->n && k->found[i] == st_at(k->in->st, i))
        i++;
    return err_set(k->err, -EINVAL,
                   "%s holds %s, which its configuration does not ask for: was it made for another model?",
                   k->path, input_quote(st_at(k->in->st, i)->name).text);
}

/* Every parameter there with its shape, and nothing beside them. */
static int check_all(const struct adapter_in *in, const char *path, struct err *err)
{
    struct checking k = {.in = in, .path = path, .err = err, .cap = st_count(in->st) + 3};
    if (!(k.found = calloc(k.cap, sizeof(const struct st_tensor *))))
        return err_set(err, -ENOMEM, "out of memory");
    static const char *const others[] = {"step", ADAPTER_STATE_RECORD, ST_CHECKSUMS};
    int r = 0;
    for (size_t i = 0; adapter_in_has_state(in) && i < sizeof others / sizeof *others && !r; i++)
        if (!(k.found[k.n++] = st_find(in->st, others[i])))
            r = err_set(err, -EINVAL, "%s lacks the tensor \"%s\"", path, others[i]);
    for (size_t u = 0; u < in->config.layers + 2 && !r; u++)
        r = tune_params(&in->tune, in->family, &in->config, u, check_one, &k);
    if (!r && st_count(in->st) != k.n)
        r = refuse_extra(&k);
    free(k.found);
    return r;
}

/* A damaged state is not gone on with: what it lacks would be learnt without a word. */
static int check_sums(const struct adapter_in *in, const char *path, const char *dir, struct err *err)
{
    struct err why = {""};
    const int r = st_check(in->st, &why);
    if (!r)
        return 0;
    return err_set(
        err, r,
        "%s cannot be used to resume: %s. Put back a copy of the file, or start a new run from the "
        "%s in %s with %s",
        path, why.text, in->tune.kind == TUNE_FULL ? "model" : "adapter", dir,
        in->tune.kind == TUNE_FULL ? "--model" : "--init-adapter");
}

/* What the adapter is and the caller's record, out of the words of a tensor. */
static int read_record(struct adapter_in *in, const char *path, struct err *err)
{
    const struct st_tensor *t = st_find(in->st, ADAPTER_STATE_RECORD);
    in->record = t ? json_loadb(t->data, t->bytes, 0, NULL) : NULL;
    if (!json_is_object(in->record))
        return err_set(err, -EINVAL, "%s: \"" ADAPTER_STATE_RECORD "\" says nothing about the run", path);
    if (in->tune.kind == TUNE_FULL)
        return 0;
    const int r = adapter_parse_config(&in->tune, json_object_get(in->record, "adapter"), path, in->family,
                                       &in->config, err);
    const json_int_t fixed = json_integer_value(json_object_get(in->record, "fixed"));
    if (!r && (fixed < 0 || (size_t)fixed > in->tune.rank))
        return err_set(err, -EINVAL,
                       "%s: \"" ADAPTER_STATE_RECORD "\" fixes more of the adapter than its rank", path);
    in->tune.fixed = (size_t)fixed;
    return r;
}

static int in_open(struct adapter_in **ret, const char *dir, enum form form, const struct tune *tune,
                   const struct family *f, const struct config *c, struct err *err)
{
    static const char *const files[] = {
        [FORM_PEFT] = ADAPTER_PEFT_FILE, [FORM_MLX] = ADAPTER_MLX_FILE, [FORM_STATE] = ADAPTER_STATE_FILE};
    char path[4096];
    struct adapter_in *in = calloc(1, sizeof *in);
    if (!in)
        return err_set(err, -ENOMEM, "out of memory");
    *in = (struct adapter_in){.form = form, .tune = *tune, .family = f, .config = *c};
    snprintf(path, sizeof path, "%s/%s", dir, files[form]);
    int r = st_open_file(&in->st, path, err);
    if (!r && form == FORM_STATE)
        r = check_sums(in, path, dir, err);
    if (!r && form == FORM_STATE)
        r = read_record(in, path, err);
    if (!r)
        r = check_all(in, path, err);
    if (r)
        adapter_in_close(in);
    else
        *ret = in;
    return r;
}

/* PyTorch's own format is a program of its kind: nobody should run what others wrote. */
static int refuse_pickled(const char *dir, const char *peft, struct err *err)
{
    char bin[4096];
    snprintf(bin, sizeof bin, "%s/" ADAPTER_BIN_FILE, dir);
    if (input_is_there(peft) || !input_is_there(bin))
        return 0;
    return err_set(
        err, -ENOTSUP,
        "%s is in PyTorch's format, which is not read here. In its folder, type: python3 -c \"import torch, "
        "safetensors.torch as s; s.save_file({k: v.clone() for k, v in torch.load('" ADAPTER_BIN_FILE
        "', map_location='cpu', weights_only=True).items()}, '" ADAPTER_PEFT_FILE "')\"",
        bin);
}

int adapter_in_open(struct adapter_in **ret, const char *dir, const struct tune *tune, const struct family *f,
                    const struct config *c, struct err *err)
{
    char mlx[4096], peft[4096];
    snprintf(mlx, sizeof mlx, "%s/" ADAPTER_MLX_FILE, dir);
    snprintf(peft, sizeof peft, "%s/" ADAPTER_PEFT_FILE, dir);
    const bool is_mlx = input_is_there(mlx) && !input_is_there(peft);
    int r = is_mlx ? 0 : refuse_pickled(dir, peft, err);
    if (r)
        return r;
    return in_open(ret, dir, is_mlx ? FORM_MLX : FORM_PEFT, tune, f, c, err);
}

int adapter_in_open_state(struct adapter_in **ret, const char *dir, struct tune *tune, const struct family *f,
                          const struct config *c, uint64_t *ret_step, struct err *err)
{
    struct adapter_in *in;
    int r = in_open(&in, dir, FORM_STATE, tune, f, c, err);
    if (r)
        return r;
    const struct st_tensor *t = st_find(in->st, "step");
    float step = -1;
    if (t->elements == 1 && t->dtype == DTYPE_F32)
        memcpy(&step, t->data, sizeof step);
    if (!(step >= 0 && step <= MAX_STEP)) {
        adapter_in_close(in);
        return err_set(err, -EINVAL, "%s/" ADAPTER_STATE_FILE ": \"step\" is not a number of steps", dir);
    }
    *ret_step = (uint64_t)step;
    *tune = in->tune;
    *ret = in;
    return 0;
}

const json_t *adapter_in_record(const struct adapter_in *in)
{
    return json_object_get(in->record, "caller");
}

/* Values [first, first + n) of a parameter. */
static void copy_value(const struct adapter_in *in, const struct param_def *def, enum value value,
                       size_t first, size_t n, float *out)
{
    const struct adapter_place p = place_of(in, def, value);
    const struct st_tensor *t = st_find(in->st, p.name);
    const size_t size = dtype_size(t->dtype);
    const char *from = (const char *)t->data + p.first * size;
    if (!p.turned)
        dtype_to_f32(out, from + first * size, t->dtype, n);
    for (size_t i = first; p.turned && i < first + n; i++) /* of [cols, rows] */
        dtype_to_f32(out + i - first, from + (i % def->cols * def->rows + i / def->cols) * size, t->dtype, 1);
}

struct copying {
    const struct adapter_in *in;
    const struct param_piece *piece;
    enum value value;
    size_t pos;
    float *out;
};

static int copy_one(void *arg, const struct param_def *def)
{
    struct copying *c = arg;
    const struct param_piece_part part = param_piece_overlap(c->piece, c->pos, param_elements(def));
    if (part.n)
        copy_value(c->in, def, c->value, part.first, part.n, c->out + part.at);
    c->pos += param_elements(def);
    return 0;
}

void adapter_in_piece(const struct adapter_in *in, const struct param_piece *piece, float *out)
{
    struct copying c = {.in = in, .piece = piece, .out = out};
    for (int v = VALUE_W; v <= (adapter_in_has_state(in) ? VALUE_V : VALUE_W); v++) {
        c.value = (enum value)v;
        tune_params(&in->tune, in->family, &in->config, piece->unit, copy_one, &c);
    }
}

void adapter_in_param(const struct adapter_in *in, const struct param_def *def, float *out)
{
    copy_value(in, def, VALUE_W, 0, param_elements(def), out);
}

bool adapter_in_has_state(const struct adapter_in *in)
{
    return in->form == FORM_STATE;
}

void adapter_in_close(struct adapter_in *in)
{
    if (!in)
        return;
    st_close(in->st);
    json_decref(in->record);
    free(in);
}
