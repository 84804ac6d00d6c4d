/* SPDX-License-Identifier: MIT
 *
 * The vocabulary: an arena of texts, a hash table from text to entry, an array from id to entry.
 * Owned by the tokenizer that embeds it; filled on one thread while the tokenizer opens, only read
 * afterwards. */
#include "text/vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t hash_of(const struct vocab *v, const char *text, size_t n)
{
    uint64_t h = v->salt ^ n;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 0x9E3779B97F4A7C15u + (h >> 29);
    return h ^ h >> 32;
}

/* The slot that holds the text, or the empty one where it would go. */
static size_t slot_of(const struct vocab *v, const char *text, size_t n)
{
    size_t mask = v->slot_count - 1;
    for (size_t i = hash_of(v, text, n) & mask;; i = (i + 1) & mask) {
        if (!v->slots[i])
            return i;
        const struct vocab_entry *e = &v->entries[v->slots[i] - 1];
        if (e->len == n && memcmp(v->arena.data + e->text, text, n) == 0)
            return i;
    }
}

static int slots_resize(struct vocab *v, size_t count)
{
    uint32_t *slots = calloc(count, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    free(v->slots);
    v->slots = slots;
    v->slot_count = count;
    for (size_t i = 0; i < v->n; i++)
        slots[slot_of(v, v->arena.data + v->entries[i].text, v->entries[i].len)] = (uint32_t)i + 1;
    return 0;
}

int vocab_init(struct vocab *v, struct err *err)
{
    *v = (struct vocab){0};
    if (getrandom(&v->salt, sizeof v->salt, GRND_NONBLOCK) < 0)
        v->salt = 0; /* early boot: tables work unsalted */
    if (slots_resize(v, 1024))
        return err_set(err, -ENOMEM, "no memory for the vocabulary");
    return 0;
}

void vocab_done(struct vocab *v)
{
    textbuf_done(&v->arena);
    free(v->entries);
    free(v->slots);
    free(v->by_id);
    *v = (struct vocab){0};
}

/* Memory for one more entry, before anything is changed. */
static int make_room(struct vocab *v, uint32_t id)
{
    void *entries = v->entries, *by_id = v->by_id;
    if (array_reserve(&entries, &v->cap, v->n + 1, sizeof *v->entries))
        return -ENOMEM;
    v->entries = entries;
    if (array_reserve(&by_id, &v->by_id_cap, (size_t)id + 1, sizeof *v->by_id))
        return -ENOMEM;
    v->by_id = by_id;
    if (v->n * 2 >= v->slot_count && slots_resize(v, v->slot_count * 2))
        return -ENOMEM;
    return 0;
}

int vocab_add(struct vocab *v, const char *text, size_t n, uint32_t id, struct err *err)
{
    if (id >= VOCAB_ID_LIMIT)
        return err_set(err, -EINVAL, "token '%.64s' has id %u; ids must be below %u", text, id,
                       VOCAB_ID_LIMIT);
    if (id < v->ids && v->by_id[id])
        return err_set(err, -EEXIST, "id %u is given to '%.64s' and to '%.64s'; an id must name one token",
                       id, v->arena.data + v->entries[v->by_id[id] - 1].text, text);
    if (vocab_find(v, text, n) != VOCAB_NONE)
        return err_set(err, -EEXIST, "token '%.64s' is listed twice; give it one id", text);
    size_t start = v->arena.len;
    textbuf_append(&v->arena, text, n);
    textbuf_append(&v->arena, "", 1);
    if (v->arena.failed || make_room(v, id))
        return err_set(err, -ENOMEM, "no memory for a vocabulary of more than %zu tokens", v->n);
    v->entries[v->n++] = (struct vocab_entry){start, (uint32_t)n, id};
    v->slots[slot_of(v, text, n)] = (uint32_t)v->n;
    if (id >= v->ids) {
        memset(v->by_id + v->ids, 0, (id + 1 - v->ids) * sizeof *v->by_id);
        v->ids = (size_t)id + 1;
    }
    v->by_id[id] = (uint32_t)v->n;
    return 0;
}

uint32_t vocab_find(const struct vocab *v, const char *text, size_t n)
{
    uint32_t entry = v->slots[slot_of(v, text, n)];
    return entry ? v->entries[entry - 1].id : VOCAB_NONE;
}

const char *vocab_text(const struct vocab *v, uint32_t id, size_t *ret_n)
{
    if (id >= v->ids || !v->by_id[id])
        return NULL;
    const struct vocab_entry *e = &v->entries[v->by_id[id] - 1];
    if (ret_n)
        *ret_n = e->len;
    return v->arena.data + e->text;
}
