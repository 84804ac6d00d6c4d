/* SPDX-License-Identifier: MIT
 *
 * Owns the reading of config.json and generation_config.json into struct config. Called when a job is
 * prepared and when a stage opens its model; any thread. A further family is a row in `families` with a
 * parser of its own. */
#include "file/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/config_reader.h"
#include "file/input.h"

enum {
    CONFIG_LIMIT = 16 * 1024 * 1024, /* bytes of a config.json: an embedded vocabulary is the largest seen */
    /* Above any real model, and small enough that no product of two of them overflows. */
    MAX_LAYERS = 4096,
    MAX_WIDTH = 1 << 22,
    MAX_HEADS = 1 << 14,
    MAX_HEAD = 1 << 14,
    MAX_VOCAB = 1 << 24,
};

/* --- llama ------------------------------------------------------------------------------------ */

static void read_heads(struct config_reader *r, struct config *c)
{
    c->heads = config_size(r, r->root, "num_attention_heads", 0, MAX_HEADS);
    c->kv_heads = config_size(r, r->root, "num_key_value_heads", c->heads ? c->heads : 1, MAX_HEADS);
    if (c->heads && c->kv_heads && c->heads % c->kv_heads != 0)
        config_complain(r, "num_attention_heads %zu is not a multiple of num_key_value_heads %zu", c->heads,
                        c->kv_heads);
    if (config_lookup(r->root, "head_dim"))
        c->head = config_size(r, r->root, "head_dim", 0, MAX_HEAD);
    else if (c->heads && c->dim % c->heads != 0)
        config_complain(
            r, "hidden_size %zu is not a multiple of num_attention_heads %zu, and no head_dim is given",
            c->dim, c->heads);
    else if (c->heads && c->dim)
        c->head = c->dim / c->heads;
    if (c->head % 2 != 0)
        config_complain(r, "head_dim %zu is odd, but rotation takes pairs", c->head);
    if (c->heads * c->head > MAX_WIDTH)
        config_complain(r, "num_attention_heads × head_dim is %zu, possible are up to %d", c->heads * c->head,
                        MAX_WIDTH);
}

static void read_dtype(struct config_reader *r, struct config *c)
{
    const char *name =
        config_string(r, r->root, "dtype", config_string(r, r->root, "torch_dtype", "float32"));
    c->dtype = DTYPE_F32;
    if (name && dtype_from_name(name, &c->dtype) < 0)
        config_complain(r, "dtype \"%s\" is not one of float32, float16 and bfloat16",
                        input_quote(name).text);
}

static void read_token(struct config_reader *r, const json_t *v, const char *key, size_t vocab, int32_t *ret)
{
    json_int_t id = json_integer_value(v);
    if (!json_is_integer(v) || id < 0 || (uint64_t)id >= (vocab ? vocab : MAX_VOCAB))
        config_complain(r, "%s must be a token id below vocab_size", key);
    else
        *ret = (int32_t)id;
}

/* One id, a list of them, or nothing: JSON null, or an absent key, leave the list as it is. */
static void read_eos(struct config_reader *r, const json_t *v, struct config *c)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!v)
        return;
    if (n > CONFIG_MAX_EOS) {
        config_complain(r, "eos_token_id lists %zu ids, at most %d are possible", n, CONFIG_MAX_EOS);
        return;
    }
    c->neos = n;
    memset(c->eos, 0, sizeof c->eos);
    for (size_t i = 0; i < n; i++)
        read_token(r, json_is_array(v) ? json_array_get(v, i) : v, "eos_token_id", c->vocab, &c->eos[i]);
}

/* What LlamaConfig assumes where the keys are absent; an explicit null means that there is none. */
static void read_tokens(struct config_reader *r, struct config *c)
{
    c->bos = json_object_get(r->root, "bos_token_id") ? -1 : 1;
    const json_t *bos = config_lookup(r->root, "bos_token_id");
    if (bos)
        read_token(r, bos, "bos_token_id", c->vocab, &c->bos);
    if (!json_object_get(r->root, "eos_token_id")) {
        c->eos[0] = 2;
        c->neos = 1;
    }
    read_eos(r, config_lookup(r->root, "eos_token_id"), c);
}

/* What changes the numbers and is not computed must not pass silently. */
static void refuse_unknown(struct config_reader *r)
{
    const char *act = config_string(r, r->root, "hidden_act", "silu");
    if (act && strcmp(act, "silu") != 0)
        config_complain(r, "hidden_act \"%s\" is not computed here (silu is)", input_quote(act).text);
    if (config_lookup(r->root, "quantization_config"))
        config_complain(r, "quantization_config: quantised weights are not read; take the unquantised model");
    if (config_real(r, r->root, "attention_dropout", 0, 0, 1) > 0)
        config_complain(r, "attention_dropout is not computed here; set it to 0");
}

static void read_llama(struct config_reader *r, struct config *c)
{
    c->layers = config_size(r, r->root, "num_hidden_layers", 0, MAX_LAYERS);
    c->dim = config_size(r, r->root, "hidden_size", 0, MAX_WIDTH);
    c->ffn = config_size(r, r->root, "intermediate_size", 0, MAX_WIDTH);
    c->vocab = config_size(r, r->root, "vocab_size", 0, MAX_VOCAB);
    c->max_positions = config_size(r, r->root, "max_position_embeddings", 2048, INT32_MAX);
    c->norm_eps = (float)config_real(r, r->root, "rms_norm_eps", 1e-6, 0, 1);
    c->init_std = (float)config_real(r, r->root, "initializer_range", 0.02, 0, 100);
    c->tied = config_bool(r, r->root, "tie_word_embeddings", false);
    c->attn_bias = config_bool(r, r->root, "attention_bias", false);
    c->mlp_bias = config_bool(r, r->root, "mlp_bias", false);
    read_heads(r, c);
    read_dtype(r, c);
    read_tokens(r, c);
    config_read_rope(r, c);
    refuse_unknown(r);
}

/* --- families --------------------------------------------------------------------------------- */

static const struct family {
    const char *model_type, *architecture;
    void (*read)(struct config_reader *r, struct config *c);
} families[] = {
    {"llama", "LlamaForCausalLM", read_llama},
};

static void list_families(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof families / sizeof families[0] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", families[i].model_type);
}

static void check_architecture(struct config_reader *r, const struct family *f)
{
    const json_t *list = config_lookup(r->root, "architectures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, f->architecture) == 0)
            return;
    }
    const char *first = json_string_value(json_array_get(list, 0));
    if (list)
        config_complain(r, "architectures name %s, possible is %s", first ? input_quote(first).text : "none",
                        f->architecture);
}

static void read_family(struct config_reader *r, struct config *c)
{
    const char *type = config_string(r, r->root, "model_type", NULL);
    char known[128];
    if (!type) {
        config_complain(r, "model_type is missing");
        return;
    }
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(type, families[i].model_type) != 0)
            continue;
        snprintf(c->family, sizeof c->family, "%s", type);
        check_architecture(r, &families[i]);
        families[i].read(r, c);
        return;
    }
    list_families(known, sizeof known);
    config_complain(r, "the model family \"%s\" is not computed here (known: %s)", input_quote(type).text,
                    known);
}

/* --- texts and files -------------------------------------------------------------------------- */

static int load_object(json_t **ret, const char *json, size_t n, struct err *err)
{
    json_error_t je;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return err_set(err, -EBADMSG, "line %d is not sound JSON: %s", je.line, input_quote(je.text).text);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, -EBADMSG, "holds no JSON object");
    }
    *ret = root;
    return 0;
}

static int conclude(const struct config_reader *r, struct err *err)
{
    if (r->count == 0)
        return 0;
    if (r->hidden)
        return err_set(err, -ENOTSUP, "%s; and %zu more", r->text, r->hidden);
    return err_set(err, -ENOTSUP, "%s", r->text);
}

int config_parse(struct config *ret, const char *json, size_t n, struct err *err)
{
    json_t *root;
    int code = load_object(&root, json, n, err);
    if (code < 0)
        return code;
    struct config_reader r = {.root = root};
    struct config c;
    memset(&c, 0, sizeof c); /* padding too: equal configs are equal byte by byte */
    read_family(&r, &c);
    json_decref(root);
    code = conclude(&r, err);
    if (code == 0)
        memcpy(ret, &c, sizeof c);
    return code;
}

static int parse_generation(struct config *c, const char *json, size_t n, struct err *err)
{
    json_t *root;
    int code = load_object(&root, json, n, err);
    if (code < 0)
        return code;
    struct config_reader r = {.root = root};
    read_eos(&r, config_lookup(root, "eos_token_id"), c);
    json_decref(root);
    return conclude(&r, err);
}

static int read_with(int (*parse)(struct config *c, const char *json, size_t n, struct err *err),
                     struct config *c, const char *dir, const char *name, struct err *err)
{
    char *path = input_path(dir, name), *json = NULL;
    size_t n = 0;
    if (!path)
        return err_set(err, -ENOMEM, "%s: no memory to read %s", dir, name);
    int r = input_read(path, CONFIG_LIMIT, &json, &n, err);
    if (r == 0 && (r = parse(c, json, n, err)) < 0)
        err_prefix(err, r, "%s", path);
    free(json);
    free(path);
    return r;
}

int config_read(struct config *ret, const char *dir, struct err *err)
{
    struct config c;
    int r = read_with(config_parse, &c, dir, "config.json", err);
    if (r == -ENOENT)
        return err_set(err, r, "%s has no config.json; name the directory of a downloaded Hugging Face model",
                       dir);
    if (r < 0)
        return r;
    struct err unread;
    struct config with = c;
    r = read_with(parse_generation, &with, dir, "generation_config.json", &unread);
    if (r < 0 && r != -ENOENT)
        return err_set(err, r, "%s", unread.text);
    if (r == 0) {
        c.neos = with.neos;
        memcpy(c.eos, with.eos, sizeof c.eos);
    }
    memcpy(ret, &c, sizeof c);
    return 0;
}
