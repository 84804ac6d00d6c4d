/* SPDX-License-Identifier: MIT
 *
 * Reading adapters and training states: what a run starts from. */
#include "model/adapter.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/input.h"
#include "model/adapter_names.h"

/* --- adapter_config.json ---------------------------------------------------------------------- */

/* Keys whose value changes the computation in a way we do not do; anything but absent, null, false, empty or
 * "none" is refused. */
static int refuse_unknown(const json_t *o, const char *path, struct err *err)
{
    static const char *const keys[] = {"use_dora",
                                       "fan_in_fan_out",
                                       "modules_to_save",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "layer_replication",
                                       "lora_bias",
                                       "target_parameters",
                                       "exclude_modules",
                                       "trainable_token_indices",
                                       "alora_invocation_tokens",
                                       "layers_pattern",
                                       "use_qalora",
                                       "use_bdlora",
                                       "arrow_config",
                                       "kasa_config",
                                       "monteclora_config",
                                       "velora_config"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(o, keys[i]);
        bool empty = !v || json_is_null(v) || json_is_false(v) ||
                     (json_is_object(v) && !json_object_size(v)) || (json_is_array(v) && !json_array_size(v));
        if (!empty)
            return err_set(err, -ENOTSUP, "%s: \"%s\" is set, which is not computed here", path, keys[i]);
    }
    const char *bias = json_string_value(json_object_get(o, "bias"));
    if (bias && strcmp(bias, "none"))
        return err_set(err, -ENOTSUP, "%s: \"bias\": \"%s\" is not computed here, only \"none\"", path, bias);
    const char *type = json_string_value(json_object_get(o, "peft_type"));
    if (!type || strcmp(type, "LORA"))
        return err_set(err, -ENOTSUP, "%s: peft_type is \"%s\", not \"LORA\"", path, type ? type : "missing");
    return 0;
}

static int read_targets(struct tune *tune, const json_t *targets, const struct family *f,
                        const struct config *c, const char *path, struct err *err)
{
    char list[TUNE_MAX_TARGETS * (TUNE_TARGET + 1)] = "", target[TUNE_TARGET];
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *name = json_string_value(json_array_get(targets, i));
        size_t len = strlen(list);
        mlx_key_target(target, name ? name : "?");
        snprintf(list + len, sizeof list - len, "%s%s", len ? "," : "", target);
    }
    int r = tune_targets(tune, f, c, list, err);
    return r ? err_prefix(err, r, "%s: its target modules", path) : 0;
}

/* A text is "all-linear", or a regular expression, which then says the layers too. */
static int read_target_text(struct tune *tune, const char *text, const struct family *f,
                            const struct config *c, const char *path, struct err *err)
{
    int r = strcmp(text, "all-linear") ? tune_targets_regex(tune, f, c, text, err)
                                       : tune_targets(tune, f, c, text, err);
    return r ? err_prefix(err, r, "%s: target_modules", path) : 0;
}

/* null = all layers; else one layer, or a list of layers that follow each other. */
static int read_layers(struct tune *tune, const json_t *layers, const struct config *c, const char *path,
                       struct err *err)
{
    tune->first_layer = 0;
    tune->end_layer = c->layers;
    size_t n = json_is_array(layers) ? json_array_size(layers) : layers && !json_is_null(layers);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(layers) ? json_array_get(layers, i) : layers;
        json_int_t at = json_is_integer(item) ? json_integer_value(item) : -1;
        if (at < 0 || (size_t)at >= c->layers || (i && (size_t)at != tune->end_layer))
            return err_set(err, -ENOTSUP,
                           "%s: layers_to_transform must be one run of layers between 0 and %zu", path,
                           c->layers - 1);
        if (!i)
            tune->first_layer = (size_t)at;
        tune->end_layer = (size_t)at + 1;
    }
    return 0;
}

static int read_scale(struct tune *tune, const json_t *o, const char *path, struct err *err)
{
    json_int_t rank = json_integer_value(json_object_get(o, "r"));
    double alpha = json_number_value(json_object_get(o, "lora_alpha"));
    if (rank < 1 || rank > 65536 || !(alpha > 0) || alpha > 1e6)
        return err_set(err, -EINVAL, "%s: r and lora_alpha must be positive numbers", path);
    tune->kind = TUNE_LORA;
    tune->rank = (size_t)rank;
    tune->alpha = (float)alpha;
    tune->rslora = json_is_true(json_object_get(o, "use_rslora"));
    return 0;
}

static int read_peft(struct tune *tune, const json_t *o, const struct family *f, const struct config *c,
                     const char *path, struct err *err)
{
    int r = refuse_unknown(o, path, err);
    if (!r)
        r = read_scale(tune, o, path, err);
    const json_t *targets = json_object_get(o, "target_modules");
    if (!r)
        r = read_layers(tune, json_object_get(o, "layers_to_transform"), c, path, err);
    if (!r && json_is_string(targets))
        return read_target_text(tune, json_string_value(targets), f, c, path, err);
    return r ? r : read_targets(tune, targets, f, c, path, err);
}

/* What mlx-lm writes: the arguments of its run, of which these say what the adapter is. Its scale is what the product is
 * multiplied by; num_layers counts from the last, and all where it is not positive; without keys every linear of a layer
 * has factors. */
static int read_mlx(struct tune *tune, const json_t *o, const struct family *f, const struct config *c,
                    const char *path, struct err *err)
{
    const json_t *p = json_object_get(o, "lora_parameters"), *keys = json_object_get(p, "keys");
    const char *type = json_string_value(json_object_get(o, "fine_tune_type"));
    const json_int_t rank = json_integer_value(json_object_get(p, "rank")),
                     layers = json_integer_value(json_object_get(o, "num_layers"));
    const double scale = json_number_value(json_object_get(p, "scale"));
    if (type && strcmp(type, "lora"))
        return err_set(err, -ENOTSUP, "%s: \"fine_tune_type\": \"%s\" is not computed here, only \"lora\"",
                       path, input_quote(type).text);
    if (rank < 1 || rank > 65536 || !(scale > 0) || scale > 1e6)
        return err_set(err, -EINVAL, "%s: rank and scale in lora_parameters must be positive numbers", path);
    tune->kind = TUNE_LORA;
    tune->rank = (size_t)rank;
    tune->alpha = (float)(scale * (double)rank);
    tune->rslora = false;
    tune_last_layers(tune, c, layers > 0 ? (size_t)layers : 0);
    return keys && !json_is_null(keys) ? read_targets(tune, keys, f, c, path, err)
                                       : read_target_text(tune, "all-linear", f, c, path, err);
}

int adapter_read_config(struct tune *tune, const char *dir, const struct family *f, const struct config *c,
                        struct err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    json_error_t je;
    json_t *o = json_load_file(path, 0, &je);
    if (!json_is_object(o)) {
        json_decref(o);
        char line[32] = ""; /* a file that is not there has none */
        if (je.line > 0)
            snprintf(line, sizeof line, ", line %d,", je.line);
        return err_set(err, -EINVAL, "%s%s cannot be read: %s; is this the directory of an adapter?", path,
                       line, *je.text ? je.text : "not an object");
    }
    struct tune read = *tune;
    const bool mlx = !json_object_get(o, "peft_type") &&
                     (json_object_get(o, "lora_parameters") || json_object_get(o, "fine_tune_type"));
    int r = (mlx ? read_mlx : read_peft)(&read, o, f, c, path, err);
    if (!r)
        *tune = read;
    json_decref(o);
    return r;
}

/* --- values ----------------------------------------------------------------------------------- */

enum form { FORM_PEFT, FORM_MLX, FORM_STATE };

struct adapter_in {
    struct st *st; /* owned */
    enum form form;
    struct tune tune;
    const struct family *family; /* borrowed */
    struct config config;
};

enum value { VALUE_W, VALUE_M, VALUE_V };
enum { MAX_STEP = 1 << 24 }; /* what an f32 counts to */

/* Where a value lies in the file. */
struct place {
    char name[ADAPTER_NAME];
    size_t ndim, shape[3]; /* wanted of the tensor */
    size_t first;          /* element */
    bool turned;
    bool shared; /* with another value, whose place comes before */
};

static struct place place_of(const struct adapter_in *in, const struct param_def *def, enum value value)
{
    static const char *const suffix[] = {"w", "m", "v"};
    struct place p = {.ndim = def->cols ? 2 : 1, .shape = {def->rows, def->cols}};
    if (in->form == FORM_STATE) {
        snprintf(p.name, sizeof p.name, "%s.%s", def->name, suffix[value]);
    } else if (in->form == FORM_PEFT) {
        snprintf(p.name, sizeof p.name, ADAPTER_PEFT_PREFIX "%s", def->name);
    } else {
        const struct mlx_factor f = mlx_factor_of(def);
        p = (struct place){.ndim = 2, .shape = {def->cols, def->rows}, .turned = true};
        if (f.expert)
            p = (struct place){.ndim = 3,
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

static int check_param(const struct adapter_in *in, const struct place *p, const char *path, struct err *err)
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
        const struct place p = place_of(k->in, def, (enum value)v);
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

/* All that were found are there, and there are more: the first that was not found is one too many. */
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
    struct checking k = {.in = in, .path = path, .err = err, .cap = st_count(in->st) + 1};
    if (!(k.found = calloc(k.cap, sizeof(const struct st_tensor *))))
        return err_set(err, -ENOMEM, "out of memory");
    int r = 0;
    if (adapter_in_has_state(in) && !(k.found[k.n++] = st_find(in->st, "step")))
        r = err_set(err, -EINVAL, "%s lacks the tensor \"step\"", path);
    for (size_t u = 0; u < in->config.layers + 2 && !r; u++)
        r = tune_params(&in->tune, in->family, &in->config, u, check_one, &k);
    if (!r && st_count(in->st) != k.n)
        r = refuse_extra(&k);
    free(k.found);
    return r;
}

static int in_open(struct adapter_in **ret, const char *path, enum form form, const struct tune *tune,
                   const struct family *f, const struct config *c, struct err *err)
{
    struct adapter_in *in = calloc(1, sizeof *in);
    if (!in)
        return err_set(err, -ENOMEM, "out of memory");
    *in = (struct adapter_in){.form = form, .tune = *tune, .family = f, .config = *c};
    int r = st_open_file(&in->st, path, err);
    if (!r)
        r = check_all(in, path, err);
    if (r)
        adapter_in_close(in);
    else
        *ret = in;
    return r;
}

int adapter_in_open(struct adapter_in **ret, const char *dir, const struct tune *tune, const struct family *f,
                    const struct config *c, struct err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/" ADAPTER_MLX_FILE, dir);
    bool mlx = !access(path, F_OK);
    snprintf(path, sizeof path, "%s/" ADAPTER_PEFT_FILE, dir);
    mlx = mlx && access(path, F_OK);
    if (mlx)
        snprintf(path, sizeof path, "%s/" ADAPTER_MLX_FILE, dir);
    return in_open(ret, path, mlx ? FORM_MLX : FORM_PEFT, tune, f, c, err);
}

int adapter_in_open_state(struct adapter_in **ret, const char *dir, const struct tune *tune,
                          const struct family *f, const struct config *c, uint64_t *ret_step, struct err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/" ADAPTER_STATE_FILE, dir);
    struct adapter_in *in;
    int r = in_open(&in, path, FORM_STATE, tune, f, c, err);
    if (r)
        return r;
    const struct st_tensor *t = st_find(in->st, "step");
    float step = -1;
    if (t->elements == 1 && t->dtype == DTYPE_F32)
        memcpy(&step, t->data, sizeof step);
    if (!(step >= 0 && step <= MAX_STEP)) {
        adapter_in_close(in);
        return err_set(err, -EINVAL, "%s: \"step\" is not a number of steps", path);
    }
    *ret_step = (uint64_t)step;
    *ret = in;
    return 0;
}

/* Values [first, first + n) of a parameter. */
static void copy_value(const struct adapter_in *in, const struct param_def *def, enum value value,
                       size_t first, size_t n, float *out)
{
    const struct place p = place_of(in, def, value);
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
    free(in);
}
