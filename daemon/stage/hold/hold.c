/* SPDX-License-Identifier: MIT */
#include "daemon/stage/hold/hold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/hold/hold_keep.h"
#include "net/clock.h"

/* Large enough that each is a small part of the work, small enough to be sent while others are
 * copied. */
enum { MESSAGE = 4 << 20 };

struct hold {
    struct hold_setup setup;
    struct held_shape shape;                   /* owned, as the files below */
    struct held_memory now;                    /* written */
    struct held_memory before[HOLD_FILES_MAX]; /* read */
    size_t nbefore;
    size_t turn; /* which of its two parts is written next */
    bool is_due; /* the rank before this one has sent, or will */
    uint32_t round;
    uint64_t step; /* of what is due */
    size_t given;
    double seconds;
    struct hold_keep *keep; /* owned; NULL: there is no file on the disk */
    bool is_wanted;         /* what is due goes to the disk when it is here */
    bool is_settled;        /* files of earlier processes on the disk are not needed */
};

/* --- what was left here ----------------------------------------------------------------------- */

static json_t *ranges(const struct held_part *part, size_t units)
{
    json_t *list = json_array();
    for (size_t u = 0; u < units; u++) {
        const size_t first = u;
        while (u < units && held_has(part->has, u))
            u++;
        if (u > first)
            json_array_append_new(list, json_pack("[I,I]", (json_int_t)first, (json_int_t)u));
    }
    return list;
}

json_t *hold_report(const struct hold *h)
{
    json_t *list = json_array();
    for (size_t i = 0; i < h->nbefore; i++)
        for (size_t p = 0; p < HELD_PARTS; p++) {
            const struct held_part *part = &h->before[i].part[p];
            if (part->step)
                json_array_append_new(list, json_pack("{s:I s:o}", "step", (json_int_t)part->step, "units",
                                                      ranges(part, h->shape.units)));
        }
    return list;
}

int hold_read(const struct hold *h, uint64_t step, size_t adapter, size_t number, float *values,
              struct err *err)
{
    const struct param_piece *piece = &h->shape.pieces[adapter].piece[number];
    for (size_t i = 0; i < h->nbefore; i++)
        for (size_t p = 0; p < HELD_PARTS; p++) {
            const struct held_part *part = &h->before[i].part[p];
            if (!step || part->step != step || !held_has(part->has, piece->unit))
                continue;
            const size_t at = held_offset(&h->shape, part, adapter, piece->unit) + piece->at * sizeof(float);
            memcpy(values, held_memory_at(&h->before[i], p) + at, piece->n * sizeof(float));
            return 0;
        }
    return err_set(err, -ENODATA, "rank %u was asked for its copy of unit %zu after step %llu, and has none",
                   h->setup.rank, piece->unit, (unsigned long long)step);
}

/* --- taking and giving ------------------------------------------------------------------------ */

static struct msg_key key_of(uint32_t round, uint32_t to, size_t number)
{
    return (struct msg_key){round, MSG_HELD, (uint16_t)to, (uint32_t)number};
}

static size_t size_of(size_t bytes, size_t at)
{
    return bytes - at < MESSAGE ? bytes - at : MESSAGE;
}

static uint32_t previous(const struct hold *h)
{
    return plan_prev(h->setup.plan->ranks, h->setup.rank);
}

/* Waits for a message of the rank before this one. */
static int await_one(const struct hold *h, const struct msg_key *key, struct err *err)
{
    int r;
    while (!(r = exchange_ready(h->setup.exchange, previous(h), key))) {
        progress_set(h->setup.progress, PROGRESS_WAITING_FOR, MSG_HELD, key->mb, previous(h));
        exchange_wait(h->setup.exchange);
    }
    return r < 0 ? err_set(err, r, "waiting for rank %u: %s", previous(h), strerror(-r)) : 0;
}

static size_t part_of(enum held_of of, size_t turn)
{
    return of * HELD_TURNS + turn;
}

static void put_away(struct hold *h)
{
    h->is_wanted = false;
    if (h->keep)
        hold_keep_begin(h->keep, &h->now, h->turn);
    else
        h->setup.kept(h->setup.owner, h->step, "ringd could not make a file for it");
}

void hold_put_away(struct hold *h)
{
    h->is_wanted = h->step > 0;
    if (h->is_wanted && !h->is_due)
        put_away(h);
}

void hold_settle(struct hold *h)
{
    if (!h->is_settled)
        h->setup.settled(h->setup.owner, true);
    h->is_settled = true;
}

static void note_whole(const struct hold *h)
{
    if (h->given == 1)
        h->setup.whole(h->setup.owner);
}

int hold_take(struct hold *h, struct err *err)
{
    if (!h->is_due)
        return 0;
    const struct instant began = clock_now();
    const size_t number = part_of(HELD_PREVIOUS, h->turn), bytes = h->now.part[number].bytes;
    hold_keep_touch(h->keep, h->turn);
    held_memory_empty(&h->now, number);
    for (size_t at = 0; at < bytes; at += MESSAGE) {
        const struct msg_key key = key_of(h->round, h->setup.rank, at / MESSAGE);
        size_t n;
        int r = await_one(h, &key, err);
        if (r)
            return r;
        void *message = exchange_take(h->setup.exchange, previous(h), &key, &n);
        memcpy(held_memory_at(&h->now, number) + at, message, size_of(bytes, at));
        exchange_release(h->setup.exchange, message);
    }
    held_memory_whole(&h->now, number, h->step);
    h->is_due = false;
    note_whole(h);
    if (h->is_wanted)
        put_away(h);
    h->seconds += (double)clock_since_us(clock_now(), began) / 1e6;
    return 0;
}

static void copy_own(struct hold *h, size_t number)
{
    const struct held_part *part = &h->now.part[number];
    const struct job_plan *plan = h->setup.plan;
    for (size_t a = 0; a < h->shape.adapters; a++) {
        const struct param_pieces *pieces = &h->shape.pieces[a];
        for (size_t s = 0; s < plan->stages; s++)
            if (h->setup.stages[s])
                stage_select_adapter(h->setup.stages[s], a);
        for (size_t u = 0; u < h->shape.units; u++) {
            if (!held_has(part->has, u))
                continue;
            uint8_t *to = held_memory_at(&h->now, number) + held_offset(&h->shape, part, a, u);
            for (size_t i = pieces->first[u]; i < pieces->first[u + 1]; i++)
                stage_pack(h->setup.stages[job_plan_stage_of_unit(plan, u)], &pieces->piece[i],
                           (float *)(void *)(to + pieces->piece[i].at * sizeof(float)));
        }
    }
}

static int expect(const struct hold *h, size_t bytes)
{
    int r = 0;
    for (size_t at = 0; at < bytes && !r; at += MESSAGE) {
        const struct msg_key key = key_of(h->round, h->setup.rank, at / MESSAGE);
        r = exchange_post(h->setup.exchange, previous(h), &key, size_of(bytes, at), false);
    }
    return r;
}

/* The step that follows does not wait for them: its messages go first. */
static int send_own(const struct hold *h, size_t number)
{
    const uint32_t next = plan_next(h->setup.plan->ranks, h->setup.rank);
    const size_t bytes = h->now.part[number].bytes;
    int r = 0;
    for (size_t at = 0; at < bytes && !r; at += MESSAGE) {
        const struct msg_key key = key_of(h->round, next, at / MESSAGE);
        const size_t n = size_of(bytes, at);
        void *message = exchange_buffer(h->setup.exchange, n);
        if (!message)
            return -ENOMEM;
        memcpy(message, held_memory_at(&h->now, number) + at, n);
        r = exchange_queue_last(h->setup.exchange, next, &key, message, n);
    }
    return r;
}

int hold_give(struct hold *h, uint32_t round, uint64_t step, struct err *err)
{
    const struct instant began = clock_now();
    const size_t number = part_of(HELD_OWN, h->turn = !h->turn);
    hold_keep_touch(h->keep, h->turn);
    held_memory_empty(&h->now, number);
    copy_own(h, number);
    held_memory_whole(&h->now, number, step);
    h->round = round;
    h->step = step;
    int r = 0;
    if (h->setup.plan->ranks > 1) {
        r = expect(h, h->now.part[part_of(HELD_PREVIOUS, h->turn)].bytes);
        if (!r)
            r = send_own(h, number);
        h->is_due = !r;
    }
    if (!r && ++h->given == 2)
        h->setup.settled(h->setup.owner, false);
    if (!r && !h->is_due)
        note_whole(h);
    h->seconds = (double)clock_since_us(clock_now(), began) / 1e6;
    return r ? err_set(err, r, "a copy of step %llu was not sent: %s", (unsigned long long)step, strerror(-r))
             : 0;
}

double hold_seconds(const struct hold *h)
{
    return h->seconds;
}

/* --- opening, closing ------------------------------------------------------------------------- */

static void open_before(struct hold *h, int fd)
{
    struct held_memory *to = &h->before[h->nbefore];
    if (!held_file_open(to, fd, &h->shape, h->setup.plan->submitted))
        held_memory_open(to, fd, &h->shape);
}

int hold_new(struct hold **ret, const struct hold_setup *setup, struct err *err)
{
    struct hold *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(err, -ENOMEM, "out of memory");
    h->setup = *setup;
    int r = held_shape_make(&h->shape, setup->plan, setup->config, err);
    for (; !r && h->nbefore + 1 < setup->nfiles && h->nbefore < HOLD_FILES_MAX; h->nbefore++)
        open_before(h, setup->files[h->nbefore]);
    if (!r)
        r = held_memory_make(&h->now, setup->files[setup->nfiles - 1], &h->shape, setup->plan, setup->rank,
                             err);
    if (!r && setup->disk >= 0)
        r = hold_keep_new(
            &h->keep,
            &(struct hold_keep_setup){
                .fd = setup->disk, .job = setup->plan->submitted, .done = setup->kept, .owner = setup->owner},
            err);
    if (r)
        hold_free(h);
    else
        *ret = h;
    return r;
}

void hold_free(struct hold *h)
{
    if (!h)
        return;
    hold_keep_free(h->keep);
    held_memory_done(&h->now);
    for (size_t i = 0; i < h->nbefore; i++)
        held_memory_done(&h->before[i]);
    held_shape_done(&h->shape);
    free(h);
}
