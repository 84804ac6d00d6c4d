/* SPDX-License-Identifier: MIT */
#include "daemon/stage/task/slice_lanes.h"

#include <errno.h>
#include <string.h>

enum {
    PIECE = EXCHANGE_CHUNK / sizeof(float), /* floats of a message at most */
    AHEAD = 8,                              /* buffers posted for each other slice */
    LAG = 4,                                /* pieces of one output that are sent before the first is taken */
};

/* The rank that shares this one's stages, in its replica. */
static uint32_t rank_of(const struct slice_lanes *s, size_t slice)
{
    const struct plan_shape shape = job_plan_shape(s->plan);
    const size_t first = plan_shape_pipeline(&shape, s->rank) - s->gather.slice.index;
    return plan_shape_rank(&shape, first + slice, plan_shape_place(&shape, s->rank));
}

static struct msg_key key_of(uint32_t to, uint32_t number)
{
    return (struct msg_key){.kind = MSG_SLICE, .stage = (uint16_t)to, .mb = number};
}

static int post_ahead(struct slice_lanes *s, size_t slice, struct err *err)
{
    int e = 0;
    while (!e && s->posted[slice] - s->taken[slice] < AHEAD) {
        const struct msg_key key = key_of(s->rank, ++s->posted[slice]);
        e = exchange_post(s->exchange, rank_of(s, slice), &key, PIECE * sizeof(float), true);
    }
    return e ? err_set(err, e, "posting receive buffers: %s", strerror(-e)) : 0;
}

/* --- one output ------------------------------------------------------------------------------- */

static size_t width_of(const struct gather_columns *c, size_t slice)
{
    return c->first[slice + 1] - c->first[slice];
}

/* Floats of piece i of what a slice gives; 0: there is no such piece. */
static size_t piece_of(const struct gather_columns *c, size_t slice, size_t i)
{
    const size_t all = c->rows * width_of(c, slice), at = i * PIECE;
    return at >= all ? 0 : all - at < PIECE ? all - at : PIECE;
}

/* Values at, … of [rows, width of the slice], to their columns. */
static void put(const struct gather_columns *c, size_t slice, size_t at, const float *from, size_t n)
{
    const size_t width = width_of(c, slice);
    for (size_t run; n; at += run, from += run, n -= run) {
        const size_t row = at / width, column = at % width;
        run = width - column < n ? width - column : n;
        memcpy(c->to + row * c->width + c->first[slice] + column, from, run * sizeof *from);
    }
}

static int send_piece(struct slice_lanes *s, size_t slice, const struct gather_columns *c, size_t i,
                      struct err *err)
{
    const size_t n = piece_of(c, s->gather.slice.index, i);
    const uint32_t to = rank_of(s, slice);
    if (!n)
        return 0;
    const struct msg_key key = key_of(to, ++s->sent[slice]);
    float *buffer = exchange_buffer(s->exchange, n * sizeof *buffer);
    if (!buffer)
        return err_set(err, -ENOMEM, "out of memory for a message to rank %u", to);
    memcpy(buffer, c->own + i * PIECE, n * sizeof *buffer);
    const int e = exchange_send(s->exchange, to, &key, buffer, n * sizeof *buffer);
    return e ? err_set(err, e, "sending to rank %u: %s", to, strerror(-e)) : 0;
}

static int await(struct slice_lanes *s, uint32_t from, const struct msg_key *key, struct err *err)
{
    int e = exchange_ready(s->exchange, from, key);
    const bool waits = !e;
    while (!e) {
        progress_set(s->progress, PROGRESS_WAITING_FOR, MSG_SLICE, key->mb, from);
        exchange_wait(s->exchange);
        e = exchange_ready(s->exchange, from, key);
    }
    if (waits)
        progress_set(s->progress, PROGRESS_COMPUTING, TASK_F, 0, 0);
    return e < 0 ? err_set(err, e, "waiting for rank %u: %s", from, strerror(-e)) : 0;
}

static int take_piece(struct slice_lanes *s, size_t slice, const struct gather_columns *c, size_t i,
                      struct err *err)
{
    const size_t n = piece_of(c, slice, i);
    const uint32_t from = rank_of(s, slice);
    size_t size;
    if (!n)
        return 0;
    const struct msg_key key = key_of(s->rank, s->taken[slice] + 1);
    int e = await(s, from, &key, err);
    if (e)
        return e;
    float *message = exchange_take(s->exchange, from, &key, &size);
    if (size == n * sizeof *message)
        put(c, slice, i * PIECE, message, n);
    else
        e = err_set(
            err, -EBADMSG,
            "rank %u sent %zu bytes of an output, and %zu were due: install the same ringd on all nodes",
            from, size, n * sizeof *message);
    exchange_release(s->exchange, message);
    s->taken[slice]++;
    return e ? e : post_ahead(s, slice, err);
}

/* Small messages are read by this thread, which has nothing else to do until they are here. Of
 * large ones the exchange's threads read and open some while this one copies others. */
static int attend(struct slice_lanes *s, const struct gather_columns *c, struct err *err)
{
    const size_t count = s->gather.slice.count;
    size_t most = 0;
    int e = 0;
    for (size_t k = 0; k < count; k++)
        most = width_of(c, k) > most ? width_of(c, k) : most;
    if (c->rows * most * sizeof(float) >= EXCHANGE_SMALL)
        exchange_leave(s->exchange);
    else
        for (size_t k = 0; k < count && !e; k++)
            e = k == s->gather.slice.index ? 0 : exchange_attend(s->exchange, rank_of(s, k));
    return e ? err_set(err, e, "reading what other nodes send: %s", strerror(-e)) : 0;
}

/* Each sends before it takes, and no more than there is room for: so no rank waits for one that
 * waits for it. */
static int gather(void *owner, const struct gather_columns *c, struct err *err)
{
    struct slice_lanes *s = owner;
    const size_t self = s->gather.slice.index, count = s->gather.slice.count;
    size_t pieces = 0;
    int e = attend(s, c, err);
    for (size_t k = 0; k < count; k++) {
        const size_t n = (c->rows * width_of(c, k) + PIECE - 1) / PIECE;
        pieces = n > pieces ? n : pieces;
        if (k != self && !e)
            e = post_ahead(s, k, err);
    }
    for (size_t i = 0; i < pieces + LAG && !e; i++)
        for (size_t d = 1; d < count && !e; d++) {
            const size_t to = (self + d) % count, from = (self + count - d) % count;
            if (!c->to_first || !to)
                e = send_piece(s, to, c, i, err);
            if (!e && i >= LAG && (!c->to_first || !self))
                e = take_piece(s, from, c, i - LAG, err);
        }
    if (!e && c->own != c->to && (!c->to_first || !self))
        put(c, self, 0, c->own, c->rows * width_of(c, self));
    return e;
}

/* --- opening ---------------------------------------------------------------------------------- */

void slice_lanes_init(struct slice_lanes *ret, const struct job_plan *plan, uint32_t rank,
                      struct progress *progress)
{
    *ret = (struct slice_lanes){.plan = plan, .rank = rank, .progress = progress};
    ret->gather = (struct gather){job_plan_slice(plan, job_plan_pipeline_of(plan, rank)), gather, ret};
}

/* Of each other slice what is posted, and as much on its way there. */
size_t slice_lanes_bytes(const struct job_plan *plan)
{
    return plan->slices ? (plan->slices - 1) * 2 * AHEAD * PIECE * sizeof(float) : 0;
}
