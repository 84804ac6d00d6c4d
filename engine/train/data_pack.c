/* SPDX-License-Identifier: MIT
 *
 * Owns which rows go through the ring together. Made by the head's stage once a set is read; then
 * read by its thread. Rows are laid into packs by best fit, the longest first: packs that have so
 * much room left are in a list, and a bit for each such list finds the fullest that still takes the
 * row. What results depends on the lengths and the rows' order alone. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train/data.h"

struct data_packs {
    uint32_t *rows; /* owned: [rows of the set], pack after pack */
    size_t *start;  /* owned: [n + 1], into rows */
    size_t *length; /* owned: [n], tokens */
    size_t n, most_rows, longest;
};

static const uint32_t NONE = UINT32_MAX;

/* While rows are laid: */
struct filling {
    uint32_t *order;  /* owned: [rows], the longest first */
    uint32_t *pack;   /* owned: [rows], the pack of each row */
    uint32_t *next;   /* owned: [rows], of packs with equally much room */
    uint32_t *head;   /* owned: [capacity + 1], by room, NONE = no pack */
    uint64_t *filled; /* owned: a bit per head that has packs */
    size_t *used;     /* owned: [rows], tokens of each pack */
    size_t packs;
};

void data_packs_free(struct data_packs *packs)
{
    if (!packs)
        return;
    free(packs->rows);
    free(packs->start);
    free(packs->length);
    free(packs);
}

static void filling_done(struct filling *f)
{
    free(f->order);
    free(f->pack);
    free(f->next);
    free(f->head);
    free(f->filled);
    free(f->used);
}

static int filling_init(struct filling *f, size_t rows, size_t capacity)
{
    f->order = calloc(rows, sizeof *f->order);
    f->pack = calloc(rows, sizeof *f->pack);
    f->next = calloc(rows, sizeof *f->next);
    f->head = malloc((capacity + 1) * sizeof *f->head);
    f->filled = calloc(capacity / 64 + 1, sizeof *f->filled);
    f->used = calloc(rows, sizeof *f->used);
    if (!f->order || !f->pack || !f->next || !f->head || !f->filled || !f->used)
        return -ENOMEM;
    for (size_t room = 0; room <= capacity; room++)
        f->head[room] = NONE;
    return 0;
}

/* Rows by length, the longest first, equals in their order. */
static int sort_rows(struct filling *f, const struct data *data)
{
    const size_t rows = data_rows(data), longest = data_longest(data);
    size_t *at = calloc(longest + 2, sizeof *at);
    if (!at)
        return -ENOMEM;
    for (size_t i = 0; i < rows; i++)
        at[longest - data_row(data, i).n + 1]++;
    for (size_t n = 0; n < longest; n++)
        at[n + 1] += at[n];
    for (size_t i = 0; i < rows; i++)
        f->order[at[longest - data_row(data, i).n]++] = (uint32_t)i;
    free(at);
    return 0;
}

/* The least room ≥ wanted that a pack has; capacity + 1 if none does. */
static size_t find_room(const struct filling *f, size_t wanted, size_t capacity)
{
    size_t word = wanted / 64;
    uint64_t bits = f->filled[word] & (~UINT64_C(0) << wanted % 64);
    while (!bits && word < capacity / 64)
        bits = f->filled[++word];
    return bits ? 64 * word + (size_t)__builtin_ctzll(bits) : capacity + 1;
}

static void put_back(struct filling *f, uint32_t pack, size_t room)
{
    f->next[pack] = f->head[room];
    f->head[room] = pack;
    f->filled[room / 64] |= UINT64_C(1) << room % 64;
}

static void lay_rows(struct filling *f, const struct data *data, size_t capacity)
{
    for (size_t k = 0; k < data_rows(data); k++) {
        const size_t n = data_row(data, f->order[k]).n;
        const size_t room = find_room(f, n, capacity);
        uint32_t pack = (uint32_t)f->packs;
        if (room > capacity) {
            f->packs++;
        } else {
            pack = f->head[room];
            f->head[room] = f->next[pack];
            if (f->head[room] == NONE)
                f->filled[room / 64] &= ~(UINT64_C(1) << room % 64);
        }
        f->used[pack] += n;
        f->pack[f->order[k]] = pack;
        put_back(f, pack, capacity - f->used[pack]);
    }
}

static int fill(struct filling *f, const struct data *data, size_t capacity)
{
    if (capacity) {
        int code = filling_init(f, data_rows(data), capacity);
        if (!code)
            code = sort_rows(f, data);
        if (!code)
            lay_rows(f, data, capacity);
        return code;
    }
    const size_t together = data_together(data);
    f->packs = data_rows(data) / together;
    f->pack = calloc(data_rows(data), sizeof *f->pack);
    for (size_t i = 0; i < data_rows(data) && f->pack; i++)
        f->pack[i] = (uint32_t)(i / together);
    return f->pack ? 0 : -ENOMEM;
}

/* Packs numbered as they were begun, their rows in the set's order. */
static int collect(struct data_packs *p, const struct filling *f, const struct data *data)
{
    const size_t rows = data_rows(data);
    p->n = f->packs;
    p->rows = calloc(rows, sizeof *p->rows);
    p->start = calloc(p->n + 2, sizeof *p->start);
    p->length = calloc(p->n, sizeof *p->length);
    if (!p->rows || !p->start || !p->length)
        return -ENOMEM;
    for (size_t i = 0; i < rows; i++) {
        p->start[f->pack[i] + 2]++;
        p->length[f->pack[i]] += data_row(data, i).n;
    }
    for (size_t k = 0; k < p->n; k++) {
        p->most_rows = p->start[k + 2] > p->most_rows ? p->start[k + 2] : p->most_rows;
        p->longest = p->length[k] > p->longest ? p->length[k] : p->longest;
        p->start[k + 2] += p->start[k + 1];
    }
    for (size_t i = 0; i < rows; i++)
        p->rows[p->start[f->pack[i] + 1]++] = (uint32_t)i;
    return 0;
}

int data_packs_new(struct data_packs **ret, const struct data *data, size_t capacity, struct err *err)
{
    if (data_rows(data) >= NONE)
        return err_set(err, -EINVAL, "%zu rows are more than can be ordered", data_rows(data));
    if (capacity && capacity < data_longest(data))
        return err_set(err, -EINVAL, "a row of %zu tokens does not fit into a pack of %zu",
                       data_longest(data), capacity);
    struct filling f = {0};
    struct data_packs *p = calloc(1, sizeof *p);
    int code = p ? fill(&f, data, capacity) : -ENOMEM;
    if (!code)
        code = collect(p, &f, data);
    filling_done(&f);
    if (code) {
        data_packs_free(p);
        return err_set(err, code, "no memory to pack %zu rows", data_rows(data));
    }
    *ret = p;
    return 0;
}

size_t data_packs_count(const struct data_packs *packs)
{
    return packs->n;
}

const uint32_t *data_packs_at(const struct data_packs *packs, size_t i, size_t *ret_n)
{
    *ret_n = packs->start[i + 1] - packs->start[i];
    return packs->rows + packs->start[i];
}

size_t data_packs_length(const struct data_packs *packs, size_t i)
{
    return packs->length[i];
}

size_t data_packs_most_rows(const struct data_packs *packs)
{
    return packs->most_rows;
}

size_t data_packs_longest(const struct data_packs *packs)
{
    return packs->longest;
}
