/* SPDX-License-Identifier: MIT
 *
 * Owns what is handed over between two stages of this rank; all other buffers are the exchange's or
 * the caller's. */
#include "daemon/stage/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/layer/layer.h"

/* --- sizes ------------------------------------------------------------------------------------ */

static size_t tokens_of(const struct messages *m, uint32_t mb)
{
    const struct seqs *s = &m->go->mb[mb];
    return s->start[s->n];
}

size_t message_size(const struct messages *m, const struct msg_key *key)
{
    switch ((enum msg_kind)key->kind) {
    case MSG_ACT:
    case MSG_GRAD: return tokens_of(m, key->mb) * m->plan->dim * sizeof(float);
    case MSG_TARGET: return tokens_of(m, key->mb) * sizeof(int32_t);
    case MSG_LOSS: return sizeof(double);
    case MSG_TOKEN:
        return sizeof(uint32_t) + (m->go->logprobs ? sizeof(float) : 0) + m->go->top * sizeof(struct likely);
    case MSG_NORM: return sizeof(struct norm_message);
    case MSG_SCALE: return sizeof(struct scale_message);
    case MSG_TIED_GRAD:
    case MSG_TIED_WEIGHT: return m->tied_elements * sizeof(float);
    case MSG_PARAM: return m->pieces->piece[key->mb].n * sizeof(float);
    case MSG_GO:
        return go_max_size(m->plan->round_steps * m->plan->microbatches, m->plan->seqs, m->plan->round_steps,
                           m->plan->first[m->plan->stages] + 2, m->plan->kv ? GO_ADJUST_MAX : 0);
    case MSG_HELD: /* not in plans: stage_hold.c knows it */
    case MSG_COUNT: break;
    }
    return 0;
}

/* --- posting: the next `credits` messages of each link, in the order my tasks will want them -- */

static struct message_cursor *cursor_of(struct messages *m, uint32_t from)
{
    return &m->cursor[from == m->prev ? 0 : 1];
}

static int post_more(struct messages *m, uint32_t from)
{
    struct message_cursor *c = cursor_of(m, from);
    while (c->posted < m->tasks->credits_fast && c->task < m->tasks->n) {
        const struct task *t = &m->tasks->tasks[c->task];
        if (c->need >= t->nneeds) {
            c->task++;
            c->need = 0;
            continue;
        }
        const struct task_need *need = &t->needs[c->need++];
        if (need->from != from)
            continue;
        struct msg_key key = need->key;
        key.round = m->round;
        int e = exchange_post(m->exchange, from, &key, message_size(m, &key), false);
        if (e)
            return e;
        c->posted++;
    }
    return 0;
}

int messages_begin(struct messages *m, const struct go *go, const struct plan_rank *tasks, uint32_t round)
{
    m->go = go;
    m->tasks = tasks;
    m->round = round;
    memset(m->cursor, 0, sizeof m->cursor);
    int e = m->plan->ranks > 1 ? post_more(m, m->prev) : 0;
    if (!e && m->plan->ranks > 2)
        e = post_more(m, m->next);
    return e;
}

void messages_done(struct messages *m)
{
    for (size_t i = 0; i < m->nhanded; i++)
        exchange_release(m->exchange, m->handed[i].buffer);
    free(m->handed);
}

/* --- needs and emits by kind: a task has at most three of each -------------------------------- */

const struct task_need *message_need(const struct task *t, enum msg_kind kind)
{
    for (uint32_t i = 0; i < t->nneeds; i++)
        if (t->needs[i].key.kind == kind)
            return &t->needs[i];
    return NULL;
}

const struct task_emit *message_emit(const struct task *t, enum msg_kind kind)
{
    for (uint32_t i = 0; i < t->nemits; i++)
        if (t->emits[i].key.kind == kind)
            return &t->emits[i];
    return NULL;
}

void *message_take(struct messages *m, const struct task *t, enum msg_kind kind)
{
    const struct task_need *need = message_need(t, kind);
    if (!need)
        return NULL;
    size_t size;
    void *buffer = exchange_take(m->exchange, need->from, &need->key, &size);
    struct message_cursor *c = cursor_of(m, need->from);
    const size_t left = --c->posted;
    int e = post_more(m, need->from);
    if (c->posted > left)
        exchange_kick(m->exchange);
    if (!e)
        return buffer;
    exchange_release(m->exchange, buffer);
    return NULL;
}

int message_take_copy(struct messages *m, const struct task *t, enum msg_kind kind, void *to, size_t n,
                      struct err *err)
{
    void *message = message_take(m, t, kind);
    if (!message)
        return message_need(t, kind) ? err_set(err, -ENOMEM, "out of memory for a message") : 0;
    memcpy(to, message, n);
    exchange_release(m->exchange, message);
    return 0;
}

void *message_output(struct messages *m, const struct task *t, enum msg_kind kind)
{
    const struct task_emit *e = message_emit(t, kind);
    return e ? exchange_buffer(m->exchange, message_size(m, &e->key)) : NULL;
}

int message_send(struct messages *m, const struct task *t, enum msg_kind kind, void *buffer, struct err *err)
{
    const struct task_emit *e = message_emit(t, kind);
    if (!e)
        return 0;
    if (!buffer)
        return err_set(err, -ENOMEM, "out of memory for a message to rank %u", e->to);
    size_t size = message_size(m, &e->key);
    trace_emit(m->trace, (size_t)(e - t->emits), size, clock_now());
    int failed = exchange_send(m->exchange, e->to, &e->key, buffer, size);
    return failed ? err_set(err, failed, "sending to rank %u: %s", e->to, strerror(-failed)) : 0;
}

int message_send_copy(struct messages *m, const struct task *t, enum msg_kind kind, const void *data,
                      size_t n, struct err *err)
{
    void *buffer = message_output(m, t, kind);
    if (buffer)
        memcpy(buffer, data, n);
    return message_send(m, t, kind, buffer, err);
}

/* --- between two stages of this rank ---------------------------------------------------------- */

static int hand_over(struct messages *m, const struct message_handed *what, struct err *err)
{
    if (m->nhanded == m->handed_cap) {
        size_t cap = 2 * m->handed_cap + 4;
        struct message_handed *grown = reallocarray(m->handed, cap, sizeof *grown);
        if (!grown) {
            exchange_release(m->exchange, what->buffer);
            return err_set(err, -ENOMEM, "out of memory");
        }
        m->handed = grown;
        m->handed_cap = cap;
    }
    m->handed[m->nhanded++] = *what;
    return 0;
}

static void *take_handed(struct messages *m, enum msg_kind kind, const struct task *t)
{
    for (size_t i = 0; i < m->nhanded; i++) {
        struct message_handed one = m->handed[i];
        if (one.kind != kind || one.stage != t->stage || one.mb != t->mb)
            continue;
        m->handed[i] = m->handed[--m->nhanded];
        return one.buffer;
    }
    return NULL;
}

float *message_take_floats(struct messages *m, const struct task *t, enum msg_kind kind)
{
    return t->from_here ? take_handed(m, kind, t) : message_take(m, t, kind);
}

float *message_output_floats(struct messages *m, const struct task *t, enum msg_kind kind)
{
    const struct msg_key key = {.kind = (uint16_t)kind, .mb = t->mb};
    return t->to_here ? exchange_buffer(m->exchange, message_size(m, &key)) : message_output(m, t, kind);
}

int message_send_floats(struct messages *m, const struct task *t, enum msg_kind kind, float *buffer,
                        struct err *err)
{
    if (!t->to_here)
        return message_send(m, t, kind, buffer, err);
    if (!buffer)
        return err_set(err, -ENOMEM, "out of memory for the output of stage %u", t->stage);
    uint32_t to = kind == MSG_ACT ? t->stage + 1 : t->stage - 1;
    return hand_over(m, &(struct message_handed){kind, to, t->mb, buffer}, err);
}
