/* SPDX-License-Identifier: MIT
 *
 * Writing results: an adapter that PEFT and mlx-lm both read, or a Hugging Face model directory;
 * and the state to continue from. */
#include "model/adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/input.h"
#include "file/text_part.h"
#include "model/adapter_names.h"

enum { SMALL_FILES = 7, SMALL_BYTES = 1 << 28 };

struct adapter_out {
    struct adapter_out_request req; /* strings borrowed until finish */
    struct tune tune;
    struct config config;
    struct st_writer *model, *mlx,
        *state;                     /* owned; mlx: a second form of the same adapter, NULL for a model */
    const char *small[SMALL_FILES]; /* names of small files written as NAME.tmp, to be renamed at the end */
    size_t nsmall;
    char dir[3072], model_dir[3072];
    uint32_t *record; /* owned; of the state, and how many words it has */
    size_t record_words;
};

static void path_in(char path[4096], const struct adapter_out *o, const char *name)
{
    snprintf(path, 4096, "%s/%s", o->dir, name);
}

/* The tensors of one file. */
enum form { FORM_MODEL, FORM_PEFT, FORM_MLX, FORM_STATE };

struct list {
    struct st_out_tensor *at;    /* owned */
    char (*names)[ADAPTER_NAME]; /* owned */
    size_t n, cap;
    enum form form;
    enum dtype dtype;
    size_t experts, record_words;
};

static int list_add(struct list *l, const char *prefix, const char *name, const char *suffix,
                    struct st_out_tensor what)
{
    if (l->n == l->cap)
        return -ENOSPC;
    snprintf(l->names[l->n], sizeof *l->names, "%s%s%s", prefix, name, suffix);
    what.name = l->names[l->n];
    l->at[l->n++] = what;
    return 0;
}

/* All experts of a layer share a tensor, which comes with the first of them. */
static int list_mlx(struct list *l, const struct param_def *d)
{
    const struct mlx_factor f = mlx_factor_of(d);
    struct st_out_tensor what = {.dtype = DTYPE_F32, .ndim = 2, .shape = {d->cols, d->rows}};
    if (!d->cols)
        what = (struct st_out_tensor){.dtype = DTYPE_F32, .ndim = 1, .shape = {d->rows}};
    if (f.expert)
        what = (struct st_out_tensor){.dtype = DTYPE_F32, .ndim = 3, .shape = {l->experts, d->rows, d->cols}};
    return f.expert && f.index ? 0 : list_add(l, "", f.name, "", what);
}

static int list_one(void *arg, const struct param_def *d)
{
    static const char *const suffix[] = {".w", ".m", ".v"};
    struct list *l = arg;
    struct st_out_tensor what = {.dtype = DTYPE_F32};
    int r = 0;
    what.ndim = tensor_shape(d->rows, d->cols, d->taps, what.shape);
    switch (l->form) {
    case FORM_MODEL:
        what.dtype = d->fixed && !d->cols ? DTYPE_F32 : l->dtype;
        return list_add(l, "", d->name, "", what);
    case FORM_PEFT: return list_add(l, ADAPTER_PEFT_PREFIX, d->name, "", what);
    case FORM_MLX: return list_mlx(l, d);
    case FORM_STATE:
        for (int part = 0; part < 3 && !r; part++)
            r = list_add(l, "", d->name, suffix[part], what);
    }
    return r;
}

/* What a state has beside values and moments. */
static int list_state(struct list *l)
{
    const struct st_out_tensor step = {.dtype = DTYPE_F32, .ndim = 1, .shape = {1}},
                               record = {.words = true, .ndim = 1, .shape = {l->record_words}};
    int r = list_add(l, "", "step", "", step);
    if (!r)
        r = list_add(l, "", ADAPTER_STATE_RECORD, "", record);
    const struct st_out_tensor sums = {.words = true, .ndim = 2, .shape = {l->n, 2}};
    return r ? r : list_add(l, "", ST_CHECKSUMS, "", sums);
}

static int list_build(struct list *l, const struct adapter_out *o)
{
    const struct family *f = o->req.family;
    const bool state = l->form == FORM_STATE;
    l->dtype = o->config.dtype;
    l->experts = o->config.moe.experts;
    l->record_words = o->record_words;
    l->cap = 3;
    for (size_t u = 0; u < o->config.layers + 2; u++)
        l->cap += (state ? 3 : 1) * tune_param_count(&o->tune, f, &o->config, u);
    l->at = calloc(l->cap, sizeof *l->at);
    l->names = calloc(l->cap, sizeof *l->names);
    if (!l->at || !l->names)
        return -ENOMEM;
    int r = 0;
    for (size_t u = 0; u < o->config.layers + 2 && !r; u++)
        r = tune_params(&o->tune, f, &o->config, u, list_one, l);
    return r || !state ? r : list_state(l);
}

static int writer_open(struct st_writer **ret, const struct adapter_out *o, const char *file, enum form form,
                       struct err *err)
{
    char path[4096];
    struct list list = {.form = form};
    path_in(path, o, file);
    int r = list_build(&list, o);
    if (r)
        err_set(err, r, "%s: out of memory for the list of tensors", path);
    else
        r = st_writer_open(ret, path, list.at, list.n, err);
    free(list.at);
    free(list.names);
    return r;
}

/* --- small files ------------------------------------------------------------------------------ */

static int write_all(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t put = write(fd, text, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        text += put;
        n -= (size_t)put;
    }
    return fsync(fd) ? -errno : 0;
}

/* Small files are known when a result is begun, so they are on the disk from then on, beside the
 * older ones.
 */
static int small_write(struct adapter_out *o, const char *name, const char *text, size_t n, struct err *err)
{
    char path[4096], tmp[4104];
    path_in(path, o, name);
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return err_set(err, -errno, "%s cannot be created: %s", tmp, strerror(errno));
    o->small[o->nsmall++] = name;
    int r = write_all(fd, text, n);
    if (close(fd) && !r)
        r = -errno;
    return r ? err_set(err, r, "%s cannot be written: %s", path, strerror(-r)) : 0;
}

static int small_finish(struct adapter_out *o, struct err *err)
{
    for (size_t i = 0; i < o->nsmall; i++) {
        char path[4096], tmp[4104];
        path_in(path, o, o->small[i]);
        snprintf(tmp, sizeof tmp, "%s.tmp", path);
        if (rename(tmp, path))
            return err_set(err, -errno, "%s cannot be replaced: %s", path, strerror(errno));
    }
    o->nsmall = 0;
    return 0;
}

static void small_abort(struct adapter_out *o)
{
    for (size_t i = 0; i < o->nsmall; i++) {
        char path[4096], tmp[4104];
        path_in(path, o, o->small[i]);
        snprintf(tmp, sizeof tmp, "%s.tmp", path);
        unlink(tmp);
    }
}

/* Rank and alpha of the linears that have form i, where they are not the usual ones. */
static void put_form(const struct adapter_out *o, size_t i, json_t *ranks, json_t *alphas)
{
    const struct tune_form *form = &o->tune.forms[i];
    char regex[TUNE_REGEX];
    tune_form_regex(&o->tune, &o->config, i, regex, sizeof regex);
    if (form->rank != o->tune.rank)
        json_object_set_new(ranks, regex, json_integer((json_int_t)form->rank));
    if (form->alpha != o->tune.alpha)
        json_object_set_new(alphas, regex, json_real((double)form->alpha));
}

static json_t *peft_config(const struct adapter_out *o)
{
    char regex[TUNE_REGEX];
    bool is_regex = tune_regex(&o->tune, &o->config, regex, sizeof regex); /* which says the layers too */
    json_t *targets = is_regex ? json_string(regex) : json_array(), *layers = json_null();
    for (size_t i = 0; i < o->tune.ntargets && !is_regex; i++)
        json_array_append_new(targets, json_string(o->tune.targets[i]));
    json_t *ranks = json_object(), *alphas = json_object();
    for (size_t i = 0; i < o->tune.nforms; i++)
        put_form(o, i, ranks, alphas);
    if (!is_regex && (o->tune.first_layer || o->tune.end_layer != o->config.layers)) {
        layers = json_array();
        for (size_t i = o->tune.first_layer; i < o->tune.end_layer; i++)
            json_array_append_new(layers, json_integer((json_int_t)i));
    }
    return json_pack("{s:s s:s s:s s:n s:b s:i s:f s:f s:o s:n s:b s:s s:b s:b s:n s:b s:o s:n s:o s:o s:n "
                     "s:n s:{} s:n s:s s:n}",
                     "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", o->model_dir,
                     "revision", "inference_mode", 1, "r", (int)o->tune.rank, "lora_alpha",
                     (double)o->tune.alpha, "lora_dropout", (double)o->tune.dropout, "target_modules",
                     targets, "exclude_modules", "fan_in_fan_out", 0, "bias", "none", "use_rslora",
                     (int)o->tune.rslora, "use_dora", (int)o->tune.dora, "modules_to_save",
                     "init_lora_weights", 1, "layers_to_transform", layers, "layers_pattern", "rank_pattern",
                     ranks, "alpha_pattern", alphas, "target_parameters", "auto_mapping", "loftq_config",
                     "megatron_config", "megatron_core", "megatron.core", "layer_replication");
}

/* mlx-lm has one rank and one scale. */
static bool has_mlx(const struct tune *tune)
{
    return tune->kind == TUNE_LORA && tune->nforms <= 1;
}

static int key_one(void *arg, const struct param_def *d)
{
    json_t *list = arg;
    char key[TUNE_TARGET];
    mlx_key_of(key, d);
    size_t i = 0;
    while (i < json_array_size(list) && strcmp(key, json_string_value(json_array_get(list, i))))
        i++;
    return i < json_array_size(list) ? 0 : json_array_append_new(list, json_string(key));
}

/* mlx-lm's keys, which PEFT passes over: linears by their names within a layer, in the last
 * num_layers layers. Where our range ends before the last layer, those behind it get factors that
 * the file does not have, and that stay zero. */
static json_t *mlx_config(const struct adapter_out *o)
{
    json_t *keys = json_array();
    for (size_t u = 0; u < o->config.layers + 2; u++)
        tune_params(&o->tune, o->req.family, &o->config, u, key_one, keys);
    return json_pack("{s:s s:I s:{s:i s:f s:f s:o}}", "fine_tune_type", o->tune.dora ? "dora" : "lora",
                     "num_layers", (json_int_t)(o->config.layers - o->tune.first_layer), "lora_parameters",
                     "rank", (int)o->tune.rank, "scale", tune_scale(&o->tune), "dropout",
                     (double)o->tune.dropout, "keys", keys);
}

static json_t *make_config(const struct adapter_out *o, struct err *err)
{
    json_t *j = peft_config(o), *mlx = has_mlx(&o->tune) ? mlx_config(o) : json_object();
    if (!mlx || json_object_update(j, mlx)) {
        json_decref(j);
        j = NULL;
    }
    json_decref(mlx);
    if (!j)
        err_set(err, -ENOMEM, "%s: no memory for adapter_config.json, or a path that is not UTF-8", o->dir);
    return j;
}

static int write_adapter_config(struct adapter_out *o, struct err *err)
{
    json_t *j = make_config(o, err);
    char *text = j ? json_dumps(j, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(j);
    if (!text)
        return -ENOMEM;
    int r = small_write(o, "adapter_config.json", text, strlen(text), err);
    free(text);
    return r;
}

/* The state says by itself what it is a state of: no other file can belong to another step. */
static int make_record(struct adapter_out *o, struct err *err)
{
    json_t *config = o->tune.kind == TUNE_LORA ? make_config(o, err) : json_null(),
           *j = config ? json_pack("{s:o s:I s:O?}", "adapter", config, "fixed", (json_int_t)o->tune.fixed,
                                   "caller", o->req.record)
                       : NULL;
    char *text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(j);
    const size_t n = text ? strlen(text) : 0;
    o->record_words = (n + sizeof *o->record - 1) / sizeof *o->record;
    o->record = text ? malloc(o->record_words * sizeof *o->record) : NULL;
    if (o->record) {
        memset(o->record, ' ', o->record_words * sizeof *o->record);
        memcpy(o->record, text, n);
    }
    free(text);
    return o->record ? 0 : err_set(err, -ENOMEM, "%s: no memory for the record of the run", o->dir);
}

/* config.json and the tokenizer come along, so that the directory is a model of its own: unchanged,
 * but for a model of which the text part alone is here. */
static int copy_file(struct adapter_out *o, const char *name, struct err *err)
{
    char from[4096], *text;
    size_t n;
    snprintf(from, sizeof from, "%s/%s", o->model_dir, name);
    int r = input_read(from, SMALL_BYTES, &text, &n, err);
    if (r)
        return r == -ENOENT ? 0 : r;
    char *part = o->config.is_text_part && !strcmp(name, "config.json")
                     ? text_part_file(text, n, config_architecture(o->config.family))
                     : NULL;
    r = small_write(o, name, part ? part : text, part ? strlen(part) : n, err);
    free(part);
    free(text);
    return r;
}

static int write_small_files(struct adapter_out *o, struct err *err)
{
    static const char *const files[SMALL_FILES] = {
        "config.json",           "generation_config.json",  "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
        "tiktoken.model"};
    if (o->tune.kind == TUNE_LORA)
        return write_adapter_config(o, err);
    char a[4096], b[4096];
    if (realpath(o->model_dir, a) && realpath(o->dir, b) && !strcmp(a, b))
        return 0;
    for (size_t i = 0; i < SMALL_FILES; i++) {
        int r = copy_file(o, files[i], err);
        if (r)
            return r;
    }
    return 0;
}

/* --- a result --------------------------------------------------------------------------------- */

int adapter_out_open(struct adapter_out **ret, const struct adapter_out_request *req, struct err *err)
{
    if (mkdir(req->dir, 0777) && errno != EEXIST)
        return err_set(err, -errno, "%s cannot be created: %s; choose a directory this user may write",
                       req->dir, strerror(errno));
    struct adapter_out *o = calloc(1, sizeof *o);
    if (!o)
        return err_set(err, -ENOMEM, "out of memory");
    o->req = *req;
    o->tune = *req->tune;
    o->config = *req->config;
    snprintf(o->dir, sizeof o->dir, "%s", req->dir);
    snprintf(o->model_dir, sizeof o->model_dir, "%s", req->model_dir);
    bool full = o->tune.kind == TUNE_FULL;
    int r = writer_open(&o->model, o, full ? "model.safetensors" : ADAPTER_PEFT_FILE,
                        full ? FORM_MODEL : FORM_PEFT, err);
    if (!r && has_mlx(&o->tune))
        r = writer_open(&o->mlx, o, ADAPTER_MLX_FILE, FORM_MLX, err);
    if (!r)
        r = make_record(o, err);
    if (!r)
        r = writer_open(&o->state, o, ADAPTER_STATE_FILE, FORM_STATE, err);
    float step = (float)req->step;
    if (!r)
        r = st_writer_put(o->state, "step", &step, 1, err);
    if (!r)
        r = st_writer_words(o->state, ADAPTER_STATE_RECORD, o->record, o->record_words, err);
    if (!r)
        r = write_small_files(o, err);
    if (r)
        adapter_out_abort(o);
    else
        *ret = o;
    return r;
}

struct putting {
    struct adapter_out *out;
    const struct param_piece *piece;
    int part; /* w, m, v */
    size_t pos;
    const float *in;
    struct err *err;
};

/* A whole factor. */
static int put_mlx(struct adapter_out *o, const struct param_def *d, const float *in, struct err *err)
{
    const struct mlx_factor f = mlx_factor_of(d);
    if (f.expert || !d->cols) /* one after the other, as they lie in the tensor */
        return st_writer_append(o->mlx, f.name, in, param_elements(d), err);
    float *turned = malloc(param_elements(d) * sizeof *turned);
    if (!turned)
        return err_set(err, -ENOMEM, "out of memory");
    factor_transpose(turned, in, d->rows, d->cols);
    int r = st_writer_put(o->mlx, f.name, turned, param_elements(d), err);
    free(turned);
    return r;
}

/* What the piece has of one parameter. */
static int put_one(void *arg, const struct param_def *d)
{
    static const char *const suffix[] = {".w", ".m", ".v"};
    struct putting *p = arg;
    struct adapter_out *o = p->out;
    const struct param_piece_part part = param_piece_overlap(p->piece, p->pos, param_elements(d));
    const float *in = p->in + part.at;
    char name[ADAPTER_NAME];
    int r = 0;
    p->pos += param_elements(d);
    if (!part.n)
        return 0;
    if (p->part == 0) {
        snprintf(name, sizeof name, "%s%s", o->tune.kind == TUNE_FULL ? "" : ADAPTER_PEFT_PREFIX, d->name);
        r = st_writer_append(o->model, name, in, part.n, p->err);
    }
    if (!r && p->part == 0 && o->mlx)
        r = put_mlx(o, d, in, p->err);
    snprintf(name, sizeof name, "%s%s", d->name, suffix[p->part]);
    return r ? r : st_writer_append(o->state, name, in, part.n, p->err);
}

int adapter_out_piece(struct adapter_out *o, const struct param_piece *piece, const float *in,
                      struct err *err)
{
    struct putting p = {.out = o, .piece = piece, .in = in, .err = err};
    int r = 0;
    for (p.part = 0; p.part < 3 && !r; p.part++)
        r = tune_params(&o->tune, o->req.family, &o->config, piece->unit, put_one, &p);
    return r;
}

static void remove_mlx(const struct adapter_out *o)
{
    char path[4096];
    path_in(path, o, ADAPTER_MLX_FILE);
    unlink(path);
}

/* The largest file first: what may still fail should fail before anything older is replaced. */
int adapter_out_finish(struct adapter_out *o, struct err *err)
{
    int r = st_writer_finish(o->model, err);
    o->model = NULL;
    if (!r && o->mlx) {
        r = st_writer_finish(o->mlx, err);
        o->mlx = NULL;
    }
    if (!r && o->tune.kind == TUNE_LORA && !has_mlx(&o->tune))
        remove_mlx(o); /* of an older result */
    if (!r)
        r = small_finish(o, err);
    if (!r) {
        r = st_writer_finish(o->state, err);
        o->state = NULL;
    }
    adapter_out_abort(o); /* what is left */
    return r;
}

void adapter_out_abort(struct adapter_out *o)
{
    if (!o)
        return;
    st_writer_abort(o->model);
    st_writer_abort(o->mlx);
    st_writer_abort(o->state);
    small_abort(o);
    free(o->record);
    free(o);
}
