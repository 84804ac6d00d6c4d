/* SPDX-License-Identifier: MIT */
#include "model/write/rewrite_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "file/text_part.h"

#define KV_B ".kv_b_proj.weight"

struct planning {
    struct rewrite_plan *plan;
    const struct rewrite_how *how;
    const struct st *st;
    size_t unit, index;
    struct err *err;
};

void rewrite_plan_done(struct rewrite_plan *p)
{
    json_decref(p->left);
    free(p->items);
}

static int add(struct planning *p, const struct rewrite_item *item)
{
    struct rewrite_plan *plan = p->plan;
    if (plan->n == plan->room) {
        const size_t room = plan->room ? 2 * plan->room : 256;
        struct rewrite_item *grown = reallocarray(plan->items, room, sizeof *grown);
        if (!grown)
            return err_set(p->err, -ENOMEM, "out of memory");
        plan->items = grown;
        plan->room = room;
    }
    plan->items[plan->n++] = *item;
    plan->bytes += item->bytes;
    plan->quantized += item->bits > 0;
    return 0;
}

void rewrite_item_name(char ret[512], const struct rewrite_item *item)
{
    char stack[STORED_NAME];
    struct stored_woven at;
    const char *name = item->other ? item->other->name : item->def.name;
    const bool is_stack = item->ways      ? stored_woven_name(stack, &at, &item->def)
                          : item->experts ? stored_stack_name(stack, &at.expert, &item->def)
                                          : false;
    snprintf(ret, 512, "%s", is_stack ? stack : name);
}

/* --- tensors of the model --------------------------------------------------------------------- */

static enum dtype written_as(const struct planning *p, const struct tensor_def *def, const struct stored *s)
{
    if (def->fixed && !def->cols) /* f32, as everywhere */
        return s->t->dtype;
    if (p->how->dtype != DTYPE_COUNT)
        return p->how->dtype;
    if (!s->t || s->t->block || s->is_quantized)
        return p->how->config->dtype;
    return s->t->dtype == DTYPE_F8_E4M3 ? DTYPE_BF16 : s->t->dtype;
}

/* Is it stored in two parts, which are looked at when the unit is opened? */
static bool is_joined(const struct planning *p, const struct tensor_def *def)
{
    const size_t n = strlen(def->name), end = strlen(KV_B);
    return p->how->config->mla.kv_b_parts && n > end && !strcmp(def->name + n - end, KV_B);
}

/* mlx-lm quantizes what has whole groups, and says of the rest that it is not. */
static int choose_bits(struct planning *p, struct rewrite_item *item)
{
    char module[STORED_NAME];
    if (!p->how->bits || !stored_is_quantizable(&item->def))
        return 0;
    if (item->def.cols % p->how->group == 0) {
        item->bits = p->how->bits;
        return 0;
    }
    stored_module_name(module, &item->def);
    return json_object_set_new(p->plan->left, module, json_false())
               ? err_set(p->err, -ENOMEM, "out of memory")
               : 0;
}

/* mlx-lm has the experts of a layer in one tensor; Hugging Face has each by itself, or all of them
 * woven. */
static void choose_stack(const struct planning *p, struct rewrite_item *item)
{
    char stack[STORED_NAME];
    struct stored_woven at = {.ways = 0};
    if (p->how->bits ? stored_stack_name(stack, &at.expert, &item->def)
                     : stored_woven_name(stack, &at, &item->def))
        item->experts = p->how->config->moe.experts;
    item->ways = at.ways;
    item->is_first = !item->experts || (!at.expert && !at.way);
}

static int plan_tensor(void *arg, const struct tensor_def *def)
{
    struct planning *p = arg;
    struct rewrite_item item = {.def = *def, .unit = p->unit, .index = p->index++};
    struct stored s = {.t = NULL};
    char why[256];
    if (!is_joined(p, def) && !stored_find(&s, p->st, def, p->how->config->fp8, why, sizeof why))
        return err_set(p->err, -EINVAL, "%s: %s", p->how->model, why);
    int r = choose_bits(p, &item);
    choose_stack(p, &item);
    item.dtype = written_as(p, def, &s);
    if (item.is_first)
        item.bytes = (item.experts ? item.experts : 1) * (item.ways ? item.ways : 1) *
                     (item.bits ? stored_quantized_bytes(def, item.bits, p->how->group, QUANT_AFFINE)
                                : def->rows * (def->cols ? def->cols : 1) * dtype_size(item.dtype));
    return r ? r : add(p, &item);
}

/* --- others ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

struct tensor_def rewrite_other_def(const struct st_tensor *t)
{
    const size_t cols = t->ndim ? t->shape[t->ndim - 1] : 1;
    struct tensor_def def = {.rows = cols ? t->elements / cols : 0, .cols = cols};
    snprintf(def.name, sizeof def.name, "%s", t->name);
    return def;
}

static int check_other(const struct planning *p, const struct st_tensor *t)
{
    const struct tensor_def def = rewrite_other_def(t);
    char why[256];
    snprintf(why, sizeof why, "%s is FP8, but no matrix", input_quote(t->name).text);
    if (t->dtype == DTYPE_COUNT && !t->block)
        return err_set(p->err, -ENOTSUP, "%s: %s is stored as %s, which cannot be written here",
                       p->how->model, input_quote(t->name).text, t->dtype_name);
    if (t->dtype == DTYPE_F8_E4M3 && strlen(t->name) >= sizeof def.name)
        return err_set(p->err, -EINVAL,
                       "%s: the name of %s has more than %zu characters, too many to look for its scales",
                       p->how->model, input_quote(t->name).text, sizeof def.name - 1);
    if (t->dtype == DTYPE_F8_E4M3 &&
        (t->ndim != 2 || !stored_scales(NULL, p->st, &def, p->how->config->fp8_rows, why, sizeof why)))
        return err_set(p->err, -EINVAL, "%s: %s", p->how->model, why);
    return 0;
}

static int plan_other(struct planning *p, const struct st_tensor *t)
{
    struct rewrite_item item = {
        .other = t, .is_first = true, .def.fixed = strstr(t->name, "e_score_correction_bias") != NULL};
    const struct stored s = {.t = t};
    int r = check_other(p, t);
    item.dtype = written_as(p, &item.def, &s);
    item.bytes = t->elements * dtype_size(item.dtype);
    return r ? r : add(p, &item);
}

static int plan_others(struct planning *p)
{
    const size_t known = p->plan->n;
    const char **names = calloc(known + 1, sizeof *names);
    int r = names ? 0 : err_set(p->err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < known && !r; i++) /* not pointers into items, which move as they grow */
        if (!(names[i] = strdup(p->plan->items[i].def.name)))
            r = err_set(p->err, -ENOMEM, "out of memory");
    if (!r)
        qsort(names, known, sizeof *names, by_name);
    for (size_t i = 0; i < st_count(p->st) && !r; i++) {
        const struct st_tensor *t = st_at(p->st, i);
        char of[STORED_NAME];
        const char *key = of;
        stored_model_name(of, t->name);
        if (p->how->config->is_text_part && text_part_is_other(t->name))
            continue;
        if (!bsearch(&key, names, known, sizeof *names, by_name) && !stored_is_scales(p->st, t->name))
            r = plan_other(p, t);
    }
    for (size_t i = 0; names && i < known; i++)
        free((char *)names[i]);
    free(names);
    return r;
}

/* --- files ------------------------------------------------------------------------------------ */

/* The item of the same stack before this one. */
static const struct rewrite_item *before(const struct rewrite_plan *p, size_t i)
{
    char name[512], other[512];
    rewrite_item_name(name, &p->items[i]);
    while (i-- > 0) {
        rewrite_item_name(other, &p->items[i]);
        if (!strcmp(name, other))
            return &p->items[i];
    }
    return NULL;
}

/* In their order, as many as fit. A stack is in one file. */
static void cut(struct rewrite_plan *p, size_t shard_bytes)
{
    size_t used = 0, shard = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct rewrite_item *item = &p->items[i];
        const struct rewrite_item *of = item->is_first ? NULL : before(p, i);
        if (used && item->bytes > shard_bytes - (used < shard_bytes ? used : shard_bytes)) {
            shard++;
            used = 0;
        }
        item->shard = of ? of->shard : shard;
        used += item->bytes;
    }
    p->nshards = shard + 1;
}

int rewrite_plan_make(struct rewrite_plan *p, const struct rewrite_how *how, const struct st *st,
                      struct err *err)
{
    struct planning planning = {.plan = p, .how = how, .st = st, .err = err};
    *p = (struct rewrite_plan){.left = json_object()};
    int r = p->left ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (; planning.unit < how->config->layers + 2 && !r; planning.unit++) {
        planning.index = 0;
        r = family_tensors(how->family, how->config, planning.unit, plan_tensor, &planning);
    }
    if (!r)
        r = plan_others(&planning);
    if (!r && how->bits && !p->quantized)
        r = err_set(err, -EINVAL, "%s has no matrix whose rows are a multiple of %zu: choose smaller groups",
                    how->model, how->group);
    if (!r)
        cut(p, how->shard_bytes ? how->shard_bytes : REWRITE_SHARD_BYTES);
    return r;
}
