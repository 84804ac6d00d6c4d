/* SPDX-License-Identifier: MIT */
#include "model/unit.h"

#include <stdio.h>
#include <string.h>

void unit_init(struct unit *u, const struct family *f, const struct config *c, const struct tune *tune,
               size_t index)
{
    struct param_def defs[UNIT_MAX_PARAMS];
    *u = (struct unit){.index = index};
    u->ntensors = f->tensors(c, index, u->defs);
    u->nparams = tune_params(tune, f, c, index, defs);
    for (size_t i = 0; i < u->nparams; i++) {
        struct param *p = &u->params[i];
        *p = (struct param){.def = defs[i], .n = param_elements(&defs[i])};
        if (defs[i].role == PARAM_A) {
            size_t t = defs[i].tensor;
            u->lora[t] = (struct lora){
                .rank = tune->rank, .scale = tune->alpha / (float)tune->rank, .dropout = tune->dropout};
            u->weights.lin[t].lora = &u->lora[t];
        }
    }
}

/* The parameter that trains the whole tensor, or NULL where it is frozen. */
static const struct param *param_of(const struct unit *u, size_t tensor)
{
    for (size_t i = 0; i < u->nparams; i++)
        if (u->params[i].def.tensor == tensor && u->params[i].def.role == PARAM_FULL)
            return &u->params[i];
    return NULL;
}

static bool is_trained(const struct unit *u, size_t tensor)
{
    return param_of(u, tensor) != NULL;
}

static void param_attach(struct unit *u, struct param *p)
{
    size_t t = p->def.tensor;
    switch (p->def.role) {
    case PARAM_A:
        u->lora[t].a = p->w;
        u->grads.a[t] = p->g;
        break;
    case PARAM_B:
        u->lora[t].b = p->w;
        u->grads.b[t] = p->g;
        break;
    case PARAM_FULL:
        u->grads.full[t] = p->g;
        u->weights.vec[t] = p->w;
        u->weights.lin[t].w = (struct mat){p->w, DTYPE_F32, p->def.rows, p->def.cols};
        break;
    }
}

void unit_carve(struct unit *u, struct slab *slab, bool training)
{
    for (size_t i = 0; i < u->nparams; i++) {
        struct param *p = &u->params[i];
        p->w = slab_floats(slab, p->n, 1);
        p->g = training ? slab_floats(slab, p->n, 1) : NULL;
        p->m = training ? slab_floats(slab, p->n, 1) : NULL;
        p->v = training ? slab_floats(slab, p->n, 1) : NULL;
        param_attach(u, p);
    }
    for (size_t t = 0; t < u->ntensors; t++)
        if (!u->defs[t].cols && !is_trained(u, t))
            u->weights.vec[t] = u->vec[t] = slab_floats(slab, u->defs[t].rows, 1);
}

static void complain(char *complaints, size_t size, const char *text)
{
    size_t len = strlen(complaints);
    snprintf(complaints + len, size - len, "%s%s", len ? "; " : "", text);
}

/* "[12]" or "[12, 20]", as the writers of such files print shapes. */
static void shape_text(char ret[64], size_t ndim, size_t rows, size_t cols)
{
    if (ndim < 2)
        snprintf(ret, 64, "[%zu]", rows);
    else
        snprintf(ret, 64, "[%zu, %zu%s]", rows, cols, ndim > 2 ? ", …" : "");
}

/* A sentence part if the file's tensor is not what the family wants, else "". */
static void check_tensor(char *ret, size_t size, const struct tensor_def *def, const struct st_tensor *t)
{
    *ret = 0;
    size_t dims = def->cols ? 2 : 1;
    if (!t)
        snprintf(ret, size, "%s is missing", def->name);
    else if (t->ndim != dims || t->shape[0] != def->rows || (dims == 2 && t->shape[1] != def->cols)) {
        char is[64], wanted[64];
        shape_text(is, t->ndim, t->ndim ? t->shape[0] : 0, t->ndim > 1 ? t->shape[1] : 0);
        shape_text(wanted, dims, def->rows, def->cols);
        snprintf(ret, size, "%s is %s, config.json says %s", def->name, is, wanted);
    } else if (t->dtype == DTYPE_COUNT)
        snprintf(ret, size, "%s is stored as %s, which is not computed with", def->name, t->dtype_name);
}

/* A linear's bias is the vector whose name differs only in its last word. */
static void bind_biases(struct unit *u)
{
    for (size_t b = 0; b < u->ntensors; b++) {
        const char *dot = strrchr(u->defs[b].name, '.');
        if (!dot || strcmp(dot, ".bias"))
            continue;
        for (size_t t = 0; t < u->ntensors; t++)
            if (t != b && !strncmp(u->defs[t].name, u->defs[b].name, (size_t)(dot - u->defs[b].name) + 1))
                u->weights.lin[t].bias = u->weights.vec[b];
    }
}

static void params_start(struct unit *u, const struct tune *tune, const struct config *c)
{
    for (size_t i = 0; i < u->nparams; i++)
        if (u->params[i].def.role != PARAM_FULL || tune->random_init)
            param_init(u->params[i].w, &u->params[i].def, tune, c);
}

size_t unit_bind(struct unit *u, const struct st *st, const struct tune *tune, const struct config *c,
                 char *complaints, size_t size)
{
    size_t bad = 0;
    for (size_t i = 0; st && i < u->ntensors; i++) {
        const struct tensor_def *def = &u->defs[i];
        const struct st_tensor *t = st_find(st, def->name);
        char why[256];
        check_tensor(why, sizeof why, def, t);
        if (*why) {
            complain(complaints, size, why);
            bad++;
        } else if (u->vec[i]) {
            dtype_to_f32(u->vec[i], t->data, t->dtype, t->elements);
        } else if (is_trained(u, i)) {
            dtype_to_f32(param_of(u, i)->w, t->data, t->dtype, t->elements);
        } else {
            u->weights.lin[i].w = (struct mat){t->data, t->dtype, def->rows, def->cols};
            st_willneed(st, t); /* read ahead in the order of the layers, while the rest is set up */
        }
    }
    bind_biases(u);
    params_start(u, tune, c);
    return bad;
}

void unit_pack(const struct unit *u, float *out, bool state)
{
    for (int part = 0; part < (state ? 3 : 1); part++)
        for (size_t i = 0; i < u->nparams; i++) {
            const struct param *p = &u->params[i];
            memcpy(out, part == 0 ? p->w : part == 1 ? p->m : p->v, p->n * sizeof *out);
            out += p->n;
        }
}

void unit_unpack(struct unit *u, const float *in, bool state)
{
    for (int part = 0; part < (state ? 3 : 1); part++)
        for (size_t i = 0; i < u->nparams; i++) {
            struct param *p = &u->params[i];
            memcpy(part == 0 ? p->w : part == 1 ? p->m : p->v, in, p->n * sizeof *in);
            in += p->n;
        }
}
