/* SPDX-License-Identifier: MIT */
#include "daemon/stage/task/replica_task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan_admit.h"

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "out of memory for a message");
}

bool replica_is_first_rank(const struct rank_state *r)
{
    return job_plan_place_of(r->plan, r->rank) == 0;
}

/* --- what it holds ---------------------------------------------------------------------------- */

static void release_shares(struct rank_state *r)
{
    struct replica_state *own = &r->replica;
    for (size_t d = 0; d < PLAN_MAX_REPLICAS; d++) {
        if (own->shares[d])
            exchange_release(r->messages.exchange, own->shares[d]);
        own->shares[d] = NULL;
    }
    own->nshares = own->ngiven = 0;
    own->sum = NULL;
}

static void release_squares(struct rank_state *r)
{
    for (size_t d = 0; d < PLAN_MAX_REPLICAS; d++) {
        if (r->replica.squares[d])
            exchange_release(r->messages.exchange, r->replica.squares[d]);
        r->replica.squares[d] = NULL;
    }
}

static void release_rows(struct rank_state *r)
{
    if (r->replica.rows)
        exchange_release(r->messages.exchange, r->replica.rows);
    r->replica.rows = NULL;
}

int replica_state_init(struct rank_state *r, struct err *err)
{
    const struct job_plan *p = r->plan;
    struct head_round *round = &r->replica.round;
    if (job_plan_pipeline_of(p, r->rank) == 0 || !replica_is_first_rank(r))
        return 0;
    round->mb = calloc(p->round_steps * p->microbatches, sizeof *round->mb);
    round->steps = calloc(p->round_steps, sizeof *round->steps);
    r->replica.logp = calloc(p->round_steps * p->microbatches, p->seqs * sizeof *r->replica.logp);
    if (!round->mb || !round->steps || !r->replica.logp)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t mb = 0; mb < p->round_steps * p->microbatches; mb++)
        round->mb[mb].logp = r->replica.logp + mb * p->seqs;
    return 0;
}

void replica_state_done(struct rank_state *r)
{
    release_shares(r);
    release_squares(r);
    release_rows(r);
    free(r->replica.round.mb);
    free(r->replica.round.steps);
    free(r->replica.logp);
}

void replica_state_begin(struct rank_state *r)
{
    if (r->replica.round.mb)
        r->head = &r->replica.round;
}

/* --- rows ------------------------------------------------------------------------------------- */

static size_t tokens_of(const struct rank_state *r, size_t mb)
{
    return r->go->mb[mb].start[r->go->mb[mb].n];
}

/* Ids, and where there are losses, labels. */
static int kinds_of_rows(const struct rank_state *r)
{
    return r->go->program == PROGRAM_DECODE ? 1 : 2;
}

/* All ids, then all labels. */
static int give_rows(struct rank_state *r, const struct task *t, struct err *err)
{
    const size_t replica = t->mb / job_plan_slices(r->plan);
    uint32_t *ids = message_output(&r->messages, t, MSG_ROWS), *at = ids;
    if (!ids)
        return no_memory(err);
    for (int labels = 0; labels < kinds_of_rows(r); labels++)
        for (size_t mb = 0; mb < r->go->microbatches; mb++) {
            const struct head_mb *from = &r->head->mb[mb];
            if (!message_is_of(&r->messages, mb, replica))
                continue;
            memcpy(at, labels ? (const void *)from->labels : from->ids, tokens_of(r, mb) * sizeof *at);
            at += tokens_of(r, mb);
        }
    return message_send(&r->messages, t, MSG_ROWS, ids, err);
}

static int take_rows(struct rank_state *r, const struct task *t, struct err *err)
{
    const size_t replica = t->mb / job_plan_slices(r->plan);
    const uint32_t *at = message_take(&r->messages, t, MSG_ROWS);
    if (!at)
        return no_memory(err);
    release_rows(r);
    r->replica.rows = (void *)at;
    int e = 0;
    for (int labels = 0; labels < kinds_of_rows(r); labels++)
        for (size_t mb = 0; mb < r->go->microbatches && !e; mb++) {
            struct head_mb *to = &r->head->mb[mb];
            if (!message_is_of(&r->messages, mb, replica))
                continue;
            if (labels) {
                to->labels = (const int32_t *)at;
                e = plan_admit_labels(r->plan, to->labels, tokens_of(r, mb), (uint32_t)mb, 0, err);
            } else {
                to->ids = at;
            }
            at += tokens_of(r, mb);
        }
    return e;
}

int task_rows(struct rank_state *r, const struct task *t, struct err *err)
{
    return t->nemits ? give_rows(r, t, err) : take_rows(r, t, err);
}

/* --- gradients -------------------------------------------------------------------------------- */

static struct grad_share share_of(const struct rank_state *r, size_t replica)
{
    return (struct grad_share){job_plan_first_group(r->plan, replica),
                               job_plan_first_group(r->plan, replica + 1), r->replica.shares[replica]};
}

/* What this replica has of a part, as it would send it. */
static float *pack(struct rank_state *r, const struct task *t)
{
    const struct param_share part = message_part(&r->messages, UNIT_GRADS, t->stage, t->mb);
    const struct msg_key key = {.kind = MSG_PART, .stage = (uint16_t)t->stage, .mb = t->mb};
    float *sums = exchange_buffer(r->messages.exchange, message_size(&r->messages, &key, r->rank));
    if (sums)
        stage_pack_grads(r->stages[t->stage], &part, sums);
    return sums;
}

/* All shares of it are here. */
static int join(struct rank_state *r, const struct task *t, struct err *err)
{
    const struct param_share part = message_part(&r->messages, UNIT_GRADS, t->stage, t->mb);
    const size_t replicas = job_plan_replicas(r->plan), self = job_plan_replica_of(r->plan, r->rank);
    struct grad_share shares[PLAN_MAX_REPLICAS];
    r->replica.shares[self] = pack(r, t);
    if (!r->replica.shares[self])
        return no_memory(err);
    for (size_t d = 0; d < replicas; d++)
        shares[d] = share_of(r, d);
    r->replica.sum = stage_join_grads(r->stages[t->stage], &part, shares, replicas);
    if (r->plan->divided) /* nobody wants the sum */
        release_shares(r);
    return 0;
}

/* A sum that another replica has made, or values that it has updated. */
static void put_in_place(struct rank_state *r, const struct task *t, enum unit_shared what, float *message)
{
    const struct param_share part = message_part(&r->messages, what, t->stage, t->mb);
    if (what == UNIT_VALUES)
        stage_unpack_values(r->stages[t->stage], &part, message);
    else
        stage_unpack_grads(r->stages[t->stage], &part, message);
    exchange_release(r->messages.exchange, message);
}

static int take_values(struct rank_state *r, const struct task *t, struct err *err)
{
    float *message = message_take(&r->messages, t, MSG_VALUES);
    if (!message)
        return no_memory(err);
    put_in_place(r, t, UNIT_VALUES, message);
    return 0;
}

int task_take(struct rank_state *r, const struct task *t, struct err *err)
{
    if (message_need(t, MSG_VALUES))
        return take_values(r, t, err);
    float *message;
    const int e = message_take_sums(&r->messages, t, (enum msg_kind)t->needs[0].key.kind, &message, err);
    if (e)
        return e;
    if (!message_need(t, MSG_PART)) {
        put_in_place(r, t, UNIT_GRADS, message);
        return 0;
    }
    r->replica.shares[job_plan_replica_of(r->plan, t->needs[0].from)] = message;
    return ++r->replica.nshares + 1 == job_plan_replicas(r->plan) ? join(r, t, err) : 0;
}

static int give_values(struct rank_state *r, const struct task *t, struct err *err)
{
    const struct param_share part = message_part(&r->messages, UNIT_VALUES, t->stage, t->mb);
    float *values = message_output(&r->messages, t, MSG_VALUES);
    if (values)
        stage_pack_values(r->stages[t->stage], &part, values);
    return message_send(&r->messages, t, MSG_VALUES, values, err);
}

int task_give(struct rank_state *r, const struct task *t, struct err *err)
{
    if (message_emit(t, MSG_PART))
        return message_send_sums(&r->messages, t, MSG_PART, pack(r, t), err);
    if (message_emit(t, MSG_VALUES))
        return give_values(r, t, err);
    const struct param_share part = message_part(&r->messages, UNIT_GRADS, t->stage, t->mb);
    float *sum = message_output(&r->messages, t, MSG_SUM);
    if (sum)
        memcpy(sum, r->replica.sum, part.n * sizeof *sum);
    const int e = message_send_sums(&r->messages, t, MSG_SUM, sum, err);
    if (++r->replica.ngiven + 1 == job_plan_replicas(r->plan))
        release_shares(r);
    return e;
}

/* --- the norm --------------------------------------------------------------------------------- */

int task_squares(struct rank_state *r, const struct task *t, struct err *err)
{
    double *squares = message_take(&r->messages, t, MSG_SQUARES);
    r->replica.squares[job_plan_replica_of(r->plan, t->needs[0].from)] = squares;
    return squares ? 0 : no_memory(err);
}

/* The others only hand on their squares: their sums are nowhere needed. */
static int sum_squares(struct rank_state *r, const struct task *t, double *partial, size_t *ret_unit)
{
    struct stage *stage = r->stages[t->stage];
    double **all = r->replica.squares, *own = calloc(stage_squares_count(stage, 0) + 1, sizeof *own);
    const double *squares[PLAN_MAX_REPLICAS];
    if (!own)
        return -ENOMEM;
    stage_squares(stage, own);
    squares[0] = own;
    for (size_t d = 1; d < PLAN_MAX_REPLICAS; d++)
        squares[d] = all[d];
    *partial = stage_sum_squares(stage, *partial, squares, ret_unit);
    free(own);
    release_squares(r);
    return 0;
}

int replica_norm(struct rank_state *r, const struct task *t, double *partial, size_t *ret_unit,
                 struct err *err)
{
    *ret_unit = STAGE_NO_UNIT;
    if (!r->plan->divided) {
        *partial = stage_sumsq(r->stages[t->stage], *partial, ret_unit);
        return 0;
    }
    if (job_plan_replica_of(r->plan, r->rank) == 0)
        return sum_squares(r, t, partial, ret_unit) ? no_memory(err) : 0;
    double *squares = message_output(&r->messages, t, MSG_SQUARES);
    if (squares)
        stage_squares(r->stages[t->stage], squares);
    return message_send(&r->messages, t, MSG_SQUARES, squares, err);
}

/* --- losses ----------------------------------------------------------------------------------- */

int replica_say_losses(struct rank_state *r, const struct task *t, const struct norm_message *sum,
                       struct err *err)
{
    struct losses_message *m = message_output(&r->messages, t, MSG_LOSSES);
    size_t n = 0;
    if (!message_emit(t, MSG_LOSSES))
        return 0;
    if (!m)
        return no_memory(err);
    *m = (struct losses_message){.busy = sum->busy, .bad = sum->bad};
    const size_t own = message_step_microbatches(&r->messages), first = t->mb * own;
    for (size_t mb = first; mb < first + own; mb++)
        if (message_is_of(&r->messages, mb, job_plan_replica_of(r->plan, r->rank))) {
            m->values[n++] = r->head->mb[mb].loss;
            for (size_t i = 0; i < message_answers(&r->messages, mb); i++)
                m->values[n++] = r->head->mb[mb].logp[i];
        }
    return message_send(&r->messages, t, MSG_LOSSES, m, err);
}

int task_done(struct rank_state *r, const struct task *t, struct err *err)
{
    if (t->nemits) /* losses alone */
        return replica_say_losses(r, t, &(struct norm_message){0}, err);
    struct losses_message *m = message_take(&r->messages, t, MSG_LOSSES);
    const size_t from = job_plan_replica_of(r->plan, t->needs[0].from);
    size_t n = 0;
    if (!m)
        return no_memory(err);
    r->busy += m->busy;
    if (bad_value_is_before(&m->bad, &r->bad[t->mb]))
        r->bad[t->mb] = m->bad;
    const size_t own = message_step_microbatches(&r->messages), first = t->mb * own;
    for (size_t mb = first; mb < first + own; mb++)
        if (message_is_of(&r->messages, mb, from)) {
            r->head->mb[mb].loss = m->values[n++];
            for (size_t i = 0; i < message_answers(&r->messages, mb); i++)
                r->head->mb[mb].logp[i] = m->values[n++];
        }
    exchange_release(r->messages.exchange, m);
    return 0;
}
