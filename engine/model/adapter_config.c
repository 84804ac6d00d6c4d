/* SPDX-License-Identifier: MIT
 *
 * Reading adapter_config.json, PEFT's or mlx-lm's: what an adapter is, or why we cannot compute it.
 * Called by the head of a job and by a merge, on one thread. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "file/input.h"
#include "model/adapter.h"
#include "model/adapter_names.h"
#include "model/peft_rules.h"
#include "model/tune_impl.h"

enum { CONFIG_MOST = 16 << 20 };

/* Keys whose value changes the computation in a way we do not do; anything but absent, null, false,
 * empty or "none" is refused. */
static int refuse_unknown(const json_t *o, const char *path, struct err *err)
{
    static const char *const keys[] = {"fan_in_fan_out",
                                       "modules_to_save",
                                       "layer_replication",
                                       "lora_bias",
                                       "target_parameters",
                                       "trainable_token_indices",
                                       "alora_invocation_tokens",
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
            return err_set(err, -ENOTSUP, "%s: \"%s\" is set, which is not supported", path, keys[i]);
    }
    const char *bias = json_string_value(json_object_get(o, "bias"));
    if (bias && strcmp(bias, "none"))
        return err_set(err, -ENOTSUP, "%s: \"bias\": \"%s\" is not supported, only \"none\"", path,
                       input_quote(bias).text);
    const char *type = json_string_value(json_object_get(o, "peft_type"));
    if (!type || strcmp(type, "LORA"))
        return err_set(err, -ENOTSUP, "%s: peft_type is \"%s\", not \"LORA\"", path,
                       type ? input_quote(type).text : "missing");
    return 0;
}

/* PEFT's ways to initialize that take something out of the weights of the model, and keep it in the
 * factors. Its factors belong to those weights, which are not in the directory of the model. PEFT
 * compares the first two by their beginning, and the third in lower case. */
static bool changes_base(const char *init)
{
    return !strncmp(init, "pissa", 5) || !strncmp(init, "corda", 5) || !strcasecmp(init, "olora") ||
           !strcmp(init, "loftq") || !strcmp(init, "lora_ga");
}

static int check_init(const json_t *o, const char *path, struct err *err)
{
    const json_t *v = json_object_get(o, "init_lora_weights");
    const char *init = json_string_value(v);
    if (!v || json_is_null(v) || json_is_boolean(v))
        return 0;
    if (!init)
        return err_set(err, -EINVAL, "%s: \"init_lora_weights\" must be true, false or a text", path);
    if (!strcmp(init, "loftq"))
        return err_set(
            err, -ENOTSUP,
            "%s: \"init_lora_weights\" is \"loftq\", so the factors belong to weights that PEFT "
            "quantized, not to this model's. Merge the adapter in PEFT (merge_and_unload) and save the "
            "model",
            path);
    if (changes_base(init))
        return err_set(
            err, -ENOTSUP,
            "%s: \"init_lora_weights\" is \"%s\", so the factors belong to weights that PEFT "
            "changed, not to this model's. Save the adapter again in PEFT with "
            "save_pretrained(DIR, path_initial_model_for_weight_conversion=DIR_OF_THE_ADAPTER_BEFORE_"
            "TRAINING), which makes it a plain LoRA",
            path, input_quote(init).text);
    if (strcasecmp(init, "gaussian") && strcmp(init, "eva") && strcmp(init, "orthogonal") &&
        strcasecmp(init, "mica"))
        return err_set(
            err, -ENOTSUP,
            "%s: \"init_lora_weights\": \"%s\" is not known here, so the factors may belong to other "
            "weights than this model's. Known are true, false, gaussian, eva, orthogonal and mica",
            path, input_quote(init).text);
    return 0;
}

/* mlx-lm's keys. */
static int read_keys(struct tune *tune, const json_t *keys, const struct family *f, const struct config *c,
                     const char *path, struct err *err)
{
    char list[TUNE_MAX_TARGETS * (TUNE_TARGET + 1)] = "", target[TUNE_TARGET];
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const char *name = json_string_value(json_array_get(keys, i));
        size_t len = strlen(list);
        mlx_key_target(target, name ? name : "?");
        snprintf(list + len, sizeof list - len, "%s%s", len ? "," : "", target);
    }
    int r = tune_targets(tune, f, c, list, err);
    return r ? err_prefix(err, r, "%s: its target modules", path) : 0;
}

/* The names of a list that name linears of the model, as tune_targets takes them; *ret_unknown: the
 * first of the others. */
static void join_known(char *ret, size_t size, const json_t *list, const struct family *f,
                       const struct config *c, const char **ret_unknown)
{
    size_t n = 0;
    *ret = '\0';
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name)
            continue;
        if (!tune_has_target(f, c, name))
            *ret_unknown = *ret_unknown ? *ret_unknown : name;
        else if (n < size)
            n += (size_t)snprintf(ret + n, size - n, "%s%s", n ? "," : "", name);
    }
}

/* Names as they were written, where they say the same: what is written again should look as it
 * did. */
static void keep_names(struct tune *tune, const json_t *list, const struct family *f, const struct config *c)
{
    char names[2048];
    const char *unknown = NULL;
    struct err quiet;
    struct tune same = *tune;
    join_known(names, sizeof names, list, f, c, &unknown);
    if (tune->nforms || tune_targets(&same, f, c, names, &quiet))
        return;
    for (size_t u = 1; u <= c->layers; u++)
        if (tune_param_count(&same, f, c, u) != tune_param_count(tune, f, c, u))
            return;
    *tune = same;
}

static bool is_last_word(const char *name, const char *word)
{
    const size_t n = strlen(name), want = strlen(word);
    return n >= want && !strcmp(name + n - want, word) && (n == want || name[n - want - 1] == '.');
}

/* What has factors in PEFT's adapter and none here. */
static int refuse_ends(const json_t *list, struct err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && (is_last_word(name, "lm_head") || is_last_word(name, "embed_tokens")))
            return err_set(err, -ENOTSUP, "\"%s\" has factors, which are only computed in layers here",
                           input_quote(name).text);
    }
    return 0;
}

static int refuse_unnamed(struct tune *tune, const json_t *targets, const struct family *f,
                          const struct config *c, struct err *err)
{
    const char *unknown = NULL;
    char known[2048];
    if (json_is_string(targets))
        return err_set(err, -EINVAL, "target_modules matches no linear layer of this model");
    join_known(known, sizeof known, targets, f, c, &unknown);
    if (unknown)
        return tune_targets(tune, f, c, unknown, err);
    return json_array_size(targets)
               ? err_set(err, -EINVAL,
                         "no linear of the layers in layers_to_transform is named, or all are excluded")
               : err_set(err, -EINVAL, "no target modules given");
}

static int check_layers(const json_t *layers, const struct config *c, struct err *err)
{
    const size_t n = json_is_array(layers) ? json_array_size(layers) : json_is_integer(layers);
    for (size_t i = 0; i < n; i++) {
        const json_int_t at = json_integer_value(json_is_array(layers) ? json_array_get(layers, i) : layers);
        if (at < 0 || (size_t)at >= c->layers)
            return err_set(err, -EINVAL,
                           "layers_to_transform names layer %lld, and the layers are between 0 and %zu",
                           (long long)at, c->layers - 1);
    }
    return 0;
}

/* Targets, layers, ranks and alphas. */
static int read_places(struct tune *tune, const json_t *o, const struct family *f, const struct config *c,
                       struct err *err)
{
    const json_t *targets = json_object_get(o, "target_modules");
    const struct tune_form usual = {tune->rank, tune->alpha};
    struct peft_rules *rules = NULL;
    int r = refuse_ends(targets, err);
    if (!r)
        r = check_layers(json_object_get(o, "layers_to_transform"), c, err);
    if (!r)
        r = peft_rules_new(&rules, o, usual, err);
    if (!r)
        r = tune_ask_all(tune, f, c, &(struct tune_ask){peft_rules_ask, rules}, err);
    if (r == -ENOENT)
        r = refuse_unnamed(tune, targets, f, c, err);
    else if (!r && json_is_array(targets))
        keep_names(tune, targets, f, c);
    peft_rules_free(rules);
    return r;
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
    tune->dora = json_is_true(json_object_get(o, "use_dora"));
    return 0;
}

static int read_peft(struct tune *tune, const json_t *o, const struct family *f, const struct config *c,
                     const char *path, struct err *err)
{
    int r = refuse_unknown(o, path, err);
    if (!r)
        r = check_init(o, path, err);
    if (!r)
        r = read_scale(tune, o, path, err);
    if (r)
        return r;
    r = read_places(tune, o, f, c, err);
    return r ? err_prefix(err, r, "%s", path) : 0;
}

/* Which layers have a factor in mlx-lm's file beside `config`. */
struct present {
    const struct tune *tune;
    bool *layer; /* owned */
    size_t layers;
};

static void see_layers(struct present *p, const struct st *st)
{
    for (size_t i = 0; i < st_count(st); i++) {
        size_t layer;
        if (sscanf(st_at(st, i)->name, "model.layers.%9zu.", &layer) == 1 && layer < p->layers)
            p->layer[layer] = true;
    }
}

static int ask_present(void *arg, const char *module, size_t layer, struct tune_form *ret, struct err *err)
{
    const struct present *p = arg;
    char tensor[TENSOR_NAME + 8];
    (void)err;
    snprintf(tensor, sizeof tensor, "%s.weight", module);
    return layer >= p->tune->first_layer && layer < p->tune->end_layer && p->layer[layer] &&
           target_form(p->tune, tensor, ret);
}

/* mlx-lm makes factors for the last num_layers layers, and they stay zero where the file has none:
 * our own file of layers in the middle. So a layer without any factor has none. A file that cannot
 * be opened is refused later. */
static int drop_missing(struct tune *tune, const char *config, const struct family *f, const struct config *c,
                        struct err *err)
{
    char path[4096];
    struct err quiet;
    struct st *st;
    const struct tune all = *tune;
    struct present p = {.tune = &all, .layers = c->layers};
    snprintf(path, sizeof path, "%.*s/" ADAPTER_MLX_FILE, (int)(strrchr(config, '/') - config), config);
    if (st_open_file(&st, path, &quiet))
        return 0;
    int r = (p.layer = calloc(c->layers, sizeof *p.layer)) ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (!r)
        see_layers(&p, st);
    if (!r)
        r = tune_ask_all(tune, f, c, &(struct tune_ask){ask_present, &p}, err);
    if (r == -ENOENT) { /* none of them: what is missing is told when the file is read */
        *tune = all;
        r = 0;
    } else if (!r && !tune->nforms) { /* the targets as they were written */
        tune->ntargets = all.ntargets;
        memcpy(tune->targets, all.targets, sizeof tune->targets);
    }
    free(p.layer);
    st_close(st);
    return r;
}

/* What mlx-lm writes: the arguments of its run, of which these say what the adapter is. Its scale
 * is what the product is multiplied by; num_layers counts from the last, and all where it is not
 * positive; without keys every linear of a layer has factors. */
static int read_mlx(struct tune *tune, const json_t *o, const struct family *f, const struct config *c,
                    const char *path, struct err *err)
{
    const json_t *p = json_object_get(o, "lora_parameters"), *keys = json_object_get(p, "keys");
    const char *type = json_string_value(json_object_get(o, "fine_tune_type"));
    const json_int_t rank = json_integer_value(json_object_get(p, "rank")),
                     layers = json_integer_value(json_object_get(o, "num_layers"));
    const double scale = json_number_value(json_object_get(p, "scale"));
    const bool is_dora = type && !strcmp(type, "dora");
    if (type && strcmp(type, "lora") && !is_dora)
        return err_set(err, -ENOTSUP,
                       "%s: \"fine_tune_type\": \"%s\" is not supported, only \"lora\" and \"dora\"", path,
                       input_quote(type).text);
    if (rank < 1 || rank > 65536 || !(scale > 0) || scale > 1e6)
        return err_set(err, -EINVAL, "%s: rank and scale in lora_parameters must be positive numbers", path);
    tune->kind = TUNE_LORA;
    tune->rank = (size_t)rank;
    tune->alpha = (float)(scale * (double)rank);
    tune->rslora = false;
    tune->dora = is_dora;
    tune_last_layers(tune, c, layers > 0 ? (size_t)layers : 0);
    tune->nforms = 0;
    int r = keys && !json_is_null(keys) ? read_keys(tune, keys, f, c, path, err)
                                        : tune_targets(tune, f, c, "all-linear", err);
    return r ? r : drop_missing(tune, path, f, c, err);
}

int adapter_parse_config(struct tune *tune, const json_t *o, const char *path, const struct family *f,
                         const struct config *c, struct err *err)
{
    struct tune read = *tune;
    const bool mlx = !json_object_get(o, "peft_type") &&
                     (json_object_get(o, "lora_parameters") || json_object_get(o, "fine_tune_type"));
    int r = (mlx ? read_mlx : read_peft)(&read, o, f, c, path, err);
    if (!r)
        r = tune_check(&read, f, c, err);
    if (r)
        return r;
    *tune = read;
    return 0;
}

int adapter_read_config(struct tune *tune, const char *dir, const struct family *f, const struct config *c,
                        struct err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    json_error_t je = {.line = 0};
    char *text = NULL;
    size_t n = 0;
    struct err why;
    int read = input_read(path, CONFIG_MOST, &text, &n, &why);
    if (read)
        return err_set(err, -EINVAL, "%s; is this the directory of an adapter?", why.text);
    json_t *o = json_loadb(text, n, 0, &je);
    free(text);
    if (!json_is_object(o)) {
        json_decref(o);
        char line[32] = ""; /* a file that is not there has none */
        if (je.line > 0)
            snprintf(line, sizeof line, ", line %d,", je.line);
        return err_set(err, -EINVAL, "%s%s cannot be read: %s; is this the directory of an adapter?", path,
                       line, *je.text ? je.text : "not an object");
    }
    int r = adapter_parse_config(tune, o, path, f, c, err);
    json_decref(o);
    return r;
}
