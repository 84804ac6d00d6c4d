/* SPDX-License-Identifier: MIT */
#include "model/tune.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "num/rng.h"

/* "model.layers.0.self_attn.q_proj.weight" → "q_proj"; ret of at least 32 bytes. */
static void linear_suffix(char ret[32], const char *name)
{
    char copy[TENSOR_NAME];
    snprintf(copy, sizeof copy, "%s", name);
    char *dot = strrchr(copy, '.');
    if (dot)
        *dot = 0;
    dot = strrchr(copy, '.');
    snprintf(ret, 32, "%.31s", dot ? dot + 1 : copy);
}

static bool targeted(const struct tune *tune, const char *suffix)
{
    for (size_t i = 0; i < tune->ntargets; i++)
        if (!strcmp(tune->targets[i], suffix))
            return true;
    return false;
}

static int target_add(struct tune *tune, const char *suffix, struct err *err)
{
    if (targeted(tune, suffix))
        return 0;
    if (tune->ntargets == TUNE_MAX_TARGETS)
        return err_set(err, -E2BIG, "more than %d target modules", TUNE_MAX_TARGETS);
    snprintf(tune->targets[tune->ntargets++], 32, "%s", suffix);
    return 0;
}

static int target_unknown(const char *name, const struct tensor_def *defs, size_t n, struct err *err)
{
    char known[256] = "", suffix[32];
    for (size_t i = 0; i < n; i++) {
        if (!defs[i].linear)
            continue;
        linear_suffix(suffix, defs[i].name);
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", len ? ", " : "", suffix);
    }
    return err_set(err, -EINVAL,
                   "no linear layer of this model is called \"%s\"; there are %s, or all-linear", name,
                   known);
}

int tune_targets(struct tune *tune, const struct family *f, const struct config *c, const char *list,
                 struct err *err)
{
    struct tensor_def defs[UNIT_MAX_TENSORS];
    size_t n = f->tensors(c, 1, defs);
    bool all = !strcmp(list, "all-linear");
    tune->ntargets = 0;
    for (const char *at = list; all || *at;) {
        char want[32], suffix[32];
        size_t len = strcspn(at, ",");
        snprintf(want, sizeof want, "%.*s", (int)(len < 31 ? len : 31), at);
        bool found = false;
        for (size_t i = 0; i < n; i++) {
            if (!defs[i].linear)
                continue;
            linear_suffix(suffix, defs[i].name);
            if (!all && strcmp(suffix, want))
                continue;
            found = true;
            int r = target_add(tune, suffix, err);
            if (r)
                return r;
        }
        if (!found)
            return target_unknown(want, defs, n, err);
        if (all || !at[len])
            break;
        at += len + 1;
    }
    return tune->ntargets ? 0 : err_set(err, -EINVAL, "no target modules given");
}

static void lora_pair(struct param_def *ret, const struct tensor_def *def, size_t tensor, size_t rank)
{
    const char *cut = strrchr(def->name, '.'); /* ".weight" */
    int stem = (int)(cut - def->name);
    ret[0] = (struct param_def){.role = PARAM_A, .tensor = tensor, .rows = rank, .cols = def->cols};
    ret[1] = (struct param_def){.role = PARAM_B, .tensor = tensor, .rows = def->rows, .cols = rank};
    snprintf(ret[0].name, sizeof ret[0].name, "%.*s.lora_A.weight", stem, def->name);
    snprintf(ret[1].name, sizeof ret[1].name, "%.*s.lora_B.weight", stem, def->name);
}

size_t tune_params(const struct tune *tune, const struct family *f, const struct config *c, size_t unit,
                   struct param_def *ret)
{
    struct tensor_def defs[UNIT_MAX_TENSORS];
    struct param_def params[UNIT_MAX_PARAMS];
    size_t tensors = f->tensors(c, unit, defs), n = 0;
    bool layer = unit >= 1 && unit <= c->layers;
    for (size_t i = 0; i < tensors; i++) {
        char suffix[32];
        linear_suffix(suffix, defs[i].name);
        if (tune->kind == TUNE_FULL) {
            params[n] = (struct param_def){
                .role = PARAM_FULL, .tensor = i, .rows = defs[i].rows, .cols = defs[i].cols};
            memcpy(params[n++].name, defs[i].name, sizeof defs[i].name);
        } else if (tune->kind == TUNE_LORA && layer && defs[i].linear && unit - 1 >= tune->first_layer &&
                   unit - 1 < tune->end_layer && targeted(tune, suffix)) {
            lora_pair(params + n, &defs[i], i, tune->rank);
            n += 2;
        }
    }
    if (ret)
        memcpy(ret, params, n * sizeof *params);
    return n;
}

size_t param_elements(const struct param_def *def)
{
    return def->rows * (def->cols ? def->cols : 1);
}

size_t tune_unit_elements(const struct tune *tune, const struct family *f, const struct config *c,
                          size_t unit)
{
    struct param_def params[UNIT_MAX_PARAMS];
    size_t n = tune_params(tune, f, c, unit, params), total = 0;
    for (size_t i = 0; i < n; i++)
        total += param_elements(&params[i]);
    return total;
}

void param_init(float *w, const struct param_def *def, const struct tune *tune, const struct config *c)
{
    char purpose[sizeof def->name + 8];
    snprintf(purpose, sizeof purpose, "init/%s", def->name);
    struct rng rng = rng_for(tune->seed, purpose);
    size_t n = param_elements(def);
    float bound = def->cols ? 1.0f / sqrtf((float)def->cols) : 0;
    bool bias = strstr(def->name, ".bias") != NULL;
    if (def->role == PARAM_A)
        rng_fill_uniform(&rng, w, n, -bound, bound);
    else if (def->role == PARAM_B || bias)
        memset(w, 0, n * sizeof *w);
    else if (def->cols)
        rng_fill_normal(&rng, w, n, 0, c->init_std);
    else
        for (size_t i = 0; i < n; i++)
            w[i] = 1;
}

size_t tune_lowest_layer(const struct tune *tune, const struct config *c)
{
    if (tune->kind == TUNE_FULL)
        return 0;
    return tune->kind == TUNE_LORA ? tune->first_layer : c->layers;
}
