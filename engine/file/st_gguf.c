/* SPDX-License-Identifier: MIT
 *
 * Tensors of a GGUF file under their names in Hugging Face's files, with Hugging Face's shapes. A
 * part is a shard whose data begin with the file. Called by st.c. */
#include "file/st_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/gguf_model.h"
#include "file/input.h"

/* llama.cpp leaves out extents of 1. */
static void reshape(struct st_tensor *t, enum gguf_shape shape)
{
    if (shape == GGUF_TAPS && t->ndim == 2) {
        t->ndim = 3;
        t->shape[2] = t->shape[1];
        t->shape[1] = 1;
    } else if (shape == GGUF_ROW && t->ndim == 1) {
        t->ndim = 2;
        t->shape[1] = t->shape[0];
        t->shape[0] = 1;
    }
}

static bool heads_fit(struct mat_heads h, size_t n)
{
    return !h.width || h.first + (size_t)h.width * h.groups * h.each == n;
}

/* That no row or column is looked for outside. */
static int check_heads(const struct st_tensor *t, const char *name, struct err *err)
{
    const size_t rows = t->ndim == 2 ? t->shape[0] : t->elements, cols = t->ndim ? t->shape[t->ndim - 1] : 0;
    const struct mat_rest r = t->rest;
    if (heads_fit(t->row_heads, rows) && heads_fit(t->col_heads, cols) &&
        (!r.groups || (t->ndim == 2 && t->shape[0] == r.groups * (2 * (size_t)r.key + r.value))))
        return 0;
    return err_set(err, -EBADMSG,
                   "tensor %s is of another shape than the file's heads of linear layers make it",
                   input_quote(name).text);
}

/* A norm's weights and biases are of one dimension; their order is that of the rows they go
 * with. An expert is a slice of its stack. */
static int add_entry(struct st *st, const struct gguf_tensor *t, const struct gguf_alias *alias,
                     size_t expert, struct err *err)
{
    char name[GGUF_MODEL_NAME];
    gguf_alias_name(name, alias, expert);
    struct st_entry *grown = reallocarray(st->entries, st->count + 1, sizeof *grown);
    if (grown)
        st->entries = grown;
    char *copy = grown ? strdup(name) : NULL;
    if (!copy)
        return err_set(err, -ENOMEM, "no memory for tensor %s", t->name);
    const size_t bytes = alias->experts ? t->bytes / alias->experts : t->bytes;
    struct st_entry *e = &st->entries[st->count++];
    *e = (struct st_entry){.t = {.name = copy,
                                 .dtype_name = t->block ? block_name(t->block) : dtype_name(t->dtype),
                                 .dtype = t->dtype,
                                 .block = t->block,
                                 .turn = alias->turn,
                                 .row_heads = alias->row_heads,
                                 .col_heads = alias->col_heads,
                                 .rest = alias->parts,
                                 .ndim = alias->experts ? t->ndim - 1 : t->ndim,
                                 .elements = 1,
                                 .bytes = bytes,
                                 .file = st->nshards - 1},
                           .begin = t->at + expert * bytes};
    for (size_t d = 0; d < e->t.ndim; d++) {
        e->t.shape[d] = t->extent[e->t.ndim - 1 - d];
        e->t.elements *= e->t.shape[d];
    }
    reshape(&e->t, alias->shape);
    return check_heads(&e->t, t->name, err);
}

struct part_walk {
    const struct gguf_model *m;
    json_t *names;
    bool (*want)(void *arg, const char *name);
    void *arg;
    struct err *err;
};

/* The entries of a tensor: one, or one for each expert of a stack. */
static size_t entries_of(const struct gguf_alias *alias)
{
    return alias->is_left_out ? 0 : alias->experts ? alias->experts : 1;
}

/* The numbers that a model has, in memory of their own. A norm loses the 1 that was added to it.
 * Adding it again gives the number that is stored: so near to 1 the difference is exact, or rounds
 * back. */
static int change(struct st *st, struct st_tensor *t, enum gguf_number number, struct err *err)
{
    const size_t n = t->elements;
    void **grown = reallocarray(st->stand_ins, st->nstand_ins + 1, sizeof *grown);
    if (grown)
        st->stand_ins = grown;
    float *x = grown ? malloc((n ? n : 1) * sizeof *x) : NULL;
    if (!x)
        return err_set(err, -ENOMEM, "no memory for tensor %s", t->name);
    st->stand_ins[st->nstand_ins++] = x;
    dtype_to_f32(x, t->data, t->dtype, n);
    for (size_t i = 0; i < n; i++) {
        if (number == GGUF_MINUS_EXP && !(x[i] < 0))
            return err_set(err, -EBADMSG, "tensor %s holds %g, and −e^x is below 0", t->name, (double)x[i]);
        x[i] = number == GGUF_ONE_MORE ? x[i] - 1 : (float)log(-(double)x[i]);
    }
    t->data = x;
    return 0;
}

/* Once they are mapped. */
static int change_all(struct st *st, const struct part_walk *w, size_t part, size_t first)
{
    const struct gguf *g = gguf_model_part(w->m, part);
    int r = 0;
    for (size_t i = 0, at = first; i < gguf_tensors(g) && !r; i++) {
        struct gguf_alias alias;
        r = gguf_alias(&alias, w->m, gguf_tensor(g, i), w->err);
        struct st_tensor *t = r || alias.is_left_out ? NULL : &st->entries[at].t;
        at += r ? 0 : entries_of(&alias);
        if (!t || !alias.number || t->is_away || !t->data)
            continue;
        if (t->dtype != DTYPE_F32)
            r = err_set(w->err, -ENOTSUP, "tensor %s is stored as %s; of such tensors only F32 is read",
                        gguf_tensor(g, i)->name, t->dtype_name);
        else
            r = change(st, t, alias.number, w->err);
    }
    return r;
}

static int open_part(struct st *st, const char *path, bool map, size_t first, struct err *err)
{
    struct st_shard *shard = &st->shards[st->nshards - 1];
    const int fd = input_open(path);
    if (fd < 0)
        return err_set(err, fd, "%s cannot be opened: %s", path, strerror(-fd));
    int r = st_set_stamp(shard, fd, err);
    for (size_t i = first; i < st->count && !r; i++) /* it may be another since its head was read */
        if (st->entries[i].begin > shard->bytes ||
            st->entries[i].t.bytes > shard->bytes - st->entries[i].begin)
            r = err_set(err, -EIO, "%s became shorter while it was read; try again when nothing writes to it",
                        path);
    if (!r && map && st->count > first)
        r = st_set_map(st->maps, shard, fd, st->entries + first, st->count - first, err);
    close(fd);
    return r;
}

static int list_part(struct st *st, const struct part_walk *w, const struct gguf *g, bool *ret_wanted)
{
    int r = 0;
    *ret_wanted = !w->want;
    for (size_t i = 0; i < gguf_tensors(g) && !r; i++) {
        const struct gguf_tensor *t = gguf_tensor(g, i);
        struct gguf_alias alias;
        r = gguf_alias(&alias, w->m, t, w->err);
        st->listed_bytes += r || alias.is_left_out ? 0 : t->bytes;
        for (size_t x = 0; !r && x < entries_of(&alias); x++) {
            char name[GGUF_MODEL_NAME];
            gguf_alias_name(name, &alias, x);
            *ret_wanted = *ret_wanted || w->want(w->arg, name);
            if (json_object_set_new(w->names, name, json_true()))
                r = err_set(w->err, -ENOMEM, "no memory for its names");
        }
    }
    return r;
}

static int add_part(struct st *st, const struct part_walk *w, size_t part, bool map)
{
    const struct gguf *g = gguf_model_part(w->m, part);
    const char *path = gguf_model_path(w->m, part);
    const size_t first = st->count;
    bool is_wanted;
    int r = list_part(st, w, g, &is_wanted);
    if (r)
        return err_prefix(w->err, r, "%s", path);
    r = is_wanted ? st_set_add_shard(st, path, w->err) : 0;
    for (size_t i = 0; i < gguf_tensors(g) && is_wanted && !r; i++) {
        const struct gguf_tensor *t = gguf_tensor(g, i);
        struct gguf_alias alias;
        r = gguf_alias(&alias, w->m, t, w->err);
        for (size_t x = 0; !r && x < entries_of(&alias); x++)
            r = add_entry(st, t, &alias, x, w->err);
    }
    if (r || !is_wanted)
        return r;
    r = open_part(st, path, map, first, w->err);
    return r || !map ? r : change_all(st, w, part, first);
}

int st_gguf_add(struct st *st, json_t *names, const char *path, bool (*want)(void *arg, const char *name),
                void *arg, bool map, struct err *err)
{
    struct part_walk w = {.names = names, .want = want, .arg = arg, .err = err};
    struct gguf_model *m;
    int r = gguf_model_open(&m, path, err);
    if (r)
        return r;
    w.m = m;
    for (size_t p = 0; p < gguf_model_parts(m) && !r; p++)
        r = add_part(st, &w, p, map);
    gguf_model_close(m);
    return r;
}
