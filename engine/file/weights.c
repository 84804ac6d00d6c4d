/* SPDX-License-Identifier: MIT
 *
 * Owns the list of a model's tensors with their hashes, and the reading of files for them. Data is
 * read and not mapped: a file that becomes shorter is then a sentence and no signal, and what was
 * read once does not count as this process's memory. Called while a job is planned or a stage
 * opened, and by the doctor. */
#include "file/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "file/input.h"
#include "file/weights_impl.h"

/* What is hashed at once: a large tensor is shared out among threads, and its hash does not depend
 * on their number. Times of files move on in steps, of 10 ms at most. */
enum { PIECE = 4 << 20, SETTLED_US = 20000 };

/* --- listing ---------------------------------------------------------------------------------- */

size_t weights_unit(const char *name, size_t layers)
{
    const char *at = strstr(name, "layers.");
    size_t layer;
    if (at && (at == name || at[-1] == '.') && sscanf(at, "layers.%zu.", &layer) == 1)
        return layer < layers ? layer + 1 : layers + 2;
    return strstr(name, "embed_tokens") ? 0 : layers + 1;
}

static int list(struct weights *w, bool (*want)(void *arg, const char *name), void *arg)
{
    w->hash = calloc(w->st->count + 1, sizeof *w->hash);
    w->is_listed = calloc(w->st->count + 1, sizeof *w->is_listed);
    w->entry = calloc(w->st->nnames + 1, sizeof *w->entry);
    if (!w->hash || !w->is_listed || !w->entry)
        return -ENOMEM;
    for (size_t i = 0; i < w->st->nnames; i++)
        w->entry[i] = SIZE_MAX;
    for (size_t i = 0; i < w->st->count; i++) {
        const char *name = w->st->entries[i].t.name;
        w->is_listed[i] = !w->st->entries[i].t.is_away && (!want || want(arg, name));
        w->entry[st_set_find_name(w->st, name)] = i;
    }
    return 0;
}

int weights_open(struct weights **ret, const char *dir, size_t layers, const char *cache,
                 bool (*want)(void *arg, const char *name), void *arg, struct err *err)
{
    struct weights *w = calloc(1, sizeof *w);
    int r = w ? 0 : -ENOMEM;
    if (!r) {
        w->layers = layers;
        w->dir = strdup(dir);
        w->cache = cache ? strdup(cache) : NULL;
        r = w->dir && (w->cache || !cache) ? 0 : -ENOMEM;
    }
    if (r)
        err_set(err, r, "%s: no memory to open it", dir);
    else
        r = st_set_open_dir(&w->st, dir, want, arg, (struct st_how){.may_lack = true}, err);
    if (!r && (r = list(w, want, arg)))
        err_set(err, r, "%s: no memory for the hashes of %zu tensors", dir, w->st->count);
    if (r) {
        weights_close(w);
        return r;
    }
    if (w->cache)
        weights_cache_load(w);
    *ret = w;
    return 0;
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    st_close(w->st);
    free(w->entry);
    free(w->is_listed);
    free(w->hash);
    free(w->cache);
    free(w->dir);
    free(w);
}

struct weights_bytes weights_bytes(const struct weights *w)
{
    struct weights_bytes sum = {0};
    for (size_t i = 0; i < w->st->count; i++) {
        sum.all += w->is_listed[i] ? w->st->entries[i].t.bytes : 0;
        sum.known += w->is_listed[i] && w->hash[i].is_known ? w->st->entries[i].t.bytes : 0;
    }
    return sum;
}

size_t weights_missing(const struct weights *w, char *ret, size_t size)
{
    enum { NAMED = 2 };
    size_t used = 0;
    *ret = 0;
    for (size_t i = 0; i < w->st->nabsent && i < NAMED && used < size; i++) {
        const char *slash = strrchr(w->st->absent[i], '/');
        used += (size_t)snprintf(ret + used, size - used, "%s%s", i ? ", " : "",
                                 input_quote(slash ? slash + 1 : w->st->absent[i]).text);
    }
    if (w->st->nabsent > NAMED && used < size)
        snprintf(ret + used, size - used, " and %zu more", w->st->nabsent - NAMED);
    return w->st->nabsent;
}

size_t weights_count(const struct weights *w)
{
    return w->st->nnames;
}

const char *weights_name(const struct weights *w, size_t tensor)
{
    return w->st->names[tensor];
}

const char *weights_file(const struct weights *w, size_t tensor)
{
    const size_t at = w->entry[tensor];
    return at == SIZE_MAX ? NULL : w->st->shards[w->st->entries[at].t.file].path;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A part of a tensor. */
struct weights_piece {
    size_t entry, from, bytes;
};

struct weights_pass {
    struct weights *w;
    const struct weights_reading *how;
    int *fd;                     /* [nshards] owned; −1: nothing is read of it */
    bool *is_settled;            /* [nshards] owned */
    struct weights_piece *piece; /* [n] owned: in the order of the files */
    XXH128_canonical_t *is;      /* [n] owned: what was found */
    size_t n;
    uint64_t total;
    _Atomic uint64_t done;
    _Atomic bool failed;
    int code; /* under the critical section, as the next */
    struct err *err;
};

static void fail(struct weights_pass *g, int code, const char *path, const char *what)
{
#pragma omp critical(weights_fail)
    {
        if (!atomic_exchange(&g->failed, true))
            g->code = err_set(g->err, code, "%s %s", path, what);
    }
}

/* As it was when its header was read? */
static bool is_same(int fd, const struct st_shard *shard)
{
    struct stat sb;
    return !fstat(fd, &sb) && (size_t)sb.st_size == shard->bytes && sb.st_dev == shard->stamp.device &&
           sb.st_ino == shard->stamp.inode && sb.st_ctim.tv_sec == shard->stamp.changed.tv_sec &&
           sb.st_ctim.tv_nsec == shard->stamp.changed.tv_nsec;
}

/* Waits until what is written from now on shows in the file's times. False where they are of a
 * clock that is ahead: such hashes are not kept. */
static bool has_settled(const struct st_shard *shard)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t age_us = (int64_t)(now.tv_sec - shard->stamp.changed.tv_sec) * 1000000 +
                           (now.tv_nsec - shard->stamp.changed.tv_nsec) / 1000;
    if (age_us >= 0 && age_us < SETTLED_US)
        usleep((useconds_t)(SETTLED_US - age_us));
    return age_us >= 0;
}

static int open_file(struct weights_pass *g, size_t file)
{
    const struct st_shard *shard = &g->w->st->shards[file];
    if (g->fd[file] >= 0)
        return 0;
    g->is_settled[file] = has_settled(shard);
    const int fd = g->fd[file] = input_open(shard->path);
    if (fd < 0)
        return err_set(g->err, fd, "%s cannot be opened: %s", shard->path, strerror(-fd));
    if (!is_same(g->fd[file], shard))
        return err_set(g->err, -ESTALE,
                       "%s was written to just now: start this again when nothing writes to it", shard->path);
    return 0;
}

static bool is_wanted(const struct weights_pass *g, size_t entry)
{
    return g->w->is_listed[entry] && (g->how->again || !g->w->hash[entry].is_known);
}

static size_t pieces_of(const struct st_tensor *t)
{
    return (t->bytes + PIECE - 1) / PIECE;
}

static int by_place(const void *a, const void *b, void *arg)
{
    const struct st_entry *all = arg, *x = &all[((const struct weights_piece *)a)->entry],
                          *y = &all[((const struct weights_piece *)b)->entry];
    const size_t fx = ((const struct weights_piece *)a)->from, fy = ((const struct weights_piece *)b)->from;
    if (x->t.file != y->t.file)
        return x->t.file < y->t.file ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (fx > fy) - (fx < fy);
}

static int cut(struct weights_pass *g)
{
    const struct st *st = g->w->st;
    size_t most = 0;
    for (size_t i = 0; i < st->count; i++)
        most += is_wanted(g, i) ? pieces_of(&st->entries[i].t) : 0;
    g->piece = calloc(most + 1, sizeof *g->piece);
    g->is = calloc(most + 1, sizeof *g->is);
    g->fd = calloc(st->nshards + 1, sizeof *g->fd);
    g->is_settled = calloc(st->nshards + 1, sizeof *g->is_settled);
    if (!g->piece || !g->is || !g->fd || !g->is_settled)
        return err_set(g->err, -ENOMEM, "%s: no memory to read it piece by piece", g->w->dir);
    for (size_t f = 0; f < st->nshards; f++)
        g->fd[f] = -1;
    for (size_t i = 0; i < st->count; i++) {
        const struct st_tensor *t = &st->entries[i].t;
        int r = is_wanted(g, i) ? open_file(g, t->file) : 0;
        if (r)
            return r;
        for (size_t from = 0; is_wanted(g, i) && from < t->bytes; from += PIECE) {
            const size_t left = t->bytes - from;
            g->piece[g->n++] = (struct weights_piece){i, from, left < PIECE ? left : PIECE};
        }
        g->total += is_wanted(g, i) ? t->bytes : 0;
    }
    if (g->n)
        qsort_r(g->piece, g->n, sizeof *g->piece, by_place, st->entries);
    return 0;
}

static void read_piece(struct weights_pass *g, size_t i, char *buffer)
{
    const struct st *st = g->w->st;
    const struct weights_piece *p = &g->piece[i];
    const struct st_entry *e = &st->entries[p->entry];
    const struct st_shard *shard = &st->shards[e->t.file];
    const size_t at = shard->data_at + e->begin + p->from;
    /* Threads take pieces by turns, which the kernel does not take for reading in order. */
    posix_fadvise(g->fd[e->t.file], (off_t)at, (off_t)p->bytes, POSIX_FADV_WILLNEED);
    for (size_t got = 0; got < p->bytes;) {
        ssize_t n = pread(g->fd[e->t.file], buffer + got, p->bytes - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            char why[120];
            snprintf(why, sizeof why, "cannot be read: %s: is its disk in order?", strerror(errno));
            fail(g, -EIO, shard->path, why);
            return;
        }
        if (n == 0) {
            fail(g, -EBADMSG, shard->path, "became shorter while it was read: copy it again");
            return;
        }
        got += (size_t)n;
    }
    XXH128_canonicalFromHash(&g->is[i], XXH3_128bits(buffer, p->bytes));
    atomic_fetch_add(&g->done, p->bytes);
}

/* Only the calling thread tells. */
static void tell(struct weights_pass *g, time_t *last_s)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!g->how->told || omp_get_thread_num() != 0 || now.tv_sec == *last_s)
        return;
    *last_s = now.tv_sec;
    g->how->told(g->how->owner, atomic_load(&g->done), g->total);
}

static int read_pieces(struct weights_pass *g)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
#pragma omp parallel num_threads(g->how->threads)
    {
        time_t last_s = begin.tv_sec;
        char *buffer = malloc(PIECE);
        if (!buffer)
            fail(g, -ENOMEM, g->w->dir, "cannot be read: no memory for a buffer");
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < g->n; i++) {
            if (atomic_load(&g->failed))
                continue;
            tell(g, &last_s);
            read_piece(g, i, buffer);
        }
        free(buffer);
    }
    return g->code;
}

/* Type and shape count as much as the bytes. Pieces of a tensor follow each other. */
static int hash_tensor(struct weights_hash *ret, const struct st_tensor *t, const XXH128_canonical_t *pieces,
                       size_t n)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return -ENOMEM;
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, t->dtype_name, strlen(t->dtype_name) + 1);
    for (size_t d = 0; d < t->ndim; d++) {
        const uint64_t extent = t->shape[d];
        XXH3_128bits_update(state, &extent, sizeof extent);
    }
    XXH3_128bits_update(state, pieces, n * sizeof *pieces);
    const XXH128_hash_t is = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    *ret = (struct weights_hash){{is.high64, is.low64}, true};
    return 0;
}

static int take_hashes(struct weights_pass *g)
{
    const struct st *st = g->w->st;
    int r = 0;
    for (size_t i = 0; i < g->n && !r;) {
        const size_t entry = g->piece[i].entry, n = pieces_of(&st->entries[entry].t);
        r = hash_tensor(&g->w->hash[entry], &st->entries[entry].t, &g->is[i], n);
        i += n;
    }
    for (size_t i = 0; i < st->count && !r; i++) /* those without a byte */
        if (is_wanted(g, i) && !st->entries[i].t.bytes)
            r = hash_tensor(&g->w->hash[i], &st->entries[i].t, g->is, 0);
    return r ? err_set(g->err, r, "%s: no memory for its hashes", g->w->dir) : 0;
}

static int keep(struct weights_pass *g)
{
    for (size_t f = 0; f < g->w->st->nshards; f++)
        if (g->fd[f] >= 0 && !is_same(g->fd[f], &g->w->st->shards[f]))
            return err_set(g->err, -ESTALE,
                           "%s was written to while it was read: start this again when nothing writes to it",
                           g->w->st->shards[f].path);
    for (size_t f = 0; g->w->cache && f < g->w->st->nshards; f++)
        if (g->fd[f] >= 0 && g->is_settled[f])
            weights_cache_save(g->w, f);
    return 0;
}

int weights_read(struct weights *w, const struct weights_reading *how, uint64_t *ret_read, struct err *err)
{
    struct weights_pass g = {.w = w, .how = how, .err = err};
    int r = cut(&g);
    if (!r)
        r = read_pieces(&g);
    if (!r)
        r = take_hashes(&g);
    if (!r)
        r = keep(&g);
    if (!r)
        *ret_read = g.total;
    for (size_t f = 0; g.fd && f < w->st->nshards; f++)
        if (g.fd[f] >= 0)
            close(g.fd[f]);
    free(g.is_settled);
    free(g.fd);
    free(g.is);
    free(g.piece);
    return r;
}
