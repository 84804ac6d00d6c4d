/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/rows_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_of_plan.h"
#include "engine/layer/layer.h"
#include "net/clock.h"

/* --- messages --------------------------------------------------------------------------------- */

static struct msg_key key_of(const struct rows_ring *r, enum msg_kind kind, uint32_t to, uint32_t mb)
{
    return (struct msg_key){r->round, (uint16_t)kind, (uint16_t)to, mb};
}

static bool is_last(const struct rows_ring *r)
{
    return r->place + 1 == job_plan_places(r->plan);
}

void rows_ring_place(struct rows_ring *r)
{
    const size_t places = job_plan_places(r->plan);
    r->place = plan_place_of(places, r->rank);
    r->slice = (uint32_t)job_plan_pipeline_of(r->plan, r->rank);
    r->prev = r->place   ? plan_rank_at(places, r->slice, r->place - 1)
              : r->slice ? 0
                         : plan_rank_at(places, 0, places - 1);
    r->next = is_last(r) ? 0 : plan_rank_at(places, r->slice, r->place + 1);
}

/* The first of a slice but rank 0's, which gets ids from there. */
static bool is_first(const struct rows_ring *r)
{
    return !r->place;
}

static size_t floats_of(const struct rows_ring *r, size_t rows)
{
    return rows * r->plan->dim * sizeof(float);
}

static int post(struct rows_ring *r, enum msg_kind kind, uint32_t mb, size_t size, bool variable,
                struct err *err)
{
    const struct msg_key key = key_of(r, kind, r->rank, mb);
    const int e = exchange_post(r->exchange, r->prev, &key, size, variable);
    return e ? err_set(err, e, "posting receive buffers: %s", strerror(-e)) : 0;
}

/* Of the previous rank; it is the caller's then. */
static void *await(struct rows_ring *r, enum msg_kind kind, uint32_t mb, size_t *ret_n, struct err *err)
{
    const struct msg_key key = key_of(r, kind, r->rank, mb);
    int e;
    while (!(e = exchange_ready(r->exchange, r->prev, &key))) {
        progress_set(r->progress, PROGRESS_WAITING_FOR, kind, mb, r->prev);
        exchange_wait(r->exchange);
    }
    if (e < 0) {
        err_set(err, e, "waiting for rank %u: %s", r->prev, strerror(-e));
        return NULL;
    }
    return exchange_take(r->exchange, r->prev, &key, ret_n);
}

static int send(struct rows_ring *r, enum msg_kind kind, uint32_t mb, void *buffer, size_t n, struct err *err)
{
    const struct msg_key key = key_of(r, kind, r->next, mb);
    const int e = exchange_send(r->exchange, r->next, &key, buffer, n);
    return e ? err_set(err, e, "sending a microbatch: %s", strerror(-e)) : 0;
}

static int queue(struct rows_ring *r, uint32_t to, enum msg_kind kind, uint32_t mb, void *buffer, size_t n,
                 struct err *err)
{
    const struct msg_key key = key_of(r, kind, to, mb);
    const int e = exchange_queue(r->exchange, to, &key, buffer, n);
    return e ? err_set(err, e, "sending a microbatch: %s", strerror(-e)) : 0;
}

static void *buffer_of(struct rows_ring *r, size_t n, struct err *err)
{
    void *buffer = exchange_buffer(r->exchange, n ? n : 1);
    if (!buffer)
        err_set(err, -ENOMEM, "out of memory for a message of %zu bytes", n);
    return buffer;
}

static int send_batch(struct rows_ring *r, uint32_t to, uint32_t mb, const struct rows_batch *batch,
                      struct err *err)
{
    const size_t n = rows_batch_size(batch, r->plan->vocab);
    uint8_t *buffer = buffer_of(r, n, err);
    if (!buffer)
        return -ENOMEM;
    rows_batch_encode(buffer, batch, r->plan->vocab);
    return queue(r, to, MSG_TARGET, mb, buffer, n, err);
}

static int send_ids(struct rows_ring *r, uint32_t to, uint32_t mb, const uint32_t *ids, size_t n,
                    struct err *err)
{
    uint32_t *buffer = buffer_of(r, n * sizeof *ids, err);
    if (!buffer)
        return -ENOMEM;
    memcpy(buffer, ids, n * sizeof *ids);
    return queue(r, to, MSG_ROWS, mb, buffer, n * sizeof *ids, err);
}

/* Rank 0: to its own pipeline, and to the first rank of each other slice, with ids unless it is the
 * end. */
static int send_to_all(struct rows_ring *r, uint32_t mb, const struct rows_batch *batch, const uint32_t *ids,
                       struct err *err)
{
    const size_t places = job_plan_places(r->plan);
    int e = is_last(r) ? 0 : send_batch(r, r->next, mb, batch, err);
    for (size_t d = 1; d < r->plan->slices && !e; d++) {
        const uint32_t to = plan_rank_at(places, d, 0);
        e = send_batch(r, to, mb, batch, err);
        if (!e && !batch->is_end)
            e = send_ids(r, to, mb, ids, batch->nrows, err);
    }
    return e;
}

/* --- computing -------------------------------------------------------------------------------- */

static int choose(struct rows_ring *r, const struct rows_batch *b, uint8_t **out, struct err *err)
{
    uint32_t rows[JOB_SERVED_MAX];
    const float *logits = NULL;
    const size_t vocab = r->plan->vocab;
    for (size_t i = 0; i < b->nchoices; i++)
        rows[i] = b->choices[i].row;
    int e = b->nchoices ? stage_rows_logits(r->stage, rows, b->nchoices, &logits, err) : 0;
    for (size_t i = 0; i < b->nchoices && !e && !r->slice; i++) {
        const struct rows_choice *c = &b->choices[i];
        struct rows_token *to = (struct rows_token *)(void *)*out;
        struct likely *likely = (struct likely *)(to + 1);
        to->token = sample_token(logits + i * vocab, vocab, &c->how, c->index, r->scratch);
        to->logprob = c->wants_logprob || c->top
                          ? stage_rows_logprob(r->stage, i, to->token, c->top ? likely : NULL, c->top)
                          : 0;
        *out = (uint8_t *)(likely + c->top);
    }
    return e;
}

/* As many rows at once as there is room for logits: a row's bits do not depend on the others. */
static int score(struct rows_ring *r, const struct rows_batch *b, uint8_t **out, struct err *err)
{
    uint32_t rows[JOB_SERVED_MAX];
    const float *logits = NULL;
    const size_t most = job_plan_logit_rows(r->plan);
    for (size_t at = 0, n; at < b->nscores; at += n) {
        n = b->nscores - at < most ? b->nscores - at : most;
        for (size_t i = 0; i < n; i++)
            rows[i] = b->scores[at + i].row;
        const int e = stage_rows_logits(r->stage, rows, n, &logits, err);
        for (size_t i = 0; i < n && !e && !r->slice; i++) {
            const struct rows_score *s = &b->scores[at + i];
            struct rows_token *to = (struct rows_token *)(void *)*out;
            struct likely *likely = (struct likely *)(to + 1);
            to->token = s->token;
            to->logprob = stage_rows_logprob(r->stage, i, s->token, s->top ? likely : NULL, s->top);
            *out = (uint8_t *)(likely + s->top);
        }
        if (e)
            return e;
    }
    return 0;
}

static int give_hidden(struct rows_ring *r, const struct rows_batch *b, uint8_t *out, struct err *err)
{
    uint32_t *rows = b->nhidden ? malloc(b->nhidden * sizeof *rows) : NULL;
    if (b->nhidden && !rows)
        return err_set(err, -ENOMEM, "out of memory for an embedding");
    for (uint32_t i = 0; i < b->nhidden; i++)
        rows[i] = b->first_hidden + i;
    int e = b->nhidden ? stage_rows_hidden(r->stage, rows, b->nhidden, (float *)(void *)out, err) : 0;
    free(rows);
    return e;
}

/* The last rank's answer, in a buffer of the exchange. Of slices the first answers, and the others
 * give it their part of the logits. */
static int answer(struct rows_ring *r, const struct rows_batch *b, struct rows_answer *ret, struct err *err)
{
    uint8_t *out = NULL;
    ret->n = r->slice ? 0 : rows_answer_size(b, r->plan->dim);
    if (!r->slice && !(ret->room = out = buffer_of(r, ret->n, err)))
        return -ENOMEM;
    int e = choose(r, b, &out, err);
    if (!e)
        e = score(r, b, &out, err);
    return e || r->slice ? e : give_hidden(r, b, out, err);
}

/* ids, or x of the rank before. On the last rank `ret` is the answer, else y goes on. */
static int compute(struct rows_ring *r, uint32_t mb, const struct rows_batch *b, const uint32_t *ids,
                   const float *x, struct rows_answer *ret, struct err *err)
{
    float *y = is_last(r) ? NULL : buffer_of(r, floats_of(r, b->nrows), err);
    if (!is_last(r) && !y)
        return -ENOMEM;
    exchange_kick(r->exchange);
    progress_set(r->progress, PROGRESS_COMPUTING, TASK_F, mb, 0);
    const struct instant start = clock_now();
    int e = stage_rows(r->stage, b->pieces, b->npieces, ids, x, y, err);
    if (!e)
        e = is_last(r) ? answer(r, b, ret, err) : send(r, MSG_ACT, mb, y, floats_of(r, b->nrows), err);
    atomic_fetch_add_explicit(&r->progress->busy_us, clock_since_us(clock_now(), start),
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&r->progress->tasks, 1, memory_order_relaxed);
    if (r->rounded)
        r->rounded(r->owner);
    return e;
}

/* --- rank 0 ----------------------------------------------------------------------------------- */

int rows_ring_send(struct rows_ring *r, uint32_t mb, const struct rows_batch *batch, const uint32_t *ids,
                   struct rows_answer *ret, struct err *err)
{
    const bool is_alone = is_last(r);
    int e = is_alone ? 0 : post(r, MSG_TOKEN, mb, rows_answer_size(batch, r->plan->dim) + 1, true, err);
    if (!e)
        e = send_to_all(r, mb, batch, ids, err);
    return e ? e : compute(r, mb, batch, ids, NULL, ret, err);
}

int rows_ring_answer(struct rows_ring *r, uint32_t mb, struct rows_answer *ret, struct err *err)
{
    const struct msg_key key = key_of(r, MSG_TOKEN, 0, mb);
    const int e = exchange_ready(r->exchange, r->prev, &key);
    if (e < 0)
        return err_set(err, e, "waiting for rank %u: %s", r->prev, strerror(-e));
    if (e)
        ret->room = exchange_take(r->exchange, r->prev, &key, &ret->n);
    return e;
}

void rows_ring_wait(struct rows_ring *r, uint32_t mb)
{
    progress_set(r->progress, PROGRESS_WAITING_FOR, MSG_TOKEN, mb, r->prev);
    exchange_wait(r->exchange);
}

int rows_ring_hear(struct rows_ring *r, uint32_t mb, struct rows_answer *ret, struct err *err)
{
    int e;
    while (!(e = rows_ring_answer(r, mb, ret, err)))
        rows_ring_wait(r, mb);
    return e < 0 ? e : 0;
}

int rows_ring_end(struct rows_ring *r, uint32_t mb, struct err *err)
{
    return send_to_all(r, mb, &(struct rows_batch){.is_end = true}, NULL, err);
}

const struct rows_token *rows_answer_token(const struct rows_answer *a, const struct rows_batch *batch,
                                           size_t i)
{
    const struct rows_token *token = a->room;
    for (size_t k = 0; k < i; k++)
        token = rows_token_next(token, batch->choices[k].top);
    return token;
}

const float *rows_answer_hidden(const struct rows_answer *a, const struct rows_batch *batch)
{
    const uint8_t *at = a->room;
    return (const float *)(const void *)(at + rows_answer_size(batch, 0));
}

void rows_ring_release(struct rows_ring *r, struct rows_answer *a)
{
    exchange_release(r->exchange, a->room);
    *a = (struct rows_answer){0};
}

/* --- other ranks ------------------------------------------------------------------------------ */

/* What it computes from: ids of rank 0, or what the rank before gives. */
static enum msg_kind kind_of(const struct rows_ring *r)
{
    return is_first(r) ? MSG_ROWS : MSG_ACT;
}

static size_t in_size(const struct rows_ring *r, size_t rows)
{
    return is_first(r) ? rows * sizeof(uint32_t) : floats_of(r, rows);
}

static int follow_one(struct rows_ring *r, uint32_t mb, const struct rows_batch *batch, struct err *err)
{
    size_t n;
    struct rows_answer told = {0};
    void *in = await(r, kind_of(r), mb, &n, err);
    if (!in)
        return -ECANCELED;
    int e = n == in_size(r, batch->nrows)
                ? compute(r, mb, batch, is_first(r) ? in : NULL, is_first(r) ? NULL : in, &told, err)
                : err_set(err, -EBADMSG, "rank %u sent %zu bytes of %s for %zu rows", r->prev, n,
                          is_first(r) ? "ids" : "activations", batch->nrows);
    exchange_release(r->exchange, in);
    return e || !is_last(r) || r->slice ? e : send(r, MSG_TOKEN, mb, told.room, told.n, err);
}

/* Buffers for what comes next stand before it is sent, so that no rank waits for another's word.
 */
static int post_next(struct rows_ring *r, uint32_t mb, struct err *err)
{
    int e = post(r, MSG_TARGET, mb, rows_batch_most(r->plan), true, err);
    return e ? e : post(r, kind_of(r), mb, in_size(r, r->plan->tokens), true, err);
}

int rows_ring_follow(struct rows_ring *r, struct err *err)
{
    int e = post_next(r, 1, err);
    for (uint32_t mb = 1; !e; mb++) {
        struct rows_batch batch = {0};
        size_t n;
        uint8_t *text = await(r, MSG_TARGET, mb, &n, err);
        e = text ? rows_batch_decode(&batch, text, n, r->plan, r->prev, err) : -ECANCELED;
        exchange_release(r->exchange, text);
        const bool is_end = batch.is_end;
        if (!e && !is_last(r))
            e = send_batch(r, r->next, mb, &batch, err);
        if (!e && !is_end)
            e = post_next(r, mb + 1, err);
        if (!e && !is_end)
            e = follow_one(r, mb, &batch, err);
        rows_batch_done(&batch);
        if (is_end)
            break;
    }
    return e;
}
