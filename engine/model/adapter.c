/* SPDX-License-Identifier: MIT
 *
 * Reading adapters and training states: what a run starts from. */
#include "model/adapter.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"

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
    char list[512] = "";
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *name = json_string_value(json_array_get(targets, i));
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s%s", len ? "," : "", name ? name : "?");
    }
    int r = tune_targets(tune, f, c, list, err);
    return r ? err_prefix(err, r, "%s: target_modules", path) : 0;
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

int adapter_read_config(struct tune *tune, const char *dir, const struct family *f, const struct config *c,
                        struct err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    json_error_t je;
    json_t *o = json_load_file(path, 0, &je);
    if (!json_is_object(o)) {
        json_decref(o);
        return err_set(err, -EINVAL, "%s cannot be read: %s (line %d); is this a PEFT adapter directory?",
                       path, *je.text ? je.text : "not an object", je.line);
    }
    struct tune read = *tune;
    int r = refuse_unknown(o, path, err);
    if (!r)
        r = read_scale(&read, o, path, err);
    const json_t *targets = json_object_get(o, "target_modules");
    if (!r)
        r = read_layers(&read, json_object_get(o, "layers_to_transform"), c, path, err);
    if (!r && json_is_string(targets))
        r = read_target_text(&read, json_string_value(targets), f, c, path, err);
    else if (!r)
        r = read_targets(&read, targets, f, c, path, err);
    if (!r)
        *tune = read;
    json_decref(o);
    return r;
}

/* --- values ----------------------------------------------------------------------------------- */

struct adapter_in {
    struct st *st; /* owned */
    bool state;
    struct tune tune;
    const struct family *family; /* borrowed */
    struct config config;
};

enum value { VALUE_W, VALUE_M, VALUE_V };
enum { MAX_STEP = 1 << 24 }; /* what an f32 counts to */

static void tensor_name(char *buf, size_t size, const struct adapter_in *in, const struct param_def *def,
                        enum value value)
{
    static const char *const suffix[] = {"w", "m", "v"};
    if (in->state)
        snprintf(buf, size, "%s.%s", def->name, suffix[value]);
    else
        snprintf(buf, size, "base_model.model.%s", def->name);
}

static int check_param(const struct adapter_in *in, const struct param_def *def, enum value value,
                       const char *path, struct err *err)
{
    char name[256];
    tensor_name(name, sizeof name, in, def, value);
    const struct st_tensor *t = st_find(in->st, name);
    if (!t)
        return err_set(err, -EINVAL, "%s lacks %s", path, name);
    size_t ndim = def->cols ? 2 : 1;
    if (t->ndim != ndim || t->shape[0] != def->rows || (ndim == 2 && t->shape[1] != def->cols) ||
        t->dtype == DTYPE_COUNT)
        return err_set(
            err, -EINVAL,
            "%s: %s has the wrong shape or type: [%zu, %zu] %s, wanted [%zu, %zu]; was it made for "
            "another model?",
            path, name, t->ndim ? t->shape[0] : 0, t->ndim > 1 ? t->shape[1] : 0, t->dtype_name, def->rows,
            def->cols);
    return 0;
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
    for (int v = VALUE_W; v <= (k->in->state ? VALUE_V : VALUE_W); v++) {
        int r = check_param(k->in, def, (enum value)v, k->path, k->err);
        if (r)
            return r;
        char name[256];
        tensor_name(name, sizeof name, k->in, def, (enum value)v);
        if (k->n < k->cap)
            k->found[k->n] = st_find(k->in->st, name);
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
    if (in->state && !(k.found[k.n++] = st_find(in->st, "step")))
        r = err_set(err, -EINVAL, "%s lacks the tensor \"step\"", path);
    for (size_t u = 0; u < in->config.layers + 2 && !r; u++)
        r = tune_params(&in->tune, in->family, &in->config, u, check_one, &k);
    if (!r && st_count(in->st) != k.n)
        r = refuse_extra(&k);
    free(k.found);
    return r;
}

static int in_open(struct adapter_in **ret, const char *path, bool state, const struct tune *tune,
                   const struct family *f, const struct config *c, struct err *err)
{
    struct adapter_in *in = calloc(1, sizeof *in);
    if (!in)
        return err_set(err, -ENOMEM, "out of memory");
    *in = (struct adapter_in){.state = state, .tune = *tune, .family = f, .config = *c};
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
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    return in_open(ret, path, false, tune, f, c, err);
}

int adapter_in_open_state(struct adapter_in **ret, const char *dir, const struct tune *tune,
                          const struct family *f, const struct config *c, uint64_t *ret_step, struct err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/training_state.safetensors", dir);
    struct adapter_in *in;
    int r = in_open(&in, path, true, tune, f, c, err);
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

struct copying {
    const struct adapter_in *in;
    enum value value;
    float *out;
};

static int copy_one(void *arg, const struct param_def *def)
{
    struct copying *c = arg;
    char name[256];
    tensor_name(name, sizeof name, c->in, def, c->value);
    const struct st_tensor *t = st_find(c->in->st, name);
    dtype_to_f32(c->out, t->data, t->dtype, t->elements);
    c->out += t->elements;
    return 0;
}

void adapter_in_unit(const struct adapter_in *in, size_t unit, float *out)
{
    struct copying c = {.in = in, .out = out};
    for (int v = VALUE_W; v <= (in->state ? VALUE_V : VALUE_W); v++) {
        c.value = (enum value)v;
        tune_params(&in->tune, in->family, &in->config, unit, copy_one, &c);
    }
}

bool adapter_in_has_state(const struct adapter_in *in)
{
    return in->state;
}

void adapter_in_close(struct adapter_in *in)
{
    if (!in)
        return;
    st_close(in->st);
    free(in);
}
