/* SPDX-License-Identifier: MIT
 *
 * Inside of gguf_names.c and gguf_config.c: the small files of a model, each made of metadata as
 * JSON that the caller lets go of. Sentences do not name the file. Nobody else includes this. */
#ifndef FILE_GGUF_MODEL_IMPL_H
#define FILE_GGUF_MODEL_IMPL_H

#include <jansson.h>

#include "file/gguf_model.h"

/* gguf_config.c */
int gguf_config(json_t **ret, const struct gguf_model *m, struct err *err);
const char *gguf_config_architecture(const struct gguf *g);
/* Are rows of q and k in the order of pairs that are rotated together (mat_stored_row)? */
bool gguf_config_is_turned(const struct gguf *g);
/* Are norms stored with the 1 added that the model adds? */
bool gguf_config_adds_one(const struct gguf *g);
size_t gguf_config_head_width(const struct gguf *g);

/* gguf_linear.c: what a tensor of a layer is called and how it lies in the architectures with
 * linear layers, where others would have another name or none. `rest`: its name behind that of the
 * layer. False: it is as elsewhere. */
bool gguf_linear_alias(struct gguf_alias *ret, const struct gguf *g, size_t layer, const char *rest);
/* Where that of a layer begins that stands behind the last: "mtp.layers.0." instead of
 * "model.layers.4.". Of other architectures and layers as it was. */
void gguf_linear_prefix(char *ret, size_t size, const struct gguf *g, size_t layer);

/* gguf_rope.c: the factors of rope_freqs.weight as the rule of Llama 3 that they follow. */
int gguf_rope_scaling(json_t **ret, const float *factor, size_t n, double base, struct err *err);

/* gguf_tokenizer.c */
int gguf_tokenizer(json_t **ret, const struct gguf *g, struct err *err);
int gguf_tokenizer_config(json_t **ret, const struct gguf *g, struct err *err);
/* The ids that end an answer, as many as `most`. */
size_t gguf_tokenizer_ends(const struct gguf *g, int64_t *ret, size_t most);
bool gguf_tokenizer_bos(const struct gguf *g, int64_t *ret);

/* --- a config.json in the making -------------------------------------------------------------- */

/* After the first failure all calls do nothing. Called by gguf_config.c and gguf_arch.c; one
 * thread. */
struct gguf_maker {
    const struct gguf_model *m;
    const struct gguf *g;
    const char *arch; /* general.architecture */
    json_t *root;     /* owned */
    struct err *err;
    int r; /* the first failure */
};

/* Takes `value`. */
void maker_put(struct gguf_maker *k, const char *name, json_t *value);
const struct gguf_value *maker_value(const struct gguf *g, const char *arch, const char *key);
/* A count; an array of one for each layer counts if all are alike. −1: it is missing. */
int64_t maker_whole(struct gguf_maker *k, const char *key);
/* The same; −1 with an error. */
int64_t maker_needed(struct gguf_maker *k, const char *key);
double maker_real(struct gguf_maker *k, const char *key, double fallback);
bool maker_flag(struct gguf_maker *k, const char *key, bool fallback);
/* Where the key is missing: as if the config had not got it. */
void maker_put_whole(struct gguf_maker *k, const char *name, const char *key);
void maker_put_needed(struct gguf_maker *k, const char *name, const char *key);
bool maker_has(const struct gguf_maker *k, const char *tensor);
bool maker_is_text(const struct gguf_value *v, const char *text);

/* A row for each general.architecture that is read. */
struct gguf_arch {
    const char *gguf, *model_type;
    bool is_turned;    /* as gguf_config_is_turned */
    bool rotates_part; /* of a head */
    bool is_latent;    /* its heads are those of put() */
    bool adds_one;     /* as gguf_config_adds_one */
    enum {
        LINEAR_NONE,
        LINEAR_SPLIT, /* one of its two projections lies in two parts */
        LINEAR_WOVEN, /* value heads lie in another order */
    } linear;
    void (*put)(struct gguf_maker *k); /* keys of its own, or NULL */
};
/* Linear layers: their keys, and which layers they are. */
void maker_put_linear(struct gguf_maker *k);
/* NULL: it is none of them, or missing. */
const struct gguf_arch *gguf_arch_find(const struct gguf *g);
/* In their order; NULL: there are no more. */
const struct gguf_arch *gguf_arch_at(size_t i);

#endif
