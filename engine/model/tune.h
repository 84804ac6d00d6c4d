/* SPDX-License-Identifier: MIT
 *
 * What is trained: nothing, LoRA factors, or everything; and, from that and the config alone, the
 * trained parameters of every unit with names and shapes. So the head can read and write files for
 * units it does not hold. */
#ifndef MODEL_TUNE_H
#define MODEL_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "model/family.h"

enum { TUNE_MAX_TARGETS = 16, TUNE_TARGET = 40, TUNE_MAX_FORMS = 255, TUNE_FORM_LAYERS = 256 };

/* What new factors begin with, as PEFT's init_lora_weights has it. */
enum lora_init {
    LORA_INIT_UNIFORM,    /* true: A uniform in ±1/√in (kaiming_uniform with a = √5), B zero */
    LORA_INIT_GAUSSIAN,   /* "gaussian": A normal with deviation 1/rank, B zero */
    LORA_INIT_ORTHOGONAL, /* "orthogonal": neither is zero, and their product is; of an even rank */
    LORA_INIT_PISSA, /* "pissa": the principal part of the weight, see pissa.h; half of the rank is fixed */
};
enum { LORA_INIT_RANK_MAX = 256 }; /* of orthogonal: more takes minutes to draw */

enum tune_kind { TUNE_NONE, TUNE_LORA, TUNE_FULL };

/* What the factors of a linear are like. */
struct tune_form {
    size_t rank;
    float alpha;
};

struct tune {
    enum tune_kind kind;
    size_t rank;
    float alpha, dropout;
    bool rslora;  /* the product of the factors is scaled by alpha/√rank, not alpha/rank */
    bool dora;    /* each row of the weight keeps its direction alone, and has a magnitude (layer/dora.h) */
    size_t fixed; /* of the rank, so many of the last are never updated: rows of A, columns of B */
    enum lora_init init;
    double plus_ratio;  /* LoRA+: B's learning rate as a multiple of A's, and magnitudes'; 0 counts as 1 */
    double layer_decay; /* the last layer learns at the rate, each below it slower by this; 0 counts as 1 */
    size_t ntargets;
    char targets[TUNE_MAX_TARGETS][TUNE_TARGET]; /* "q_proj", "experts.*.up_proj": see tune_targets */
    size_t first_layer, end_layer;               /* layers that have LoRA: [first, end) */
    /* An adapter made elsewhere may have other ranks in other layers, or leave out layers between
     * others. Then each target is one kind of linear, and form[target][layer] is k + 1 for
     * forms[k], 0 where there are no factors. Without forms every target has rank and alpha, in all
     * layers of the range. */
    size_t nforms;
    struct tune_form forms[TUNE_MAX_FORMS];
    uint8_t form[TUNE_MAX_TARGETS][TUNE_FORM_LAYERS];
    uint64_t seed;
    bool random_init; /* full: weights drawn from `seed` instead of read */
};

/* Targets as the user wrote them: the last words of a linear's name, as in PEFT, with * for any
 * number: "q_proj,v_proj", "shared_experts.up_proj", "experts.*.down_proj"; or "all-linear" (every
 * linear of a layer, not the head). Refuses what no linear of the model ends in, listing those
 * there are. */
int tune_targets(struct tune *tune, const struct family *f, const struct config *c, const char *list,
                 struct err *err);
/* What is trained where the user does not say: queries and values, or what comes before them where
 * mlx-lm has no linear of its own for the values. */
const char *tune_default_targets(const struct config *c);
/* Targets that a caller names one by one, as adapters made elsewhere do. `ask` is shown the
 * module's name ("model.layers.3.mlp.up_proj") of every linear, with its layer; it returns 1 and
 * the form, 0 where there are no factors, or −errno with `err` filled. Sets targets, layers, rank
 * and alpha, and forms where one of these is not enough. Refuses experts of one layer that differ.
 * −ENOENT, without a sentence, where nothing is named. */
struct tune_ask {
    int (*ask)(void *arg, const char *module, size_t layer, struct tune_form *ret, struct err *err);
    void *arg;
};
int tune_ask_all(struct tune *tune, const struct family *f, const struct config *c,
                 const struct tune_ask *ask, struct err *err);
/* As many again of rank are fixed behind those that are learnt; the scale stays what it was. */
void tune_fix_half(struct tune *tune);
/* What an adapter asks for that is not computed: −ENOTSUP with a sentence. Routed experts have no
 * magnitudes, as PEFT and mlx-lm have none for them. */
int tune_check(const struct tune *tune, const struct family *f, const struct config *c, struct err *err);
/* Is there a linear that a target would name? */
bool tune_has_target(const struct family *f, const struct config *c, const char *target);
/* Do two adapters lie on the same linears, with the same forms where they have forms? */
bool tune_same_place(const struct tune *a, const struct tune *b);
/* Layers as the user wrote them: "FIRST-LAST" counted from 0, or one number. Refuses what the model
 * does not have.
 */
int tune_layers(struct tune *tune, const struct config *c, const char *range, struct err *err);
/* The last n, all where there are no more or n is 0: mlx-lm's num_layers. */
void tune_last_layers(struct tune *tune, const struct config *c, size_t n);
/* What the product of the factors is multiplied by: of rank and alpha, and of a form. */
double tune_scale(const struct tune *tune);
/* What the learning rate of a unit is multiplied by: layer_decay as often as there are units
 * between it and the head (Clark et al. 2020, "ELECTRA", appendix B). */
double tune_layer_rate(const struct tune *tune, const struct config *c, size_t unit);
double tune_form_scale(const struct tune *tune, const struct tune_form *form);
/* Regular expressions for PEFT: of targets and layers where a list of names cannot say them
 * (experts, forms), false where none is needed; and of the linears that have form i, for
 * rank_pattern and alpha_pattern. The number of an expert may be missing: libraries that fuse
 * experts know their module without it. */
enum { TUNE_REGEX = 32768 };
bool tune_regex(const struct tune *tune, const struct config *c, char *ret, size_t size);
void tune_form_regex(const struct tune *tune, const struct config *c, size_t i, char *ret, size_t size);

enum param_role { PARAM_FULL, PARAM_A, PARAM_B, PARAM_M };
struct param_def {
    char name[TENSOR_NAME + 32]; /* "model.layers.0.self_attn.q_proj.lora_A.weight", or the tensor's own */
    enum param_role role;
    bool plus_one;           /* a norm's, which multiplies by 1 more */
    enum tensor_weave weave; /* as of struct tensor_def */
    bool fixed;              /* travels and is written with the others, but is never updated */
    size_t tensor;           /* index of the tensor_def it belongs to */
    size_t rows, cols;       /* cols = 0: vector, such as magnitudes */
    size_t taps;             /* as in struct tensor_def */
    size_t grain;            /* the same, where a slice makes the gradients of some rows; 0: of all */
    double scale;            /* of factors: what their product is multiplied by */
};
/* Shows the parameters of a unit to `visit` in canonical order; stops as family_tensors does. */
int tune_params(const struct tune *tune, const struct family *f, const struct config *c, size_t unit,
                int (*visit)(void *arg, const struct param_def *def), void *arg);
size_t tune_param_count(const struct tune *tune, const struct family *f, const struct config *c, size_t unit);
size_t param_elements(const struct param_def *def);
/* Σ elements over a unit's parameters. */
size_t tune_unit_elements(const struct tune *tune, const struct family *f, const struct config *c,
                          size_t unit);

/* Fresh values: of LoRA as tune->init says; a convolution as A of LORA_INIT_UNIFORM, its taps being
 * its inputs; full: matrices normal(0, init_std), norms so that they multiply by one, biases zero.
 * Drawn from the seed and the parameter's name, so they do not depend on the split. −ENOMEM of
 * LORA_INIT_ORTHOGONAL alone. */
int param_init(float *w, const struct param_def *def, const struct tune *tune, const struct config *c);

/* The lowest layer (0-based) that gets a gradient; config->layers if none does. */
size_t tune_lowest_layer(const struct tune *tune, const struct config *c);

#endif
