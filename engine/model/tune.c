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
    struct param_def a = {.role = PARAM_A,
                          .weave = def->weave,
                          .tensor = w->tensor,
                          .rows = form->rank,
                          .cols = def->cols},
                     b = {.role = PARAM_B,
                          .weave = def->weave,
                          .tensor = w->tensor,
                          .rows = def->rows,
                          .cols = form->rank};
    struct param_def m = {
        .role = PARAM_M, .weave = def->weave, .tensor = w->tensor, .rows = def->rows, .grain = def->grain};
    a.scale = b.scale = m.scale = scale;
    snprintf(a.name, sizeof a.name, "%.*s.lora_A.weight", stem, def->name);
    snprintf(b.name, sizeof b.name, "%.*s.lora_B.weight", stem, def->name);
    snprintf(m.name, sizeof m.name, "%.*s.lora_magnitude_vector", stem, def->name);
    int r = w->visit(w->arg, &a);
    if (!r)
        r = w->visit(w->arg, &b);
    return r || !w->tune->dora ? r : w->visit(w->arg, &m);
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
                              .cols = def->cols,
                              .taps = def->taps,
                              .grain = def->grain};
        memcpy(p.name, def->name, sizeof def->name);
        r = w->visit(w->arg, &p);
    } else if (w->lora && def->linear && !def->fixed && target_form(w->tune, def->name, &form)) {
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

void tune_fix_half(struct tune *tune)
{
    tune->fixed = tune->rank;
    tune->alpha = (float)((double)tune->alpha * (tune->rslora ? sqrt(2) : 2));
    tune->rank *= 2;
}

struct dora_search {
    const struct tune *tune;
    struct err *err;
};

static int check_one(void *arg, const struct tensor_def *def)
{
    const struct dora_search *k = arg;
    struct tune_form form;
    if (!def->linear || def->fixed || !def->cold || !target_form(k->tune, def->name, &form))
        return 0;
    return err_set(k->err, -ENOTSUP,
                   "DoRA has no magnitudes for routed experts, such as %s: choose --target-modules without "
                   "them, or train plain LoRA",
                   def->name);
}

int tune_check(const struct tune *tune, const struct family *f, const struct config *c, struct err *err)
{
    struct dora_search k = {tune, err};
    int r = 0;
    if (tune->fixed && (tune->fixed > tune->rank || tune->nforms))
        return err_set(err, -EINVAL, "%zu of the adapter's rank of %zu cannot be fixed", tune->fixed,
                       tune->rank);
    if (tune->kind != TUNE_LORA || !tune->dora)
        return 0;
    for (size_t l = tune->first_layer; l < tune->end_layer && l < c->layers && !r; l++)
        r = family_tensors(f, c, l + 1, check_one, &k);
    return r;
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

double tune_layer_rate(const struct tune *tune, const struct config *c, size_t unit)
{
    double rate = 1;
    for (size_t u = unit; tune->layer_decay > 0 && u < c->layers; u++)
        rate *= tune->layer_decay;
    return rate;
}

size_t tune_lowest_layer(const struct tune *tune, const struct config *c)
{
    if (tune->kind == TUNE_FULL)
        return 0;
    return tune->kind == TUNE_LORA ? tune->first_layer : c->layers;
}
