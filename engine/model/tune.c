/* SPDX-License-Identifier: MIT
 *
 * The parameters of a unit, from what is trained and the config alone. Called by units, adapters
 * and the head; pure. */
#include "model/tune.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/tune_impl.h"
#include "num/rng.h"

/* --- parameters ------------------------------------------------------------------------------- */

struct tune_walk {
    const struct tune *tune;
    bool lora; /* LoRA may be on this unit at all */
    size_t tensor;
    int (*visit)(void *arg, const struct param_def *def);
    void *arg;
};

static int visit_lora(const struct tune_walk *w, const struct tensor_def *def, const struct tune_form *form)
{
    const char *cut = strrchr(def->name, '.'); /* ".weight" */
    const int stem = (int)(cut - def->name);
    const double scale = tune_form_scale(w->tune, form);
    struct param_def
        a = {.role = PARAM_A, .tensor = w->tensor, .rows = form->rank, .cols = def->cols, .scale = scale},
        b = {.role = PARAM_B, .tensor = w->tensor, .rows = def->rows, .cols = form->rank, .scale = scale};
    snprintf(a.name, sizeof a.name, "%.*s.lora_A.weight", stem, def->name);
    snprintf(b.name, sizeof b.name, "%.*s.lora_B.weight", stem, def->name);
    const int r = w->visit(w->arg, &a);
    return r ? r : w->visit(w->arg, &b);
}

static int walk_one(void *arg, const struct tensor_def *def)
{
    struct tune_walk *w = arg;
    struct tune_form form;
    int r = 0;
    if (w->tune->kind == TUNE_FULL) {
        struct param_def p = {.role = PARAM_FULL,
                              .fixed = def->fixed,
                              .plus_one = def->plus_one,
                              .tensor = w->tensor,
                              .rows = def->rows,
                              .cols = def->cols};
        memcpy(p.name, def->name, sizeof def->name);
        r = w->visit(w->arg, &p);
    } else if (w->lora && def->linear && target_form(w->tune, def->name, &form)) {
        r = visit_lora(w, def, &form);
    }
    w->tensor++;
    return r;
}

int tune_params(const struct tune *tune, const struct family *f, const struct config *c, size_t unit,
                int (*visit)(void *arg, const struct param_def *def), void *arg)
{
    const bool layer = unit >= 1 && unit <= c->layers;
    struct tune_walk w = {.tune = tune, .visit = visit, .arg = arg};
    w.lora = tune->kind == TUNE_LORA && layer && unit - 1 >= tune->first_layer && unit - 1 < tune->end_layer;
    return tune->kind == TUNE_FULL || w.lora ? family_tensors(f, c, unit, walk_one, &w) : 0;
}

size_t param_elements(const struct param_def *def)
{
    return def->rows * (def->cols ? def->cols : 1);
}

static int count_one(void *arg, const struct param_def *def)
{
    (void)def;
    ++*(size_t *)arg;
    return 0;
}

size_t tune_param_count(const struct tune *tune, const struct family *f, const struct config *c, size_t unit)
{
    size_t n = 0;
    tune_params(tune, f, c, unit, count_one, &n);
    return n;
}

static int add_elements(void *arg, const struct param_def *def)
{
    *(size_t *)arg += param_elements(def);
    return 0;
}

size_t tune_unit_elements(const struct tune *tune, const struct family *f, const struct config *c,
                          size_t unit)
{
    size_t total = 0;
    tune_params(tune, f, c, unit, add_elements, &total);
    return total;
}

void param_init(float *w, const struct param_def *def, const struct tune *tune, const struct config *c)
{
    char purpose[sizeof def->name + 8];
    snprintf(purpose, sizeof purpose, "init/%s", def->name);
    struct rng rng = rng_for(tune->seed, purpose);
    size_t n = param_elements(def);
    float bound = def->cols ? 1.0f / sqrtf((float)def->cols) : 0;
    bool bias = strstr(def->name, "bias") != NULL;
    if (def->role == PARAM_A)
        rng_fill_uniform(&rng, w, n, -bound, bound);
    else if (def->role == PARAM_B || bias || def->plus_one)
        memset(w, 0, n * sizeof *w);
    else if (def->cols)
        rng_fill_normal(&rng, w, n, 0, c->init_std);
    else
        for (size_t i = 0; i < n; i++)
            w[i] = 1;
}

int tune_layers(struct tune *tune, const struct config *c, const char *range, struct err *err)
{
    unsigned long first = 0, last = 0;
    int used = 0;
    if (sscanf(range, "%9lu%n-%9lu%n", &first, &used, &last, &used) == 1)
        last = first;
    if (!used || range[used] || strspn(range, "0123456789-") != strlen(range) || first > last ||
        last >= c->layers)
        return err_set(err, -EINVAL,
                       "\"%s\" is not a range of layers: FIRST-LAST is needed, between 0 and %zu", range,
                       c->layers - 1);
    tune->first_layer = first;
    tune->end_layer = last + 1;
    return 0;
}

void tune_last_layers(struct tune *tune, const struct config *c, size_t n)
{
    tune->first_layer = n && n < c->layers ? c->layers - n : 0;
    tune->end_layer = c->layers;
}

double tune_form_scale(const struct tune *tune, const struct tune_form *form)
{
    const double rank = (double)form->rank;
    return (double)form->alpha / (tune->rslora ? sqrt(rank) : rank);
}

double tune_scale(const struct tune *tune)
{
    return tune_form_scale(tune, &(struct tune_form){tune->rank, tune->alpha});
}

size_t tune_lowest_layer(const struct tune *tune, const struct config *c)
{
    if (tune->kind == TUNE_FULL)
        return 0;
    return tune->kind == TUNE_LORA ? tune->first_layer : c->layers;
}
