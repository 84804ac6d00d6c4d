/* SPDX-License-Identifier: MIT
 *
 * Owns opened safetensors sets: one file, or a directory of shards with its index. Called when a
 * stage loads its layers and by tests; opened and closed by one thread, then read by any. */
#include "file/st.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file/checksum.h"
#include "file/input.h"
#include "file/gguf_path.h"
#include "file/st_impl.h"
#include "file/text_part.h"
#include "num/mat.h"

enum { INDEX_LIMIT = 100 * 1000 * 1000 };

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

static int entry_by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_entry *)a)->t.name, ((const struct st_entry *)b)->t.name);
}

static int string_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void st_close(struct st *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->nshards; i++) {
        if (st->shards[i].map)
            maps_give_back(st->maps, st->shards[i].map, st->shards[i].bytes);
        free(st->shards[i].path);
    }
    for (size_t i = 0; i < st->count; i++)
        free((char *)st->entries[i].t.name);
    for (size_t i = 0; i < st->nnames; i++)
        free(st->names[i]);
    for (size_t i = 0; i < st->nabsent; i++)
        free(st->absent[i]);
    free(st->absent);
    for (size_t i = 0; i < st->nstand_ins; i++)
        free(st->stand_ins[i]);
    free(st->stand_ins);
    free(st->shards);
    free(st->entries);
    free(st->names);
    free(st);
}

/* Needs the entries sorted. Two names of files may stand for one tensor, as text_part_name and
 * gguf_names.c have it; which one counts would be chance. */
static int check_unique(const struct st *st, struct err *err)
{
    for (size_t i = 1; i < st->count; i++) {
        const struct st_tensor *t = &st->entries[i].t;
        if (!strcmp(t->name, st->entries[i - 1].t.name))
            return err_set(err, -EBADMSG, "%s holds tensor %s twice, under two names; copy the model again",
                           st->shards[t->file].path, input_quote(t->name).text);
    }
    return 0;
}

/* Sorts the tensors and lists all names: those of the tensors and those of the index (NULL for a
 * single file). */
static int complete(struct st *st, json_t *weight_map, struct err *err)
{
    size_t most = st->count + json_object_size(weight_map), n = 0;
    if (st->count > 0)
        qsort(st->entries, st->count, sizeof *st->entries, entry_by_name);
    const int r = check_unique(st, err);
    if (r)
        return r;
    const char **all = malloc((most ? most : 1) * sizeof *all);
    st->names = calloc(most ? most : 1, sizeof *st->names);
    bool full = !all || !st->names;
    if (!full) {
        const char *name;
        json_t *file;
        for (size_t i = 0; i < st->count; i++)
            all[n++] = st->entries[i].t.name;
        json_object_foreach (weight_map, name, file)
            if (!st_find(st, name)) /* mostly none: those of the tensors are sorted already */
                all[n++] = name;
        if (n > st->count)
            qsort(all, n, sizeof *all, string_order);
    }
    for (size_t i = 0; i < n && !full; i++) {
        st->names[st->nnames] = strdup(all[i]);
        full = !st->names[st->nnames];
        st->nnames += !full;
    }
    free(all);
    return full ? err_set(err, -ENOMEM, "no memory for the names of %zu tensors", most) : 0;
}

int st_map_file(struct st **ret, const char *path, struct maps *maps, struct err *err)
{
    struct st *st = calloc(1, sizeof *st);
    if (!st)
        return err_set(err, -ENOMEM, "%s: no memory to open it", path);
    st->maps = maps;
    int r = st_set_add(st, path, true, err);
    if (r == 0)
        r = complete(st, NULL, err);
    if (r < 0) {
        st_close(st);
        return r;
    }
    *ret = st;
    return 0;
}

int st_open_file(struct st **ret, const char *path, struct err *err)
{
    return st_map_file(ret, path, NULL, err);
}

/* --- a directory with an index ---------------------------------------------------------------- */

/* A shard is a plain file of the same directory: an index must not lead us elsewhere. */
static bool is_shard_name(const char *name)
{
    return name && *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int read_index(json_t **ret, size_t *ret_bytes, const char *path, struct err *err)
{
    char *text;
    size_t n;
    int r = input_read(path, INDEX_LIMIT, &text, &n, err);
    if (r < 0)
        return r;
    json_error_t je;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
    free(text);
    if (!root)
        return err_set(err, -EBADMSG, "%s:%d: not sound JSON: %s", path, je.line, input_quote(je.text).text);
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        json_decref(root);
        return err_set(err, -EBADMSG, "%s: has no \"weight_map\" of tensor names to files; copy it again",
                       path);
    }
    const char *name;
    json_t *file;
    json_object_foreach (map, name, file) {
        if (is_shard_name(json_string_value(file)))
            continue;
        r = err_set(err, -EBADMSG, "%s: tensor %s is not mapped to a file of the same directory", path,
                    input_quote(name).text);
        break;
    }
    const json_int_t total =
        json_integer_value(json_object_get(json_object_get(root, "metadata"), "total_size"));
    json_t *names = r ? NULL : text_part_names(map);
    if (!r && !names)
        r = err_set(err, -ENOMEM, "%s: no memory for its names", path);
    if (r == 0) {
        *ret = names;
        *ret_bytes = total > 0 ? (size_t)total : 0;
    }
    json_decref(root);
    return r;
}

/* The files to open, each once, as the keys of a JSON object in the order of the index. */
static json_t *wanted_files(json_t *weight_map, bool (*want)(void *arg, const char *name), void *arg)
{
    json_t *files = json_object();
    const char *name;
    json_t *file;
    json_object_foreach (weight_map, name, file) {
        if (files && (!want || want(arg, name)) &&
            json_object_set_new(files, json_string_value(file), json_true()) < 0) {
            json_decref(files);
            files = NULL;
        }
    }
    return files;
}

/* A tensor that the index places elsewhere exists twice: which one counts would be chance. */
static int check_places(const struct st *st, size_t first, json_t *weight_map, const char *file,
                        struct err *err)
{
    for (size_t i = first; i < st->count; i++) {
        const char *name = st->entries[i].t.name;
        const char *place = json_string_value(json_object_get(weight_map, name));
        if (place && strcmp(place, file) != 0)
            return err_set(err, -EBADMSG, "%s holds tensor %s, which %s places in %s; copy the model again",
                           st->shards[st->nshards - 1].path, input_quote(name).text, INDEX_NAME,
                           input_quote(place).text);
    }
    return 0;
}

/* Needs the entries sorted: every name the index gives an opened shard is there. */
static int check_complete(const struct st *st, json_t *weight_map, json_t *files, const char *index,
                          struct err *err)
{
    const char *name;
    json_t *file;
    json_object_foreach (weight_map, name, file) {
        const char *place = json_string_value(file);
        if (json_object_get(files, place) && !st_find(st, name))
            return err_set(err, -EBADMSG,
                           "%s lists tensor %s, but %s in the same directory lacks it; copy both again",
                           index, input_quote(name).text, input_quote(place).text);
    }
    return 0;
}

static int open_shard(struct st *st, const char *dir, const char *file, json_t *weight_map, bool map,
                      struct err *err)
{
    size_t first = st->count;
    char *path = input_path(dir, file);
    if (!path)
        return err_set(err, -ENOMEM, "%s: no memory to open its files", dir);
    int r = st_set_add(st, path, map, err);
    if (r == -ENOENT)
        err_set(err, r, "%s is missing, though %s names it; copy it there", path, INDEX_NAME);
    free(path);
    return r < 0 ? r : check_places(st, first, weight_map, file, err);
}

/* The shard added last is not there: only its name is kept. */
static int drop_last(struct st *st, struct err *err)
{
    char **grown = reallocarray(st->absent, st->nabsent + 1, sizeof *grown);
    char *path = st->shards[--st->nshards].path;
    if (!grown) {
        free(path);
        return err_set(err, -ENOMEM, "no memory for the names of missing files");
    }
    st->absent = grown;
    st->absent[st->nabsent++] = path;
    return 0;
}

static int open_shards(struct st *st, const char *dir, const char *index, json_t *weight_map, json_t *files,
                       struct st_how how, struct err *err)
{
    const char *file;
    json_t *unused;
    void *next;
    json_object_foreach_safe (files, next, file, unused) {
        int r = open_shard(st, dir, file, weight_map, how.map, err);
        if (r == -ENOENT && how.may_lack) {
            r = drop_last(st, err);
            json_object_del(files, file);
        }
        if (r < 0)
            return r;
    }
    int r = complete(st, weight_map, err);
    return r < 0 ? r : check_complete(st, weight_map, files, index, err);
}

static int open_indexed(struct st *st, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                        struct st_how how, struct err *err)
{
    json_t *weight_map = NULL, *files = NULL;
    char *index = input_path(dir, INDEX_NAME);
    int r = index ? read_index(&weight_map, &st->listed_bytes, index, err)
                  : err_set(err, -ENOMEM, "%s: no memory to open it", dir);
    if (r == -ENOENT)
        err_set(err, r,
                "%s has neither %s nor %s; put the model's safetensors files there (PyTorch .bin files are "
                "not read)",
                dir, SINGLE_NAME, INDEX_NAME);
    if (r < 0)
        goto out;
    files = wanted_files(weight_map, want, arg);
    r = files ? open_shards(st, dir, index, weight_map, files, how, err)
              : err_set(err, -ENOMEM, "%s: no memory to list its files", index);
out:
    json_decref(files);
    json_decref(weight_map);
    free(index);
    return r;
}

static int open_gguf(struct st *st, const char *path, bool (*want)(void *arg, const char *name), void *arg,
                     bool map, struct err *err)
{
    json_t *names = json_object();
    int r = names ? st_gguf_add(st, names, path, want, arg, map, err)
                  : err_set(err, -ENOMEM, "%s: no memory to open it", path);
    r = r ? r : complete(st, names, err);
    json_decref(names);
    return r;
}

int st_set_open_dir(struct st **ret, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                    struct st_how how, struct err *err)
{
    struct st *st = calloc(1, sizeof *st);
    char *single = input_path(dir, SINGLE_NAME);
    int r;
    if (st)
        st->maps = how.maps;
    if (!st || !single)
        r = err_set(err, -ENOMEM, "%s: no memory to open it", dir);
    else if (gguf_is_path(dir))
        r = open_gguf(st, dir, want, arg, how.map, err);
    else if (!input_is_there(single)) /* as in transformers, the single file goes before the index */
        r = open_indexed(st, dir, want, arg, how, err);
    else if ((r = st_set_add(st, single, how.map, err)) == 0)
        r = complete(st, NULL, err);
    if (r == 0 && how.stands_in)
        r = st_away_stand_in(st, err);
    else if (r == 0 && how.map)
        r = st_away_check(st, dir, want, arg, err);
    free(single);
    if (r < 0) {
        st_close(st);
        return r;
    }
    *ret = st;
    return 0;
}

int st_open_dir(struct st **ret, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                struct err *err)
{
    return st_map_dir(ret, dir, want, arg, NULL, err);
}

bool st_dir_lists(const char *dir)
{
    static const char *const names[] = {SINGLE_NAME, INDEX_NAME};
    bool has = gguf_is_path(dir);
    for (size_t i = 0; i < 2; i++) {
        char *path = input_path(dir, names[i]);
        has = has || !path || input_is_there(path); /* without memory opening it says so */
        free(path);
    }
    return has;
}

int st_open_heads(struct st **ret, const char *dir, struct err *err)
{
    return st_set_open_dir(ret, dir, NULL, NULL, (struct st_how){.map = false}, err);
}

int st_map_dir(struct st **ret, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
               struct maps *maps, struct err *err)
{
    return st_set_open_dir(ret, dir, want, arg, (struct st_how){.map = true, .maps = maps}, err);
}

int st_map_stand_in(struct st **ret, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                    struct maps *maps, struct err *err)
{
    return st_set_open_dir(ret, dir, want, arg, (struct st_how){.map = true, .stands_in = true, .maps = maps},
                           err);
}

/* --- looking at it ---------------------------------------------------------------------------- */

size_t st_count(const struct st *st)
{
    return st->count;
}

const struct st_tensor *st_at(const struct st *st, size_t i)
{
    return &st->entries[i].t;
}

const struct st_tensor *st_find(const struct st *st, const char *name)
{
    struct st_entry key = {.t.name = name};
    if (st->count == 0)
        return NULL;
    const struct st_entry *e = bsearch(&key, st->entries, st->count, sizeof *st->entries, entry_by_name);
    return e ? &e->t : NULL;
}

/* Elements of a row from anywhere on, a large block at a time. */
static void some_of_blocks(float *ret, const char *row, enum block_type type, size_t from, size_t n)
{
    float block[BLOCK_MOST];
    for (size_t i = 0, now; i < n; i += now) {
        const size_t skew = (from + i) % BLOCK_MOST;
        now = n - i < BLOCK_MOST - skew ? n - i : BLOCK_MOST - skew;
        block_to_f32(block, row, type, from + i - skew, skew + now);
        memcpy(ret + i, block + skew, now * sizeof *ret);
    }
}

void st_row(const struct st_tensor *t, size_t row, size_t cols, float *ret)
{
    const struct mat_heads heads = t->col_heads;
    const size_t stored = mat_stored_head(t->row_heads, mat_stored_row(t->turn, row)),
                 run = heads.width ? heads.width : cols;
    const char *at = (const char *)t->data +
                     stored * (t->block ? block_row_bytes(t->block, cols) : cols * dtype_size(t->dtype));
    for (size_t col = 0; col < cols; col += run) {
        const size_t from = mat_stored_head(heads, col);
        if (t->block && !heads.width)
            block_to_f32(ret, at, t->block, 0, cols);
        else if (t->block)
            some_of_blocks(ret + col, at, t->block, from, run);
        else
            dtype_to_f32(ret + col, at + from * dtype_size(t->dtype), t->dtype, run);
    }
}

int st_check(const struct st *st, struct err *err)
{
    const struct st_tensor *sums = st_find(st, ST_CHECKSUMS);
    size_t at = 0;
    if (!sums || sums->bytes != (st->count - 1) * sizeof(uint64_t))
        return err_set(err, -ENODATA, "it has no checksums of its tensors");
    for (size_t i = 0; i < st->count; i++) {
        const struct st_tensor *t = &st->entries[i].t;
        uint64_t want;
        if (t == sums)
            continue;
        memcpy(&want, (const char *)sums->data + at++ * sizeof want, sizeof want);
        if (checksum_words(CHECKSUM_START, t->data, t->bytes / sizeof(uint32_t)) != want)
            return err_set(err, -EBADMSG, "tensor %s does not match its checksum", input_quote(t->name).text);
    }
    return 0;
}

size_t st_names(const struct st *st, const char *const **ret)
{
    *ret = (const char *const *)st->names;
    return st->nnames;
}

void st_willneed(const struct st *st, const struct st_tensor *t)
{
    st_willneed_part(st, t, t->data, t->bytes);
}

/* Advice is for pages of the file alone: of memory of our own, the kernel would throw away what it
 * holds. */
static bool is_mapped(const struct st *st, const struct st_tensor *t)
{
    const struct st_shard *shard = &st->shards[t->file];
    const uintptr_t map = (uintptr_t)shard->map, data = (uintptr_t)t->data;
    return map && data >= map && data - map < shard->bytes && !t->is_away;
}

void st_willneed_part(const struct st *st, const struct st_tensor *t, const void *data, size_t bytes)
{
    const struct st_shard *shard = &st->shards[t->file];
    if (bytes == 0 || !is_mapped(st, t))
        return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t at = (size_t)((const char *)data - (const char *)shard->map), from = at & ~(page - 1);
    madvise((char *)shard->map + from, at - from + bytes, MADV_WILLNEED);
}

void st_dontneed(const struct st *st, const struct st_tensor *t)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)t->data, first = (begin + page - 1) / page * page,
                    end = (begin + t->bytes) / page * page;
    if (end > first && is_mapped(st, t))
        madvise((void *)first, end - first, MADV_DONTNEED);
}

const char *st_place(const struct st *st, const struct st_tensor *t, uint64_t *ret_at)
{
    const struct st_entry *e = (const struct st_entry *)t; /* its first member */
    *ret_at = st->shards[t->file].data_at + e->begin;
    return st->shards[t->file].path;
}

void st_file_identity(const struct st *st, size_t file, char ret[ST_IDENTITY])
{
    const struct st_shard *shard = &st->shards[file];
    const struct maps_stamp *s = &shard->stamp;
    snprintf(ret, ST_IDENTITY, "%" PRIx64 ":%" PRIx64 " %zu %lld.%09ld %lld.%09ld", s->device, s->inode,
             shard->bytes, (long long)s->written.tv_sec, s->written.tv_nsec, (long long)s->changed.tv_sec,
             s->changed.tv_nsec);
}

static int name_at(const void *key, const void *at)
{
    return strcmp(key, *(char *const *)at);
}

size_t st_set_find_name(const struct st *st, const char *name)
{
    char **at = st->nnames ? bsearch(name, st->names, st->nnames, sizeof *st->names, name_at) : NULL;
    return at ? (size_t)(at - st->names) : SIZE_MAX;
}
