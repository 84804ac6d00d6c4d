/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/travel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/pipe/cable_use.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/hops.h"
#include "engine/file/have_map.h"

enum { BLOCKS_MOST = 1 << 22 /* 16 TiB */ };

/* All blocks of all files stand in one row. */
struct travel_row {
    json_t *first; /* owned: by file, the place of its first block */
    size_t n;
    uint32_t *bytes;           /* owned */
    bool *has[RING_MAX_NODES]; /* owned: by node */
    uint8_t *hub; /* owned: by block, the rank that asks the hub for it, plus one; 0: none does */
};

/* --- blocks ----------------------------------------------------------------------------------- */

static int row_init(struct travel_row *row, const json_t *sizes)
{
    const char *file;
    json_t *size;
    *row = (struct travel_row){.first = json_object()};
    json_object_foreach ((json_t *)sizes, file, size) {
        const json_int_t bytes = json_integer_value(size);
        if (bytes < 0 || bytes / HAVE_BLOCK >= BLOCKS_MOST - (json_int_t)row->n)
            return -EINVAL;
        const size_t blocks = ((size_t)bytes + HAVE_BLOCK - 1) / HAVE_BLOCK;
        json_object_set_new(row->first, file, json_integer((json_int_t)row->n));
        row->bytes = xrealloc(row->bytes, (row->n + blocks + 1) * sizeof *row->bytes);
        for (size_t b = 0; b < blocks; b++) {
            const size_t left = (size_t)bytes - b * HAVE_BLOCK;
            row->bytes[row->n++] = (uint32_t)(left < HAVE_BLOCK ? left : HAVE_BLOCK);
        }
    }
    return 0;
}

static void row_done(struct travel_row *row)
{
    for (size_t i = 0; i < RING_MAX_NODES; i++)
        free(row->has[i]);
    free(row->bytes);
    free(row->hub);
    json_decref(row->first);
}

/* Blocks of a run, which may be another node's, as places in the row. */
static size_t run_of(const struct travel_row *row, const json_t *sizes, const json_t *run, size_t *ret_end)
{
    const char *file = json_string_value(json_array_get(run, 0));
    const json_t *first = file ? json_object_get(row->first, file) : NULL;
    const json_int_t from = json_integer_value(json_array_get(run, 1)),
                     end = json_integer_value(json_array_get(run, 2)),
                     bytes = first ? json_integer_value(json_object_get(sizes, file)) : 0,
                     blocks = (bytes + HAVE_BLOCK - 1) / HAVE_BLOCK, last = end < blocks ? end : blocks;
    *ret_end = 0;
    if (from < 0 || last <= from)
        return 0;
    *ret_end = (size_t)(json_integer_value(first) + last);
    return (size_t)(json_integer_value(first) + from);
}

static bool *marks_of(const struct travel_row *row, const json_t *sizes, const json_t *list)
{
    bool *marks = xcalloc(row->n + 1, sizeof *marks);
    size_t i, end;
    json_t *run;
    json_array_foreach (list, i, run)
        for (size_t b = run_of(row, sizes, run, &end); b < end; b++)
            marks[b] = true;
    return marks;
}

static void note_all_have(struct travel_row *row, const struct travel_world *w)
{
    row->hub = xcalloc(row->n + 1, sizeof *row->hub);
    for (size_t i = 0; i < w->n; i++) {
        const struct travel_node *node = &w->node[i];
        row->has[i] = marks_of(row, w->sizes, node->is_whole ? NULL : node->blocks);
        if (node->is_whole)
            memset(row->has[i], true, row->n);
    }
}

/* --- from whom -------------------------------------------------------------------------------- */

struct travel_sources {
    size_t at[CARRY_FROM], n;
};

static void find_sources(struct travel_sources *ret, const struct travel_world *w, size_t rank,
                         const size_t far[RING_MAX_NODES])
{
    bool whole[RING_MAX_NODES] = {false}, part[RING_MAX_NODES] = {false};
    for (size_t i = 0; i < w->n; i++) {
        const struct travel_node *node = &w->node[i];
        part[i] = i != rank && node->is_known && node->has_outline;
        whole[i] = part[i] && node->is_whole;
    }
    ret->n = hops_sources(far, whole, w->n, true, ret->at, CARRY_FROM);
    if (!ret->n)
        ret->n = hops_sources(far, part, w->n, false, ret->at, CARRY_FROM);
}

/* What no node has: the first of the ranks that want it asks the hub, and gives it to others. */
static void take_from_hub(struct travel_rank *to, struct travel_row *row, size_t block, size_t rank)
{
    if (row->hub[block]) {
        to->from[row->hub[block] - 1] += row->bytes[block];
        return;
    }
    to->hub += row->bytes[block];
    row->hub[block] = (uint8_t)(rank + 1);
}

/* Those that have a block give equal parts of it: sources share the work by themselves. */
static void take_block(struct travel_rank *to, struct travel_row *row, size_t block, size_t rank,
                       const struct travel_sources *sources)
{
    const uint64_t bytes = row->bytes[block];
    size_t n = 0;
    for (size_t i = 0; i < sources->n; i++)
        n += row->has[sources->at[i]][block];
    to->lacks += bytes;
    if (!n)
        take_from_hub(to, row, block, rank);
    uint64_t left = bytes;
    for (size_t i = 0; i < sources->n; i++) {
        if (!row->has[sources->at[i]][block])
            continue;
        const uint64_t part = left / n--;
        to->from[sources->at[i]] += part;
        left -= part;
    }
}

static void foresee_rank(struct travel_rank *to, const struct travel_world *w, struct travel_row *row,
                         size_t rank, const size_t far[RING_MAX_NODES])
{
    struct travel_sources sources;
    bool *wanted = marks_of(row, w->sizes, w->node[rank].share);
    to->is_known = w->node[rank].is_known;
    find_sources(&sources, w, rank, far);
    for (size_t b = 0; b < row->n; b++) {
        to->share += wanted[b] ? row->bytes[b] : 0;
        if (wanted[b] && to->is_known && !row->has[rank][b])
            take_block(to, row, b, rank, &sources);
    }
    free(wanted);
}

/* --- how long --------------------------------------------------------------------------------- */

struct travel_cables {
    uint64_t bytes[RING_MAX_NODES][RING_MAX_NODES]; /* that cross from one to the other */
    bool has_ways;
};

/* The shortest way to who takes it; of several, that over the first node. */
static void cross(struct travel_cables *c, const struct travel_world *w, size_t from, uint64_t bytes,
                  const size_t far[RING_MAX_NODES])
{
    if (far[from] == SIZE_MAX) {
        c->has_ways = false;
        return;
    }
    while (far[from]) {
        size_t next = 0;
        while (!w->joined[from][next] || far[next] != far[from] - 1)
            next++;
        c->bytes[from][next] += bytes;
        from = next;
    }
}

static void time_cables(struct travel *t, const struct travel_world *w, const struct travel_cables *c)
{
    t->is_timed = c->has_ways;
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->n; k++) {
            if (!c->bytes[i][k])
                continue;
            if (w->mbps[i][k] < CABLE_LEAST_MBPS) {
                t->is_timed = false;
                continue;
            }
            const double seconds = (double)c->bytes[i][k] * 8 / (w->mbps[i][k] * 1e6 * CABLE_USABLE);
            if (seconds > t->seconds) {
                t->seconds = seconds;
                t->mbps = w->mbps[i][k];
            }
        }
}

int travel_foresee(struct travel *ret, const struct travel_world *w)
{
    bool joined[RING_MAX_NODES * RING_MAX_NODES];
    struct travel_cables *c = xcalloc(1, sizeof *c);
    struct travel_row row;
    *ret = (struct travel){0};
    c->has_ways = true;
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->n; k++)
            joined[i * w->n + k] = w->joined[i][k];
    const int r = row_init(&row, w->sizes);
    if (!r)
        note_all_have(&row, w);
    for (size_t i = 0; i < w->ranks && !r; i++) {
        struct travel_rank *rank = &ret->rank[i];
        size_t far[RING_MAX_NODES];
        hops_from(joined, w->n, i, far);
        foresee_rank(rank, w, &row, i, far);
        ret->lacks += rank->lacks;
        ret->hub += rank->hub;
        for (size_t k = 0; k < w->n; k++)
            if (rank->from[k])
                cross(c, w, k, rank->from[k], far);
    }
    if (!r)
        time_cables(ret, w, c);
    row_done(&row);
    free(c);
    return r;
}

void travel_add(struct travel *to, const struct travel *more)
{
    for (size_t i = 0; i < RING_MAX_NODES; i++) {
        struct travel_rank *a = &to->rank[i];
        const struct travel_rank *b = &more->rank[i];
        a->is_known = a->is_known && b->is_known;
        a->share += b->share;
        a->lacks += b->lacks;
        a->hub += b->hub;
        for (size_t k = 0; k < RING_MAX_NODES; k++)
            a->from[k] += b->from[k];
    }
    to->lacks += more->lacks;
    to->hub += more->hub;
    to->is_timed = to->is_timed && more->is_timed;
    to->mbps = more->seconds > to->seconds ? more->mbps : to->mbps;
    to->seconds += more->seconds;
}

static uint64_t lacks_of(const struct travel_row *row, const struct travel_world *w, size_t rank,
                         const json_t *part)
{
    uint64_t sum = 0;
    size_t i, end;
    json_t *run;
    json_array_foreach (part, i, run)
        for (size_t b = run_of(row, w->sizes, run, &end); b < end; b++)
            sum += row->has[rank][b] ? 0 : row->bytes[b];
    return sum;
}

int travel_lacks(uint64_t *ret, const struct travel_world *w, const json_t *parts)
{
    const size_t n = json_array_size(parts);
    struct travel_row row;
    const int r = row_init(&row, w->sizes);
    if (!r)
        note_all_have(&row, w);
    for (size_t i = 0; i < w->ranks && !r; i++)
        for (size_t k = 0; k < n; k++)
            ret[i * n + k] = lacks_of(&row, w, i, json_array_get(parts, k));
    row_done(&row);
    return r;
}
