/* SPDX-License-Identifier: MIT
 *
 * The messages of one rank's tasks: how large each is, receive buffers posted ahead of them, and
 * the calls by which a task takes what it needs and sends what it emits. It knows the exchange and
 * the round, and no runner and no computation. Called by stage_runner.c and stage_task.c; main
 * thread of ringd-stage. */
#ifndef DAEMON_STAGE_MESSAGE_H
#define DAEMON_STAGE_MESSAGE_H

#include "daemon/stage/exchange/exchange.h"
#include "daemon/common/job_plan.h"
#include "daemon/stage/stage_go.h"
#include "daemon/stage/stage_round.h"
#include "daemon/stage/stage_trace.h"
#include "engine/model/param_piece.h"

/* Tensors, doubles and integers of data messages travel as they lie in memory, so a big-endian
 * build must not exist. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors travel as they lie in memory: little-endian only");
struct token_message { /* as long as GO says: logprob where asked for, then so many of the likeliest */
    uint32_t token;
    float logprob;
    struct likely likely[];
};
struct norm_message {
    double partial;       /* Σ g² of the stages above */
    double busy;          /* seconds they computed */
    struct bad_value bad; /* the first of theirs */
};
struct scale_message {
    double gscale;
    float lr, beta1, beta2, eps, weight_decay;
    uint32_t update; /* number of this update, from 1; 0: the step is not applied */
};

struct losses_message { /* of a replica's microbatches of a step */
    double busy;        /* seconds its ranks computed */
    struct bad_value bad;
    double values[]; /* of each its loss, and log-probabilities as LOSS has them */
};

struct message_cursor { /* how far the receives of a link are posted */
    size_t task, need, posted;
};

/* Activations or a gradient between two stages of this rank: no message carries them. */
struct message_handed {
    uint32_t kind, stage, mb; /* enum msg_kind; destination */
    void *buffer;             /* owned: of the exchange */
};

struct messages {
    const struct job_plan *plan; /* borrowed, as the next three */
    struct exchange *exchange;
    const struct param_pieces *pieces; /* of a round that saves or loads */
    struct trace *trace;               /* learns what is sent, and when */
    struct stage *const *stages;       /* [plan->stages], NULL where a stage lies elsewhere */
    size_t tied_elements;              /* of the weight that embedding and head share, */
    size_t tied_grad;                  /* and of its gradient those that this replica updates */
    uint32_t rank, prev, next;
    /* The present round. */
    const struct go *go;           /* borrowed */
    const struct plan_rank *tasks; /* borrowed: this rank's part of its plan */
    uint32_t round;
    struct message_cursor cursor[JOB_MAX_RANKS]; /* by the rank they come from */
    struct message_handed *handed;               /* owned */
    size_t nhanded, handed_cap;
};

void messages_done(struct messages *m);
/* A round begins: posts the first receives of each link. Negative: an errno. */
int messages_begin(struct messages *m, const struct go *go, const struct plan_rank *tasks, uint32_t round);

/* Microbatches of a step, or of a round of losses alone. */
size_t message_step_microbatches(const struct messages *m);
/* Is a microbatch of the round one of that replica's? A generation's are all of the first. */
bool message_is_of(const struct messages *m, size_t mb, size_t replica);
/* Sequences of a microbatch whose log-probabilities come behind its loss: those of pairs. */
size_t message_answers(const struct messages *m, size_t mb);
/* Bytes of a message of rank `from`; both ends know them from GO and the plan. Of MSG_PART and
 * MSG_SUM the most, and the memory that it takes: they leave out zeros. */
size_t message_size(const struct messages *m, const struct msg_key *key, uint32_t from);

/* What part `part` of a step, numbered as in a task, has of its stage's gradients or values. Where
 * the update is divided, parts go round the replicas, and each has some of its replica's slice. */
struct param_share message_part(const struct messages *m, enum unit_shared what, uint32_t stage,
                                uint32_t part);

/* What a task needs and emits, by kind: at most one of each. NULL: nothing of that kind. */
const struct task_need *message_need(const struct task *t, enum msg_kind kind);
const struct task_emit *message_emit(const struct task *t, enum msg_kind kind);

/* The message that the task needs: now the caller's, until it calls exchange_release. The next
 * receive of that link is posted. NULL: the task needs none, or memory is out. */
void *message_take(struct messages *m, const struct task *t, enum msg_kind kind);
/* The same, copied to `to`; a task that needs none leaves `to` as it is. */
int message_take_copy(struct messages *m, const struct task *t, enum msg_kind kind, void *to, size_t n,
                      struct err *err);
/* A buffer for the message that the task emits; NULL: it emits none, or memory is out. */
void *message_output(struct messages *m, const struct task *t, enum msg_kind kind);
/* Sends that buffer; a task that emits none of the kind sends nothing. */
int message_send(struct messages *m, const struct task *t, enum msg_kind kind, void *buffer, struct err *err);
int message_send_copy(struct messages *m, const struct task *t, enum msg_kind kind, const void *data,
                      size_t n, struct err *err);

/* MSG_PART and MSG_SUM, which the task needs or emits: gradients, with all their zeros. What is
 * taken is the caller's, as above. −EBADMSG: they are not what the plan says. What is sent belongs
 * to the exchange, and is no gradient any more; NULL: memory is out. */
int message_take_sums(struct messages *m, const struct task *t, enum msg_kind kind, float **ret,
                      struct err *err);
int message_send_sums(struct messages *m, const struct task *t, enum msg_kind kind, float *sums,
                      struct err *err);

/* Activations (MSG_ACT) and gradients (MSG_GRAD): by message, or handed over in place where both
 * stages lie on this rank. As above otherwise. */
float *message_take_floats(struct messages *m, const struct task *t, enum msg_kind kind);
float *message_output_floats(struct messages *m, const struct task *t, enum msg_kind kind);
int message_send_floats(struct messages *m, const struct task *t, enum msg_kind kind, float *buffer,
                        struct err *err);

#endif
