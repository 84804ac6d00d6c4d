/* SPDX-License-Identifier: MIT
 *
 * A stage and the model's files: which shards to map, which tensor is whose, and what to say of
 * tensors that are missing, misshapen, or unknown. Called once while a stage opens. */
#include "model/stage_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/text_part.h"
#include "model/stored.h"

#define EMBEDDING "model.embed_tokens.weight"

/* --- lists of names --------------------------------------------------------------------------- */

/* Tensors by name, sorted: a model of experts has tens of thousands. */
struct names {
    char (*at)[TENSOR_NAME]; /* owned */
    size_t n, cap;
};

static int name_add(void *arg, const struct tensor_def *def)
{
    struct names *list = arg;
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 64;
        char(*more)[TENSOR_NAME] = realloc(list->at, cap * sizeof *more);
        if (!more)
            return -ENOMEM;
        list->at = more;
        list->cap = cap;
    }
    memcpy(list->at[list->n++], def->name, TENSOR_NAME);
    return 0;
}

static int name_order(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int names_make(struct names *list, const struct stage *s, size_t unit)
{
    int r = family_tensors(s->family, &s->spec.config, unit, name_add, list);
    if (!r && list->n)
        qsort(list->at, list->n, sizeof *list->at, name_order);
    return r;
}

/* The name itself, or one that goes with it in a file. */
static bool names_have(const struct names *list, const char *name)
{
    char own[STORED_NAME];
    if (strlen(name) >= TENSOR_NAME)
        return false;
    stored_model_name(own, name);
    return list->n && bsearch(own, list->at, list->n, sizeof *list->at, name_order);
}

/* --- opening ---------------------------------------------------------------------------------- */

bool stage_head_borrows(const struct stage *s)
{
    return s->head && s->spec.config.tied && !s->embed;
}

static bool is_wanted(void *arg, const char *name)
{
    return names_have(arg, name);
}

/* Of a mapping that was there before: pages of what now lies elsewhere would count as this
 * process's. */
static void forget_others(const struct stage *s, struct names *own)
{
    for (size_t i = 0; i < st_count(s->st); i++)
        if (!names_have(own, st_at(s->st, i)->name))
            st_dontneed(s->st, st_at(s->st, i));
}

int stage_open_files(struct stage *s, struct err *err)
{
    struct names w = {.at = NULL};
    int r = 0;
    for (size_t i = 0; i < s->nunits && !r; i++)
        r = names_make(&w, s, s->units[i].index);
    if (!r && stage_head_borrows(s))
        r = names_make(&w, s, 0);
    r = r                   ? err_set(err, r, "out of memory")
        : s->spec.stands_in ? st_map_stand_in(&s->st, s->spec.model_dir, is_wanted, &w, s->spec.maps, err)
                            : st_map_dir(&s->st, s->spec.model_dir, is_wanted, &w, s->spec.maps, err);
    if (!r && s->spec.maps)
        forget_others(s, &w);
    free(w.at);
    return r;
}

/* --- what is extra ---------------------------------------------------------------------------- */

/* Old checkpoints carry tables that are computed here, and some a copy of the tied head. Layers for
 * predicting more than one token stand behind the last, and parts that see beside the text's. */
static bool is_redundant(const struct stage *s, const char *name)
{
    const struct config *c = &s->spec.config;
    const char *dot = strstr(name, ".rotary_emb.inv_freq");
    size_t layer;
    if (c->is_text_part && text_part_is_other(name))
        return true;
    if (c->extra_apart && !strncmp(name, "mtp.", strlen("mtp.")))
        return true;
    if (sscanf(name, "model.layers.%zu.", &layer) == 1 && layer >= c->layers &&
        layer < c->layers + c->extra_layers)
        return true;
    return (dot && !dot[strlen(".rotary_emb.inv_freq")]) || (c->tied && !strcmp(name, "lm_head.weight"));
}

/* Names come sorted, so those of a layer follow each other and its list is made once. */
struct knowing {
    struct names layer, ends; /* of one layer; of embedding and head */
    size_t index;             /* unit that `layer` is of; 0: none */
};

/* 1 or 0, or −ENOMEM. */
static int is_known(const struct stage *s, struct knowing *k, const char *name)
{
    const struct config *c = &s->spec.config;
    size_t layer;
    if (sscanf(name, "model.layers.%zu.", &layer) != 1)
        return names_have(&k->ends, name);
    if (layer >= c->layers)
        return false;
    if (k->index != layer + 1) {
        k->index = layer + 1;
        k->layer.n = 0;
        int r = names_make(&k->layer, s, layer + 1);
        if (r)
            return r;
    }
    return names_have(&k->layer, name);
}

/* A tensor that the recipe has no place for means another recipe: leaving it out would give another
 * model, silently. Beside a layer that predicts further tokens are those of the model. */
static int check_names(const struct stage *s, struct err *err)
{
    struct knowing k = {.index = 0};
    const char *const *names;
    size_t n = s->st && !s->spec.config.is_ahead ? st_names(s->st, &names) : 0, unknown = 0;
    char list[400] = "";
    int r = names_make(&k.ends, s, 0);
    r = r ? r : names_make(&k.ends, s, s->spec.config.layers + 1);
    for (size_t i = 0; i < n && r >= 0; i++) {
        char own[STORED_NAME];
        stored_model_name(own, names[i]);
        r = is_known(s, &k, names[i]);
        if (r || is_redundant(s, own))
            continue;
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s%s", unknown++ ? ", " : "", names[i]);
    }
    free(k.layer.at);
    free(k.ends.at);
    if (r < 0)
        return err_set(err, r, "no memory for the names of the tensors in %s; make room or take another node",
                       s->spec.model_dir);
    return unknown ? err_set(err, -ENOTSUP, "%s holds %zu tensor%s that a %s model has no place for: %s",
                             s->spec.model_dir, unknown, unknown == 1 ? "" : "s", s->spec.config.family, list)
                   : 0;
}

/* --- binding ---------------------------------------------------------------------------------- */

static int init_tied(void *arg, const struct param_def *def)
{
    const struct stage *s = arg;
    return param_init(s->tied_weight, def, &s->spec.tune, &s->spec.config);
}

static struct mat tied_mat(const struct stage *s)
{
    const struct config *c = &s->spec.config;
    return (struct mat){.data = s->tied_weight, .dtype = DTYPE_F32, .rows = c->vocab, .cols = c->dim};
}

/* A copy of the embedding to train on. */
static int read_tied(struct stage *s, struct err *err)
{
    const struct config *c = &s->spec.config;
    const struct st_tensor *t = st_find(s->st, EMBEDDING);
    if (!t || t->ndim != 2 || t->shape[0] != c->vocab || t->shape[1] != c->dim ||
        (t->dtype == DTYPE_COUNT && !t->block) || t->dtype == DTYPE_F8_E4M3)
        return err_set(err, -EINVAL, "the head is tied to %s, which is missing or misshapen", EMBEDDING);
    for (size_t row = 0; row < c->vocab; row++)
        st_row(t, row, c->dim, s->tied_weight + row * c->dim);
    return 0;
}

/* Of a slice its own of the embedding, which it has whole. */
static struct mat head_rows(struct stage *s, struct mat table)
{
    s->whole_head = table;
    const struct slice_rows rows = slice_rows(s->spec.slice, table.rows, SLICE_ANY);
    return slice_is_part(s->spec.slice) ? gemm_cut(table, rows.first, rows.n, &s->head_quant) : table;
}

/* The head multiplies by its own matrix, by the embedding's, or by its copy of a trained embedding
 * that lies elsewhere. */
static int find_head(struct stage *s, struct err *err)
{
    const struct config *c = &s->spec.config;
    if (!s->head)
        return 0;
    if (!c->tied) {
        s->head_w = s->head->block.weights.lin[1].w;
        s->whole_head = s->head->all_rows[1];
        return 0;
    }
    if (s->embed) {
        s->head_w = head_rows(s, s->embed->block.weights.lin[0].w);
        return 0;
    }
    if (!s->tied_weight) {
        s->head_w = head_rows(s, s->lender.block.weights.lin[0].w);
        return 0;
    }
    int r = 0;
    if (s->st)
        r = read_tied(s, err);
    else
        tune_params(&s->spec.tune, s->family, c, 0, init_tied, s);
    s->head_w = head_rows(s, tied_mat(s));
    return r;
}

/* The same random numbers, whichever matrix it is. */
static int bind_head(struct stage *s, struct err *err)
{
    const int r = find_head(s, err);
    s->head_w.stream = rng_stream("head");
    return r;
}

static int requant(struct stage *s, struct unit *u, struct err *err)
{
    const struct requant how = {s->spec.cache_dir, s->spec.weight_bits, s->spec.maps};
    return s->spec.weight_bits && s->st ? unit_requant(u, s->num, s->st, &how, &s->told, err) : 0;
}

int stage_bind(struct stage *s, struct err *err)
{
    char complaints[400] = "";
    size_t bad = 0;
    struct unit *extra = s->lender.ntensors ? &s->lender : NULL;
    for (size_t i = 0; i < s->nunits + (extra != NULL); i++) {
        struct unit *u = i < s->nunits ? &s->units[i] : extra;
        u->later = s->spec.weight_bits;
        bad += unit_bind(u, s->st, s->tunes, &s->spec.config, complaints, sizeof complaints);
    }
    if (bad)
        return err_set(err, -EINVAL, "%s: %zu tensor%s not what %s says: %s", s->spec.model_dir, bad,
                       bad == 1 ? " is" : "s are", s->spec.config.mixed ? "its head" : "config.json",
                       complaints);
    int r = check_names(s, err);
    for (size_t i = 0; i < s->nunits && !r; i++)
        r = requant(s, &s->units[i], err);
    if (!r && extra)
        r = requant(s, extra, err);
    for (size_t i = 0; i < s->nunits && !r && s->spec.training && !s->spec.stands_in; i++)
        if (unit_begin_factors(&s->units[i], s->num, s->tunes))
            r = err_set(err, -ENOMEM, "out of memory for the principal parts of weights");
    for (size_t i = 0; i < s->nunits && !r; i++) {
        unit_bind_products(&s->units[i], &s->spec.config);
        unit_cut(&s->units[i]);
    }
    return r ? r : bind_head(s, err);
}
