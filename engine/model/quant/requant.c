/* SPDX-License-Identifier: MIT
 *
 * Quantizing a unit's matrices into a file, or finding that file. It is made under a name of this
 * process's own and renamed when it is whole, so two stages that make the same one do no harm.
 * Called once while a stage opens, on the computing thread. */
#include "model/quant/requant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "file/input.h"
#include "file/murmur.h"
#include "model/quant/quant_cache.h"
#include "model/quant/quant_out.h"
#include "model/stored.h"

enum { NAME_MAX_BYTES = 4096 };
#define LAYOUT "ringd 1: levels in words, BF16 scales and biases, group 64"

struct requant_making {
    struct unit *u;
    struct num *num;
    const struct st *st;
    const struct requant *how;
    struct requant_told *told;
    struct st_writer *out; /* owned while a file is made */
    char path[NAME_MAX_BYTES];
    struct err *err;
};

static bool is_wanted(const struct unit *u, size_t i)
{
    const struct mat *w = &u->block.weights.lin[i].w;
    return w->data && !w->quant && stored_is_quantizable(&u->defs[i]);
}

/* --- the file's name -------------------------------------------------------------------------- */

/* What the values depend on: the tensors, and of the files that hold them all that changes when
 * somebody writes to them. Their content is not read: that would cost what the file is there to
 * save, and no write leaves the time of a change as it was. */
static int make_path(struct requant_making *m)
{
    char *text = NULL;
    size_t n = 0;
    uint64_t hash[2];
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return err_set(m->err, -ENOMEM, "out of memory");
    fprintf(f, LAYOUT "\n%zu\n", m->how->bits);
    for (size_t i = 0; i < m->u->ntensors; i++) {
        char identity[ST_IDENTITY];
        struct stored s;
        char why[256];
        const struct tensor_def whole = unit_whole(m->u, i);
        if (!is_wanted(m->u, i) || !stored_find(&s, m->st, &whole, m->u->fp8, why, sizeof why))
            continue;
        st_file_identity(m->st, s.t->file, identity);
        fprintf(f, "%s %s %zu %zu %s\n", m->u->defs[i].name, s.t->dtype_name, m->u->defs[i].rows,
                m->u->defs[i].cols, identity);
        if (m->u->defs[i].rows < whole.rows)
            fprintf(f, "from row %zu\n", m->u->first[i]);
    }
    if (fclose(f)) {
        free(text);
        return err_set(m->err, -ENOMEM, "out of memory");
    }
    murmur128(hash, text, n, 0);
    free(text);
    const int used =
        snprintf(m->path, sizeof m->path, "%s/%016" PRIx64 "%016" PRIx64 "-unit%zu-int%zu.safetensors",
                 m->how->dir, hash[0], hash[1], m->u->index, m->how->bits);
    return used < (int)sizeof m->path - 32
               ? 0
               : err_set(m->err, -ENAMETOOLONG, "%.100s…: this path is too long for a cache", m->how->dir);
}

static int make_dir(const char *dir, struct err *err)
{
    int r = input_make_dir(dir);
    return r ? err_set(err, r,
                       "%s, where quantized weights are kept, cannot be made: %s; set CACHE_DIRECTORY in "
                       "ringd's environment to "
                       "another place",
                       dir, strerror(-r))
             : 0;
}

/* --- making it -------------------------------------------------------------------------------- */

static struct quant_out out_of(const struct requant_making *m, const struct tensor_def *def)
{
    return (struct quant_out){.name = def->name, .bits = m->how->bits, .group = QUANT_GROUP};
}

static int announce(struct requant_making *m, const char *path)
{
    const struct unit *u = m->u;
    struct st_out_tensor *list = calloc(QUANT_OUT_TENSORS * u->ntensors + 1, sizeof *list);
    char(*names)[STORED_NAME] = calloc(2 * u->ntensors + 1, sizeof *names);
    size_t n = 0;
    int r = list && names ? 0 : err_set(m->err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < u->ntensors && !r; i++) {
        const struct quant_out out = out_of(m, &u->defs[i]);
        if (is_wanted(u, i))
            quant_out_list(list + QUANT_OUT_TENSORS * n, names + 2 * n, &out, &u->defs[i]);
        n += is_wanted(u, i);
    }
    if (!r)
        r = st_writer_open(&m->out, path, list, QUANT_OUT_TENSORS * n, m->err);
    free(names);
    free(list);
    return r;
}

static int put_matrix(struct requant_making *m, size_t i)
{
    const struct tensor_def *def = &m->u->defs[i];
    const struct quant_out out = out_of(m, def);
    const struct st_tensor *t = st_find(m->st, def->name);
    if (t)
        st_willneed_part(m->st, t, m->u->block.weights.lin[i].w.data, t->bytes / m->u->whole[i] * def->rows);
    int r = quant_out_put(&out, m->out, m->num, m->u->block.weights.lin[i].w, m->err);
    if (r == -EDOM)
        err_set(m->err, r,
                "%s holds a weight that is not finite or too large: it cannot be quantized; use "
                "--weights stored",
                def->name);
    if (t)
        st_dontneed(m->st, t); /* read once: its pages would count as this stage's until the end */
    return r;
}

/* What others left may have to go for it. */
static void make_room(struct requant_making *m)
{
    size_t need = 0;
    for (size_t i = 0; i < m->u->ntensors; i++)
        if (is_wanted(m->u, i))
            need += stored_quantized_bytes(&m->u->defs[i], m->how->bits, QUANT_GROUP, QUANT_AFFINE);
    m->told->removed += quant_cache_trim(m->how->dir, need, quant_cache_available(m->how->dir), time(NULL));
}

static int make_file(struct requant_making *m)
{
    char mine[NAME_MAX_BYTES + 16];
    snprintf(mine, sizeof mine, "%s.%ld", m->path, (long)getpid());
    int r = make_dir(m->how->dir, m->err);
    if (!r) {
        make_room(m);
        r = announce(m, mine);
    }
    for (size_t i = 0; i < m->u->ntensors && !r; i++)
        if (is_wanted(m->u, i))
            r = put_matrix(m, i);
    if (r) {
        st_writer_abort(m->out);
        return r;
    }
    r = st_writer_finish(m->out, m->err);
    if (!r && rename(mine, m->path))
        r = err_set(m->err, -errno, "%s cannot be put in its place: %s", mine, strerror(errno));
    return r;
}

/* --- using it --------------------------------------------------------------------------------- */

static bool is_complete(const struct requant_making *m, const struct st *made)
{
    char why[256];
    struct stored s;
    for (size_t i = 0; i < m->u->ntensors; i++)
        if (is_wanted(m->u, i) && (!stored_find(&s, made, &m->u->defs[i], false, why, sizeof why) ||
                                   !s.is_quantized || s.quant.bits != m->how->bits))
            return false;
    return true;
}

static int open_file(struct requant_making *m, struct st **ret)
{
    struct st *made;
    int r = st_map_file(&made, m->path, m->how->maps, m->err);
    if (!r && !is_complete(m, made)) {
        st_close(made);
        r = err_set(m->err, -EBADMSG, "%s does not hold the weights that its name says: delete it", m->path);
    }
    if (r)
        return r;
    quant_cache_touch(m->path);
    *ret = made;
    return 0;
}

static size_t use_file(struct requant_making *m)
{
    struct unit *u = m->u;
    size_t bytes = 0;
    char why[256];
    for (size_t i = 0; i < u->ntensors; i++) {
        struct stored s;
        if (!is_wanted(u, i) || !stored_find(&s, u->made, &u->defs[i], false, why, sizeof why))
            continue;
        u->block.weights.lin[i].w = stored_mat(&s, &u->defs[i], &u->quant[i], NULL);
        if (!u->defs[i].cold)
            st_willneed(u->made, s.t);
        bytes += stored_quantized_bytes(&u->defs[i], m->how->bits, QUANT_GROUP, QUANT_AFFINE);
    }
    return bytes;
}

int unit_requant(struct unit *u, struct num *num, const struct st *st, const struct requant *how,
                 struct requant_told *told, struct err *err)
{
    struct requant_making m = {.u = u, .num = num, .st = st, .how = how, .told = told, .err = err};
    size_t wanted = 0;
    for (size_t i = 0; i < u->ntensors; i++)
        wanted += is_wanted(u, i);
    int r = wanted ? make_path(&m) : 0;
    if (r || !wanted)
        return r;
    const bool was_there = !open_file(&m, &u->made); /* a damaged one is made again */
    if (!was_there)
        r = make_file(&m);
    if (!r && !was_there)
        r = open_file(&m, &u->made);
    if (r)
        return r;
    *(was_there ? &told->found : &told->made) += use_file(&m);
    return 0;
}
