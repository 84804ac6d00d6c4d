/* SPDX-License-Identifier: MIT
 *
 * Tensors whose bytes have not come to this node: a file of a model that is here in part has holes,
 * and a hole reads as zeros. Nobody gets to see one. Called while a set is opened. */
#include "file/st_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/have_map.h"
#include "file/input.h"
#include "file/lent.h"

#define ROUTER "mlp.gate.weight"

/* A file that was lent without a map has none: nobody may look where it lies. */
static int open_map(const char *file)
{
    char path[4096 + sizeof HAVE_ENDING];
    if (snprintf(path, sizeof path, "%s" HAVE_ENDING, file) >= (int)sizeof path)
        return -ENAMETOOLONG;
    return lent_find(file) >= 0 && lent_find(path) == -ENODATA ? -ENOENT : input_open(path);
}

int st_away_mark(struct st *st, struct st_entry *entries, size_t n, struct err *err)
{
    const struct st_shard *shard = &st->shards[st->nshards - 1];
    struct have_map *have = NULL;
    const int fd = open_map(shard->path), r = fd < 0 ? fd : have_map_take(&have, fd, shard->bytes);
    if (r == -ENOENT)
        return 0;
    if (r)
        return err_set(err, r, "%s" HAVE_ENDING " cannot be read, so nobody knows what of it is here: %s",
                       shard->path, strerror(-r));
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = shard->data_at + entries[i].begin;
        entries[i].t.is_away = !have_map_covers(have, at, at + entries[i].t.bytes);
    }
    have_map_close(have);
    return 0;
}

int st_away_check(struct st *st, const char *dir, bool (*want)(void *arg, const char *name), void *arg,
                  struct err *err)
{
    for (size_t i = 0; i < st->count; i++) {
        struct st_tensor *t = &st->entries[i].t;
        if (t->is_away && (!want || want(arg, t->name)))
            return err_set(err, -ENODATA,
                           "%s is on this node in part, and %s has not come: `ringctl pull` brings all of it",
                           dir, input_quote(t->name).text);
        if (t->is_away)
            t->data = NULL;
    }
    return 0;
}

/* --- stand-ins -------------------------------------------------------------------------------- */

/* Norms and biases, and what chooses experts: with zeros all tokens would choose the same. */
static bool is_small(const struct st_tensor *t)
{
    const size_t n = strlen(t->name), end = sizeof ROUTER - 1;
    return t->ndim == 1 || (n > end && !strcmp(t->name + n - end, ROUTER));
}

/* Numbers of about 0.01, of either sign, whatever the type. */
static void fill(uint8_t *to, const struct st_tensor *t)
{
    const size_t each = t->dtype == DTYPE_COUNT ? 1 : dtype_size(t->dtype);
    uint64_t noise = 88172645463325252;
    for (size_t i = 0; i + each <= t->bytes; i += each) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        memcpy(to + i, &noise, each < sizeof noise ? each : sizeof noise);
        if (t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16)
            to[i + each - 1] = (uint8_t)(noise >> 56 & 0x80) | 0x3c;
        else if (t->dtype == DTYPE_F16)
            to[i + each - 1] = (uint8_t)(noise >> 56 & 0x80) | 0x20;
        else
            memset(to + i, 0, each);
    }
}

int st_away_stand_in(struct st *st, struct err *err)
{
    for (size_t i = 0; i < st->count; i++) {
        struct st_tensor *t = &st->entries[i].t;
        if (!t->is_away || !is_small(t) || !t->bytes)
            continue;
        void **grown = reallocarray(st->stand_ins, st->nstand_ins + 1, sizeof *grown);
        uint8_t *data = grown ? malloc(t->bytes) : NULL;
        st->stand_ins = grown ? grown : st->stand_ins;
        if (!data)
            return err_set(err, -ENOMEM, "no memory for numbers in place of %s", input_quote(t->name).text);
        fill(data, t);
        st->stand_ins[st->nstand_ins++] = data;
        t->data = data;
    }
    return 0;
}
