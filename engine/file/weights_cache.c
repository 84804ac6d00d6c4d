/* SPDX-License-Identifier: MIT
 *
 * Owns the files that keep hashes: one for each file of a model, named by its path, good as long as
 * the model's file is the same one, unwritten since. A line for each tensor, its hash and name, and
 * a hash over all of it as the last line. A file of this kind is put in its place when it is whole;
 * of two processes that do so the later one wins, and what the other found is read once more. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/input.h"
#include "file/murmur.h"
#include "file/weights_impl.h"

enum { CACHE_LIMIT = 64 << 20 };
#define FORM "ringd hashes 1"

static char *cache_path(const struct weights *w, size_t file)
{
    const char *path = w->st->shards[file].path;
    uint64_t hash[2];
    char *ret;
    murmur128(hash, path, strlen(path), 0);
    return asprintf(&ret, "%s/%016" PRIx64 "%016" PRIx64, w->cache, hash[0], hash[1]) < 0 ? NULL : ret;
}

/* What makes a text good for this file. */
static void head_line(const struct weights *w, size_t file, char ret[ST_IDENTITY + 32])
{
    char identity[ST_IDENTITY];
    st_file_identity(w->st, file, identity);
    snprintf(ret, ST_IDENTITY + 32, FORM " %s\n", identity);
}

static void last_line(char ret[48], const char *text, size_t n)
{
    uint64_t hash[2];
    murmur128(hash, text, n, 0);
    snprintf(ret, 48, "all %016" PRIx64 "%016" PRIx64 "\n", hash[0], hash[1]);
}

static void take_line(struct weights *w, size_t file, const char *line)
{
    struct weights_hash is = {.is_known = true};
    int used = 0;
    if (sscanf(line, "%16" SCNx64 "%16" SCNx64 " %n", &is.at[0], &is.at[1], &used) != 2 || !used)
        return;
    const size_t name = st_set_find_name(w->st, line + used),
                 entry = name == SIZE_MAX ? SIZE_MAX : w->entry[name];
    if (entry != SIZE_MAX && w->st->entries[entry].t.file == file)
        w->hash[entry] = is;
}

static void take_text(struct weights *w, size_t file, char *text, size_t n)
{
    char head[ST_IDENTITY + 32], last[48];
    head_line(w, file, head);
    last_line(last, "", 0);
    const size_t tail = strlen(last), begin = strlen(head);
    if (n < begin + tail || memcmp(text, head, begin) != 0)
        return;
    last_line(last, text, n - tail);
    if (memcmp(text + n - tail, last, tail) != 0)
        return;
    text[n - tail] = 0;
    for (char *rest = text + begin, *line; (line = strsep(&rest, "\n"));)
        take_line(w, file, line);
}

void weights_cache_load(struct weights *w)
{
    for (size_t f = 0; f < w->st->nshards; f++) {
        char *path = cache_path(w, f), *text = NULL;
        size_t n;
        if (path && !input_read(path, CACHE_LIMIT, &text, &n, NULL))
            take_text(w, f, text, n);
        free(text);
        free(path);
    }
}

static char *write_text(const struct weights *w, size_t file, size_t *ret_n)
{
    char head[ST_IDENTITY + 32], last[48], *text = NULL;
    FILE *f = open_memstream(&text, ret_n);
    if (!f)
        return NULL;
    head_line(w, file, head);
    fputs(head, f);
    for (size_t i = 0; i < w->st->count; i++) {
        const struct st_tensor *t = &w->st->entries[i].t;
        if (t->file == file && w->hash[i].is_known && !strchr(t->name, '\n'))
            fprintf(f, "%016" PRIx64 "%016" PRIx64 " %s\n", w->hash[i].at[0], w->hash[i].at[1], t->name);
    }
    bool failed = fflush(f) != 0;
    if (!failed) {
        last_line(last, text, *ret_n);
        fputs(last, f);
    }
    failed = fclose(f) != 0 || failed;
    if (!failed)
        return text;
    free(text);
    return NULL;
}

void weights_cache_save(const struct weights *w, size_t file)
{
    size_t n;
    char *path = cache_path(w, file), *text = write_text(w, file, &n), *mine = NULL;
    if (path && text && !input_make_dir(w->cache) && asprintf(&mine, "%s.%ld", path, (long)getpid()) > 0) {
        FILE *f = fopen(mine, "we");
        bool whole = f && fwrite(text, 1, n, f) == n;
        whole = f && !fclose(f) && whole;
        if (!whole || rename(mine, path))
            unlink(mine);
    }
    free(mine);
    free(text);
    free(path);
}
