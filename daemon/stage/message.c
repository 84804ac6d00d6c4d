/* SPDX-License-Identifier: MIT
 *
 * Owns what is handed over between two stages of this rank; all other buffers are the exchange's or
 * the caller's. */
#include "daemon/stage/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/hold/line_feed.h"
#include "engine/layer/layer.h"
#include "engine/num/zero_blocks.h"

/* --- sizes ------------------------------------------------------------------------------------ */

static size_t tokens_of(const struct messages *m, uint32_t mb)
{
    const struct seqs *s = &m->go->mb[mb];
    return s->start[s->n];
}

size_t message_step_microbatches(const struct messages *m)
{
    return m->go->program == PROGRAM_TRAIN ? m->plan->microbatches : m->go->microbatches;
}

static size_t first_of(const struct messages *m, size_t replica)
{
    return job_plan_first_microbatch(m->plan, replica, message_step_microbatches(m));
}

bool message_is_of(const struct messages *m, size_t mb, size_t replica)
{
    const size_t at = mb % message_step_microbatches(m);
    if (m->go->program == PROGRAM_DECODE)
        return replica == 0;
    return at >= first_of(m, replica) && at < first_of(m, replica + 1);
}

struct param_share message_part(const struct messages *m, enum unit_shared what, uint32_t stage,
                                uint32_t part)
{
    const size_t parts = m->plan->parts[stage], slices = m->plan->divided ? job_plan_replicas(m->plan) : 1,
                 slice = part % parts % slices, of = parts / slices, k = part % parts / slices,
                 values =
                     stage_shared_values(m->stages[stage], what, m->go->steps[part / parts].adapter, slice);
    const size_t at = values * k / of;
    return (struct param_share){slice, at, values * (k + 1) / of - at};
}

static size_t nodes_of(const struct job_plan *p, size_t replica)
{
    struct sum_node nodes[SUM_TREE_NODES];
    return sum_tree_roots(nodes, job_plan_groups(p), job_plan_first_group(p, replica),
                          job_plan_first_group(p, replica + 1));
}

static size_t rows_size(const struct messages *m, size_t pipeline)
{
    const size_t replica = pipeline / job_plan_slices(m->plan);
    size_t tokens = 0;
    for (size_t mb = 0; mb < m->go->microbatches; mb++)
        if (message_is_of(m, mb, replica))
            tokens += tokens_of(m, (uint32_t)mb);
    return tokens * (sizeof(uint32_t) + (m->go->program == PROGRAM_DECODE ? 0 : sizeof(int32_t)));
}

size_t message_answers(const struct messages *m, size_t mb)
{
    return m->plan->loss == LOSS_NLL ? 0 : m->go->mb[mb].n;
}

static size_t losses_size(const struct messages *m, size_t step, size_t replica)
{
    const size_t own = message_step_microbatches(m), first = step * own;
    size_t values = 0;
    for (size_t mb = first; mb < first + own; mb++)
        if (message_is_of(m, mb, replica))
            values += 1 + message_answers(m, mb);
    return sizeof(struct losses_message) + values * sizeof(double);
}

/* A small stage may have nothing in a part: no message is empty. */
static size_t of_part(const struct messages *m, enum unit_shared what, const struct msg_key *key)
{
    const size_t n = message_part(m, what, key->stage, key->mb).n;
    return (n ? n : 1) * sizeof(float);
}

/* Gradients, which travel without their zeros. */
static size_t sums_of(const struct messages *m, const struct msg_key *key, uint32_t from)
{
    return message_part(m, UNIT_GRADS, key->stage, key->mb).n *
           (key->kind == MSG_PART ? nodes_of(m->plan, job_plan_replica_of(m->plan, from)) : 1);
}

static bool is_sums(enum msg_kind kind)
{
    return kind == MSG_PART || kind == MSG_SUM;
}

static size_t squares_size(const struct messages *m, uint32_t stage, size_t replica)
{
    const size_t n = stage_squares_count(m->stages[stage], replica);
    return (n ? n : 1) * sizeof(double);
}

size_t message_size(const struct messages *m, const struct msg_key *key, uint32_t from)
{
    const size_t replica = job_plan_replica_of(m->plan, from);
    switch ((enum msg_kind)key->kind) {
    case MSG_ACT:
    case MSG_GRAD: return tokens_of(m, key->mb) * m->plan->dim * sizeof(float);
    case MSG_TARGET: return tokens_of(m, key->mb) * sizeof(int32_t);
    case MSG_LOSS: return (1 + message_answers(m, key->mb)) * sizeof(double);
    case MSG_TOKEN:
        return sizeof(uint32_t) + (m->go->logprobs ? sizeof(float) : 0) + m->go->top * sizeof(struct likely);
    case MSG_NORM: return sizeof(struct norm_message);
    case MSG_SCALE: return sizeof(struct scale_message);
    case MSG_TIED_GRAD: return (m->tied_grad ? m->tied_grad : 1) * sizeof(float);
    case MSG_TIED_WEIGHT: return m->tied_elements * sizeof(float);
    case MSG_PARAM: return m->pieces->piece[key->mb].n * sizeof(float);
    case MSG_GO:
        return go_max_size(m->plan->round_steps * m->plan->microbatches, m->plan->seqs, m->plan->round_steps,
                           m->plan->first[m->plan->stages] + 2, m->plan->kv ? GO_ADJUST_MAX : 0,
                           line_feed_room(m->plan));
    case MSG_ROWS: return rows_size(m, key->mb);
    case MSG_LOSSES: return losses_size(m, key->mb, replica);
    case MSG_PART:
    case MSG_SUM: return zero_blocks_bytes(sums_of(m, key, from));
    case MSG_SQUARES: return squares_size(m, key->stage, replica);
    case MSG_VALUES: return of_part(m, UNIT_VALUES, key);
    case MSG_HELD:  /* not in plans: stage_hold.c knows it, */
    case MSG_SLICE: /* and slice_lanes.c this one */
    case MSG_COUNT: break;
    }
    return 0;
}

/* --- posting: the next `credits` messages of each link, in the order my tasks will want them -- */

static int post_more(struct messages *m, uint32_t from)
{
    struct message_cursor *c = &m->cursor[from];
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
        int e = exchange_post(m->exchange, from, &key, message_size(m, &key, from),
                              is_sums((enum msg_kind)key.kind));
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
    int e = 0;
    for (size_t i = 0; i < tasks->nin && !e; i++)
        e = post_more(m, tasks->in[i].from);
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

static void *take(struct messages *m, const struct task_need *need, size_t *ret_size)
{
    void *buffer = exchange_take(m->exchange, need->from, &need->key, ret_size);
    struct message_cursor *c = &m->cursor[need->from];
    const size_t left = --c->posted;
    int e = post_more(m, need->from);
    if (c->posted > left)
        exchange_kick(m->exchange);
    if (!e)
        return buffer;
    exchange_release(m->exchange, buffer);
    return NULL;
}

void *message_take(struct messages *m, const struct task *t, enum msg_kind kind)
{
    const struct task_need *need = message_need(t, kind);
    size_t size;
    return need ? take(m, need, &size) : NULL;
}

int message_take_sums(struct messages *m, const struct task *t, enum msg_kind kind, float **ret,
                      struct err *err)
{
    const struct task_need *need = message_need(t, kind);
    size_t size;
    float *sums = take(m, need, &size);
    if (!sums)
        return err_set(err, -ENOMEM, "out of memory for a message");
    if (!zero_blocks_unpack(sums, sums_of(m, &need->key, need->from), size)) {
        exchange_release(m->exchange, sums);
        return err_set(err, -EBADMSG,
                       "rank %u sent %zu bytes, which are no gradients: install the same ringd on all nodes",
                       need->from, size);
    }
    *ret = sums;
    return 0;
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
    return e ? exchange_buffer(m->exchange, message_size(m, &e->key, m->rank)) : NULL;
}

static int send_bytes(struct messages *m, const struct task *t, const struct task_emit *e, void *buffer,
                      size_t size, struct err *err)
{
    trace_emit(m->trace, (size_t)(e - t->emits), size, clock_now());
    int failed = exchange_send(m->exchange, e->to, &e->key, buffer, size);
    return failed ? err_set(err, failed, "sending to rank %u: %s", e->to, strerror(-failed)) : 0;
}

static int no_memory(const struct task_emit *e, struct err *err)
{
    return err_set(err, -ENOMEM, "out of memory for a message to rank %u", e->to);
}

int message_send(struct messages *m, const struct task *t, enum msg_kind kind, void *buffer, struct err *err)
{
    const struct task_emit *e = message_emit(t, kind);
    if (!e)
        return 0;
    return buffer ? send_bytes(m, t, e, buffer, message_size(m, &e->key, m->rank), err) : no_memory(e, err);
}

int message_send_sums(struct messages *m, const struct task *t, enum msg_kind kind, float *sums,
                      struct err *err)
{
    const struct task_emit *e = message_emit(t, kind);
    if (!sums)
        return no_memory(e, err);
    return send_bytes(m, t, e, sums, zero_blocks_pack(sums, sums_of(m, &e->key, m->rank)), err);
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
    return t->to_here ? exchange_buffer(m->exchange, message_size(m, &key, m->rank))
                      : message_output(m, t, kind);
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
