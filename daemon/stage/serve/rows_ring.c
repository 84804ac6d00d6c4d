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
    return r->rank + 1 == r->plan->ranks;
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

static int send(struct rows_ring *r, enum msg_kind kind, uint32_t mb, void *buffer, size_t n, bool at_once,
                struct err *err)
{
    const struct msg_key key = key_of(r, kind, r->next, mb);
    const int e = at_once ? exchange_send(r->exchange, r->next, &key, buffer, n)
                          : exchange_queue(r->exchange, r->next, &key, buffer, n);
    return e ? err_set(err, e, "sending a microbatch: %s", strerror(-e)) : 0;
}

static void *buffer_of(struct rows_ring *r, size_t n, struct err *err)
{
    void *buffer = exchange_buffer(r->exchange, n ? n : 1);
    if (!buffer)
        err_set(err, -ENOMEM, "out of memory for a message of %zu bytes", n);
    return buffer;
}

static int send_batch(struct rows_ring *r, uint32_t mb, const struct rows_batch *batch, struct err *err)
{
    const size_t n = rows_batch_size(batch, r->plan->vocab);
    uint8_t *buffer = buffer_of(r, n, err);
    if (!buffer)
        return -ENOMEM;
    rows_batch_encode(buffer, batch, r->plan->vocab);
    return send(r, MSG_TARGET, mb, buffer, n, false, err);
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
    for (size_t i = 0; i < b->nchoices && !e; i++) {
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
        for (size_t i = 0; i < n && !e; i++) {
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

/* The last rank's answer, in a buffer of the exchange. */
static int answer(struct rows_ring *r, const struct rows_batch *b, struct rows_answer *ret, struct err *err)
{
    ret->n = rows_answer_size(b, r->plan->dim);
    uint8_t *out = ret->room = buffer_of(r, ret->n, err);
    int e = out ? choose(r, b, &out, err) : -ENOMEM;
    if (!e)
        e = score(r, b, &out, err);
    return e ? e : give_hidden(r, b, out, err);
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
        e = is_last(r) ? answer(r, b, ret, err) : send(r, MSG_ACT, mb, y, floats_of(r, b->nrows), true, err);
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
    if (!e && !is_alone)
        e = send_batch(r, mb, batch, err);
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

int rows_ring_end(struct rows_ring *r, uint32_t mb, struct err *err)
{
    return is_last(r) ? 0 : send_batch(r, mb, &(struct rows_batch){.is_end = true}, err);
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

static int follow_one(struct rows_ring *r, uint32_t mb, const struct rows_batch *batch, struct err *err)
{
    size_t n;
    struct rows_answer told = {0};
    float *x = await(r, MSG_ACT, mb, &n, err);
    if (!x)
        return -ECANCELED;
    int e = n == floats_of(r, batch->nrows)
                ? compute(r, mb, batch, NULL, x, &told, err)
                : err_set(err, -EBADMSG, "rank %u sent %zu bytes of activations for %zu rows", r->prev, n,
                          batch->nrows);
    exchange_release(r->exchange, x);
    return e || !is_last(r) ? e : send(r, MSG_TOKEN, mb, told.room, told.n, true, err);
}

/* Buffers for what comes next stand before it is sent, so that no rank waits for another's word.
 */
static int post_next(struct rows_ring *r, uint32_t mb, struct err *err)
{
    int e = post(r, MSG_TARGET, mb, rows_batch_most(r->plan), true, err);
    return e ? e : post(r, MSG_ACT, mb, floats_of(r, r->plan->tokens), true, err);
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
            e = send_batch(r, mb, &batch, err);
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
