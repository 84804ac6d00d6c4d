/* SPDX-License-Identifier: MIT
 *
 * What each task of a plan does on this rank: takes the messages it needs, calls the stage, sends
 * the messages it emits. */
#include "daemon/stage/task/stage_task.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/stage/plan_admit.h"
#include "daemon/stage/task/replica_task.h"

/* --- where a task stands ------------------------------------------------------------------- */

/* Of a pipeline but the first, its first rank stands in for rank 0. */
static bool is_head(const struct rank_state *r)
{
    return replica_is_first_rank(r);
}

static bool is_last(const struct rank_state *r, const struct task *t)
{
    return t->stage + 1 == r->plan->stages;
}

static struct stage *stage_of(const struct rank_state *r, const struct task *t)
{
    return r->stages[t->stage];
}

/* Which of the round's steps a task of a round that trains belongs to. */
static uint32_t number_of(const struct rank_state *r, const struct task *t)
{
    switch (t->kind) {
    case TASK_ROWS: return 0; /* of all */
    case TASK_NORM:
    case TASK_UPDATE:
    case TASK_DONE:
    case TASK_TELL:
    case TASK_SQUARES:
    case TASK_TIED: return t->mb;
    case TASK_GIVE:
    case TASK_TAKE: return t->mb / (uint32_t)r->plan->parts[t->stage];
    default: return plan_step(r->tasks, t->mb);
    }
}

static const struct go_step *step_of(const struct rank_state *r, const struct task *t)
{
    return &r->go->steps[number_of(r, t)];
}

/* "step 3", of several adapters "step 3 of adapter 1" */
static const char *step_name(char *buf, size_t n, const struct rank_state *r, const struct task *t)
{
    const struct go_step *step = r->go->program == PROGRAM_TRAIN ? step_of(r, t) : NULL;
    const uint32_t adapter = step ? step->adapter : r->go->adapter;
    const int used = snprintf(buf, n, "step %llu", (unsigned long long)(step ? step->step : r->go->step));
    if (r->plan->nmore && adapter != GO_NO_ADAPTER)
        snprintf(buf + used, n - (size_t)used, " of adapter %u", adapter + 1);
    return buf;
}

/* --- forward ---------------------------------------------------------------------------------- */

static uint64_t dropout_number(const struct rank_state *r, const struct task *t)
{
    const struct plan *plan = r->tasks;
    return r->go->program == PROGRAM_TRAIN
               ? step_of(r, t)->step * 65536 + t->mb % (plan->microbatches / plan->steps)
               : 0;
}

static size_t group_of(const struct rank_state *r, const struct task *t)
{
    const size_t m = r->tasks->microbatches / r->tasks->steps;
    return plan_group(t->mb % m, m, r->tasks->groups);
}

/* Buffers change hands in training jobs alone; their other programs take one microbatch at a time,
 * in slot 0 and buffers 0. */
static void use_activations(const struct rank_state *r, const struct task *t, size_t slot)
{
    if (r->plan->bwd_x_only[t->stage])
        stage_use_activations(stage_of(r, t), slot, t->activations, t->bwd_x_only);
}

static int put_input(struct rank_state *r, const struct task *t, size_t slot, struct err *err)
{
    struct stage *stage = stage_of(r, t);
    use_activations(r, t, slot);
    int e = stage_begin(stage, slot, r->go->mb[t->mb], dropout_number(r, t), err);
    if (e)
        return e;
    if (r->go->program == PROGRAM_TRAIN)
        stage_use_group(stage, slot, group_of(r, t));
    if (t->stage == 0)
        return stage_input_ids(stage, slot, r->head->mb[t->mb].ids, err);
    float *x = message_take_floats(&r->messages, t, MSG_ACT);
    if (!x)
        return err_set(err, -ENOMEM, "out of memory for a message");
    stage_input(stage, slot, x);
    exchange_release(r->messages.exchange, x);
    return 0;
}

static void note_bad(const struct rank_state *r, const struct task *t, enum bad_kind kind, size_t unit)
{
    struct bad_value *first = &r->bad[number_of(r, t)];
    const struct bad_value bad = {kind, kind == BAD_OUTPUT ? t->mb : 0, (uint32_t)unit, r->rank};
    if (bad_value_is_before(&bad, first))
        *first = bad;
}

/* A step that is trained goes on to its end, where rank 0 learns of it from the norm. */
static void look_at_output(const struct rank_state *r, const struct task *t, size_t slot, const float *y)
{
    const size_t unit =
        r->go->program == PROGRAM_TRAIN ? stage_first_bad(stage_of(r, t), slot, y) : STAGE_NO_UNIT;
    if (unit != STAGE_NO_UNIT)
        note_bad(r, t, BAD_OUTPUT, unit);
}

static int look_at_loss(const struct rank_state *r, const struct task *t, size_t slot, double loss,
                        struct err *err)
{
    char name[60];
    if (isfinite(loss))
        return 0;
    if (r->go->program != PROGRAM_TRAIN)
        return err_set(err, -EDOM, "%s: the loss of microbatch %u is not finite",
                       step_name(name, sizeof name, r, t), t->mb);
    note_bad(r, t, BAD_OUTPUT, r->config.layers + 1);
    look_at_output(r, t, slot, NULL);
    return 0;
}

/* Of the round's references those of a microbatch. */
static const double *refs_of(const struct rank_state *r, uint32_t mb)
{
    size_t at = 0;
    for (uint32_t i = 0; i < mb; i++)
        at += r->go->mb[i].n / PAIR_ANSWERS;
    return r->go->refs ? r->go->refs + at : NULL;
}

static double loss_of_pairs(struct rank_state *r, const struct task *t, size_t slot, const int32_t *labels,
                            double *logp)
{
    const struct go_step *step = r->go->program == PROGRAM_TRAIN ? step_of(r, t) : NULL;
    const struct stage_pairs pairs = {.labels = labels,
                                      .how = {r->plan->loss, step ? step->beta : 0},
                                      .dscale = step ? step->dscale : 0,
                                      .ref = refs_of(r, t->mb),
                                      .logp = logp};
    return stage_loss_pairs(stage_of(r, t), slot, &pairs);
}

static double loss_of(struct rank_state *r, const struct task *t, size_t slot, const int32_t *labels,
                      double *logp)
{
    const struct xent xent = {.labels = labels,
                              .dscale = r->go->program == PROGRAM_TRAIN ? (float)step_of(r, t)->dscale : 0};
    return r->plan->loss == LOSS_NLL ? stage_loss(stage_of(r, t), slot, &xent)
                                     : loss_of_pairs(r, t, slot, labels, logp);
}

static int compute_loss_here(struct rank_state *r, const struct task *t, size_t slot, struct err *err)
{
    struct head_mb *mb = &r->head->mb[t->mb];
    mb->loss = loss_of(r, t, slot, mb->labels, mb->logp);
    return look_at_loss(r, t, slot, mb->loss, err);
}

/* The labels come from the head, the loss goes back, and of pairs the log-probabilities behind
 * it. */
static int compute_loss(struct rank_state *r, const struct task *t, size_t slot, struct err *err)
{
    if (is_head(r))
        return compute_loss_here(r, t, slot, err);
    int32_t *labels = message_take(&r->messages, t, MSG_TARGET);
    double *values = message_output(&r->messages, t, MSG_LOSS), loss = 0;
    const struct seqs *seqs = &r->go->mb[t->mb];
    int e = labels && values ? plan_admit_labels(r->plan, labels, seqs->start[seqs->n], t->mb,
                                                 message_need(t, MSG_TARGET)->from, err)
                             : err_set(err, -ENOMEM, "out of memory for a message");
    if (!e)
        values[0] = loss = loss_of(r, t, slot, labels, values + 1);
    else
        exchange_release(r->messages.exchange, values);
    exchange_release(r->messages.exchange, labels);
    if (!e)
        e = message_send(&r->messages, t, MSG_LOSS, values, err);
    return e ? e : look_at_loss(r, t, slot, loss, err);
}

static int task_forward(struct rank_state *r, const struct task *t, struct err *err)
{
    size_t slot = t->slot == SLOT_NONE ? 0 : t->slot;
    int e = put_input(r, t, slot, err);
    if (!e && message_emit(t, MSG_TARGET))
        e = message_send_copy(&r->messages, t, MSG_TARGET, r->head->mb[t->mb].labels,
                              message_size(&r->messages, &message_emit(t, MSG_TARGET)->key, r->rank), err);
    if (e)
        return e;
    if (is_last(r, t)) {
        stage_forward(stage_of(r, t), slot, NULL);
        return compute_loss(r, t, slot, err);
    }
    float *y = message_output_floats(&r->messages, t, MSG_ACT);
    if (y) {
        stage_forward(stage_of(r, t), slot, y);
        look_at_output(r, t, slot, y);
    }
    return message_send_floats(&r->messages, t, MSG_ACT, y, err);
}

static int task_again(struct rank_state *r, const struct task *t)
{
    use_activations(r, t, t->slot);
    stage_forward(stage_of(r, t), t->slot, NULL);
    return 0;
}

static int task_loss(struct rank_state *r, const struct task *t, struct err *err)
{
    struct head_mb *mb = &r->head->mb[t->mb];
    if (!message_need(t, MSG_LOSS))
        return 0; /* computed here */
    double *values = message_take(&r->messages, t, MSG_LOSS);
    if (!values)
        return err_set(err, -ENOMEM, "out of memory for a message");
    mb->loss = values[0];
    for (size_t i = 0; i < message_answers(&r->messages, t->mb); i++)
        mb->logp[i] = values[1 + i];
    exchange_release(r->messages.exchange, values);
    return 0;
}

/* --- backward --------------------------------------------------------------------------------- */

static void half_backward(const struct rank_state *r, const struct task *t, const float *dy, float *dx)
{
    stage_use_bwd_w_only(stage_of(r, t), t->slot, t->bwd_w_only);
    stage_backward_x(stage_of(r, t), t->slot, dy, dx);
}

static int task_backward(struct rank_state *r, const struct task *t, struct err *err)
{
    struct stage *stage = stage_of(r, t);
    if (t->kind == TASK_W) {
        stage_backward_w(stage, t->slot);
        return 0;
    }
    bool from = !is_last(r, t), to = t->to_here || message_emit(t, MSG_GRAD);
    float *dy = from ? message_take_floats(&r->messages, t, MSG_GRAD) : NULL,
          *dx = to ? message_output_floats(&r->messages, t, MSG_GRAD) : NULL;
    if ((from && !dy) || (to && !dx)) {
        exchange_release(r->messages.exchange, dy);
        exchange_release(r->messages.exchange, dx);
        return err_set(err, -ENOMEM, "out of memory for a message");
    }
    if (t->kind == TASK_B)
        stage_backward(stage, t->slot, dy, dx);
    else
        half_backward(r, t, dy, dx);
    exchange_release(r->messages.exchange, dy);
    return to ? message_send_floats(&r->messages, t, MSG_GRAD, dx, err) : 0;
}

/* --- the end of a step ------------------------------------------------------------------------ */

/* The last stage, where it lies here: its head may be tied to the embedding of stage 0. */
static struct stage *last_here(const struct rank_state *r)
{
    return r->stages[r->plan->stages - 1];
}

static int tied_gradient(struct rank_state *r, const struct task *t, struct err *err)
{
    size_t n = stage_tied_grad_elements(r->any) * sizeof(float);
    if (message_emit(t, MSG_TIED_GRAD))
        return message_send_copy(&r->messages, t, MSG_TIED_GRAD, stage_tied_grad(stage_of(r, t)), n, err);
    if (message_need(t, MSG_TIED_GRAD)) {
        float *grad = message_take(&r->messages, t, MSG_TIED_GRAD);
        if (!grad)
            return err_set(err, -ENOMEM, "out of memory for a message");
        stage_add_tied_grad(stage_of(r, t), grad);
        exchange_release(r->messages.exchange, grad);
    } else if (t->stage == 0 && last_here(r) && stage_tied_grad(last_here(r))) {
        stage_add_tied_grad(stage_of(r, t), stage_tied_grad(last_here(r)));
    }
    return 0;
}

static int task_norm(struct rank_state *r, const struct task *t, struct err *err)
{
    struct norm_message sum = {0};
    size_t unit;
    if (!is_last(r, t))
        sum = r->norms[t->mb];
    int e = message_take_copy(&r->messages, t, MSG_NORM, &sum, sizeof sum, err);
    if (!e && r->plan->slices)
        stage_gather_grads(stage_of(r, t));
    if (!e)
        e = stage_gathered(stage_of(r, t), err);
    if (!e)
        e = tied_gradient(r, t, err);
    if (e)
        return e;
    e = replica_norm(r, t, &sum.partial, &unit, err);
    if (e)
        return e;
    if (unit != STAGE_NO_UNIT)
        note_bad(r, t, BAD_GRADIENT, unit);
    if (bad_value_is_before(&r->bad[t->mb], &sum.bad))
        sum.bad = r->bad[t->mb];
    sum.busy += r->busy;
    r->busy = 0;
    r->norms[t->mb] = sum;
    if (t->stage > 0)
        return message_send_copy(&r->messages, t, MSG_NORM, &sum, sizeof sum, err);
    r->head->steps[t->mb].grad_norm = sqrt(sum.partial);
    /* Slices do alike work, and do not say how much. */
    r->head->steps[t->mb].busy = sum.busy * (double)job_plan_slices(r->plan);
    r->head->steps[t->mb].bad = sum.bad;
    return r->rank ? replica_say_losses(r, t, &sum, err) : r->head->stepped(r->head->owner, t->mb, err);
}

/* torch.nn.utils.clip_grad_norm_: factor max_norm / (norm + 1e-6), never above 1. */
static double clip_factor(const struct head_step *step)
{
    double factor = step->max_norm > 0 ? step->max_norm / (step->grad_norm + 1e-6) : 1;
    return factor < 1 ? factor : 1;
}

/* A head that is tied to an embedding in another stage has a copy of it. */
static bool has_copy(const struct rank_state *r)
{
    return r->plan->stages > 1 && last_here(r) && r->plan->tune.kind == TUNE_FULL && r->config.tied;
}

static int tied_weight(struct rank_state *r, const struct task *t, struct err *err)
{
    size_t n = stage_tied_elements(r->any) * sizeof(float);
    if (message_emit(t, MSG_TIED_WEIGHT))
        return message_send_copy(&r->messages, t, MSG_TIED_WEIGHT, stage_tied_weight(r->stages[0]), n, err);
    if (!message_need(t, MSG_TIED_WEIGHT))
        return 0;
    float *w = message_take(&r->messages, t, MSG_TIED_WEIGHT);
    if (!w)
        return err_set(err, -ENOMEM, "out of memory for a message");
    stage_set_tied_weight(last_here(r), w);
    exchange_release(r->messages.exchange, w);
    return 0;
}

/* The embedding has its new values: so gets the head's copy. */
static int task_tied(struct rank_state *r, const struct task *t, struct err *err)
{
    if (is_last(r, t) && is_head(r) && has_copy(r))
        stage_set_tied_weight(last_here(r), stage_tied_weight(r->stages[0]));
    return tied_weight(r, t, err);
}

/* As rank 0 decides it, once the step is known. */
static struct scale_message scale_of(const struct rank_state *r, const struct task *t)
{
    const struct head_step *step = &r->head->steps[t->mb];
    const struct adamw *o = &step->opt;
    return (struct scale_message){clip_factor(step),     o->lr, o->beta1, o->beta2, o->eps, o->weight_decay,
                                  (uint32_t)step->update};
}

static int task_tell(struct rank_state *r, const struct task *t, struct err *err)
{
    const struct scale_message s = scale_of(r, t);
    return message_send_copy(&r->messages, t, MSG_SCALE, &s, sizeof s, err);
}

static int task_update(struct rank_state *r, const struct task *t, struct err *err)
{
    struct scale_message s = r->scales[t->mb];
    int e = message_take_copy(&r->messages, t, MSG_SCALE, &s, sizeof s, err);
    if (e)
        return e;
    if (t->stage == 0 && r->rank == 0)
        s = scale_of(r, t);
    r->scales[t->mb] = s;
    e = message_send_copy(&r->messages, t, MSG_SCALE, &s, sizeof s, err);
    struct adamw opt = {s.lr, s.beta1, s.beta2, s.eps, s.weight_decay};
    if (s.update)
        stage_update(stage_of(r, t), (float)s.gscale, &opt, s.update);
    else
        stage_skip_update(stage_of(r, t));
    return e || r->plan->divided ? e : task_tied(r, t, err);
}

/* --- parameters and tokens -------------------------------------------------------------------- */

/* Values where they start: of the stage that trains them (SAVE), the head's files (LOAD), or a copy
 * (RESTORE). */
static int put_source(struct rank_state *r, uint32_t number, float *values, struct err *err)
{
    const struct param_piece *piece = &r->pieces.piece[number];
    if (r->go->program == PROGRAM_LOAD)
        return r->head->piece(r->head->owner, piece, values, err);
    if (r->go->program == PROGRAM_RESTORE)
        return hold_read(r->hold, r->go->step, r->go->adapter, number, values, err);
    stage_pack(r->stages[job_plan_stage_of_unit(r->plan, piece->unit)], piece, values);
    return 0;
}

static int put_sink(struct rank_state *r, uint32_t number, float *values, struct err *err)
{
    const struct param_piece *piece = &r->pieces.piece[number];
    if (r->go->program == PROGRAM_SAVE)
        return r->head->piece(r->head->owner, piece, values, err);
    stage_unpack(r->stages[job_plan_stage_of_unit(r->plan, piece->unit)], piece, values);
    if (number + 1 == r->pieces.first[1] && has_copy(r))
        stage_set_tied_weight(last_here(r), stage_tied_weight(r->stages[0]));
    return 0;
}

/* Of what passes on its way to the head, moments that are here alone. */
static void add_own(const struct rank_state *r, const struct param_piece *piece, float *values)
{
    struct stage *stage = r->stages[job_plan_stage_of_unit(r->plan, piece->unit)];
    if (stage)
        stage_pack(stage, piece, values);
}

/* Who takes what passes: its destination; where several replicas want it, each rank that has its
 * stage. */
static bool is_sink(const struct rank_state *r, const struct task *t)
{
    const size_t stage = job_plan_stage_of_unit(r->plan, r->pieces.piece[t->mb].unit);
    return r->go->program == PROGRAM_SAVE ? !message_emit(t, MSG_PARAM) : r->stages[stage] != NULL;
}

static int task_put(struct rank_state *r, const struct task *t, struct err *err)
{
    const struct task_need *need = message_need(t, MSG_PARAM);
    const struct msg_key key = {.kind = MSG_PARAM, .mb = t->mb};
    const struct param_piece *piece = &r->pieces.piece[t->mb];
    float *values = need ? message_take(&r->messages, t, MSG_PARAM)
                         : exchange_buffer(r->messages.exchange, message_size(&r->messages, &key, r->rank));
    int e = values ? 0 : err_set(err, -ENOMEM, "out of memory for the parameters of unit %zu", piece->unit);
    if (!e && need && r->go->program == PROGRAM_SAVE)
        add_own(r, piece, values);
    if (!e && !need)
        e = put_source(r, t->mb, values, err);
    if (!e && is_sink(r, t))
        e = put_sink(r, t->mb, values, err);
    if (!e)
        e = tied_weight(r, t, err);
    if (!e && message_emit(t, MSG_PARAM))
        return message_send(&r->messages, t, MSG_PARAM, values, err);
    exchange_release(r->messages.exchange, values);
    return e;
}

static size_t position_of(const struct rank_state *r, uint32_t mb)
{
    size_t at = r->go->at;
    for (uint32_t i = 0; i < mb; i++)
        at += r->go->mb[i].start[r->go->mb[i].n];
    return at;
}

/* The last rank chooses; that is the head's own where the model is on one node. Of slices the
 * first does, with what the others gave it. */
static int choose_token(struct rank_state *r, const struct task *t, struct err *err)
{
    const struct go *go = r->go;
    const float *logits = stage_logits(stage_of(r, t));
    if (!logits)
        return stage_gathered(stage_of(r, t), err);
    if (job_plan_slice(r->plan, job_plan_pipeline_of(r->plan, r->rank)).index)
        return 0;
    struct token_message *m = message_emit(t, MSG_TOKEN) ? message_output(&r->messages, t, MSG_TOKEN) : NULL;
    if (message_emit(t, MSG_TOKEN) && !m)
        return err_set(err, -ENOMEM, "out of memory for a message");
    const uint32_t token = sample_token(logits, r->plan->vocab, &go->choice, go->step, r->scratch);
    const float logprob =
        go->logprobs ? stage_logprob(stage_of(r, t), token, m ? m->likely : r->head->likely, go->top) : 0;
    if (!m) {
        r->head->token = token;
        r->head->logprob = logprob;
        return 0;
    }
    m->token = token;
    if (go->logprobs)
        m->logprob = logprob;
    return message_send(&r->messages, t, MSG_TOKEN, m, err);
}

static int task_decode(struct rank_state *r, const struct task *t, struct err *err)
{
    size_t n = r->go->mb[t->mb].start[r->go->mb[t->mb].n];
    const bool first = t->stage == 0;
    float *x = first ? NULL : message_take_floats(&r->messages, t, MSG_ACT);
    float *y = is_last(r, t) ? NULL : message_output_floats(&r->messages, t, MSG_ACT);
    if ((!first && !x) || (!is_last(r, t) && !y)) {
        exchange_release(r->messages.exchange, x);
        exchange_release(r->messages.exchange, y);
        return err_set(err, -ENOMEM, "out of memory for a message");
    }
    int e = stage_decode(stage_of(r, t), first ? r->head->mb[t->mb].ids : NULL, x, y, n,
                         position_of(r, t->mb), err);
    exchange_release(r->messages.exchange, x);
    if (e)
        exchange_release(r->messages.exchange, y);
    if (e || !is_last(r, t))
        return e ? e : message_send_floats(&r->messages, t, MSG_ACT, y, err);
    if (!r->go->want_token || t->mb + 1 != r->go->microbatches)
        return 0;
    return choose_token(r, t, err);
}

/* What came of the token's choice: the token, and how likely it and others were. */
static int take_token(struct rank_state *r, const struct task *t, const struct token_message *m,
                      struct err *err)
{
    const uint32_t from = message_need(t, MSG_TOKEN)->from;
    int e = plan_admit_token(r->plan, m->token, "the next token", from, err);
    for (size_t i = 0; i < r->go->top && !e; i++)
        e = plan_admit_token(r->plan, m->likely[i].id, "a likely token", from, err);
    if (e)
        return e;
    r->head->token = m->token;
    if (r->go->logprobs)
        r->head->logprob = m->logprob;
    if (r->go->top)
        memcpy(r->head->likely, m->likely, r->go->top * sizeof *m->likely);
    return 0;
}

static int task_token(struct rank_state *r, const struct task *t, struct err *err)
{
    if (!message_need(t, MSG_TOKEN))
        return 0; /* chosen here */
    struct token_message *message = message_take(&r->messages, t, MSG_TOKEN);
    if (!message)
        return err_set(err, -ENOMEM, "out of memory for a message");
    const int e = take_token(r, t, message, err);
    exchange_release(r->messages.exchange, message);
    return e;
}

void task_select_adapter(struct rank_state *r, const struct task *t)
{
    if (r->go->program == PROGRAM_TRAIN)
        stage_select_adapter(stage_of(r, t), step_of(r, t)->adapter);
}

static int run(struct rank_state *r, const struct task *t, struct err *err)
{
    switch (t->kind) {
    case TASK_F: return r->go->program == PROGRAM_DECODE ? task_decode(r, t, err) : task_forward(r, t, err);
    case TASK_I:
    case TASK_W:
    case TASK_B: return task_backward(r, t, err);
    case TASK_R: return task_again(r, t);
    case TASK_LOSS: return task_loss(r, t, err);
    case TASK_NORM: return task_norm(r, t, err);
    case TASK_UPDATE: return task_update(r, t, err);
    case TASK_PUT: return task_put(r, t, err);
    case TASK_TOKEN: return task_token(r, t, err);
    case TASK_ROWS: return task_rows(r, t, err);
    case TASK_DONE: return task_done(r, t, err);
    case TASK_TELL: return task_tell(r, t, err);
    case TASK_GIVE: return task_give(r, t, err);
    case TASK_TAKE: return task_take(r, t, err);
    case TASK_SQUARES: return task_squares(r, t, err);
    case TASK_TIED: return task_tied(r, t, err);
    case TASK_COUNT: break;
    }
    return err_set(err, -EINVAL, "a task of unknown kind %d", (int)t->kind);
}

/* What a slice computed is worth nothing once it could not gather: that is why the task failed. */
int task_run(struct rank_state *r, const struct task *t, struct err *err)
{
    task_select_adapter(r, t);
    const int e = run(r, t, err), lost = task_is_compute(t->kind) ? stage_gathered(stage_of(r, t), err) : 0;
    return lost ? lost : e;
}
