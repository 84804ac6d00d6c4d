/* SPDX-License-Identifier: MIT
 *
 * The inside of serving on rank 0, shared by serve.c (its life: requests in, microbatches out),
 * serve_seq.c (sequences, from a request to their end), serve_state.c (states that texts may begin
 * with), serve_batch.c (the next microbatch), serve_guess.c and serve_ahead.c (tokens that may
 * follow) and serve_tell.c (what the daemon hears). */
#ifndef DAEMON_SERVE_IMPL_H
#define DAEMON_SERVE_IMPL_H

#include "daemon/stage/serve/draft_model.h"
#include "daemon/stage/serve/kept_states.h"
#include "daemon/stage/serve/kv_pool.h"
#include "daemon/stage/serve/rows_ring.h"
#include "daemon/stage/serve/serve_ask.h"
#include "daemon/stage/serve/serve_draft.h"
#include "daemon/stage/stage_drive.h"
#include "engine/pipe/rows_order.h"
#include "net/clock.h"

/* One answer of a request: its prompt and the tokens so far. */
struct seq {
    struct seq *next;      /* by age */
    struct serve_ask *ask; /* the last of its answers owns it */
    size_t choice;
    uint32_t *ids; /* owned [n]: of the prompt, then of the answer; behind them what was guessed */
    size_t n, cap, n_prompt;
    struct draft_luck luck[DRAFT_KINDS];
    enum draft_kind guessed_by; /* for the next microbatch, or the one that it is in: */
    size_t guesses, fed;        /* and those of them that the draft model has, too */
    struct form_at form;
    struct kv_table table, drafted; /* of the served model, and of the draft model, */
    size_t drafted_to;              /* which has so many positions: */
    size_t drafted_from;            /* of a layer of the model, those of the sequence from this one on; */
    float *kept;                    /* owned [nkept, dim]: what the model gave at the next ones */
    size_t nkept;
    size_t scored;      /* of the prompt: rows whose next token's log-probability is on its way */
    size_t reported;    /* of the prompt: tokens with their log-probabilities */
    uint32_t state;     /* while it runs, as in struct stage_piece: its own, */
    uint32_t from;      /* and until its first piece the kept one that it holds; 0: none */
    size_t parts;       /* position where texts part that begin alike; 0: not known */
    uint64_t kept_text; /* hash of the latest text of its answer whose state it has kept */
    size_t computed;    /* positions that are in the pools, or on their way there */
    bool is_running;    /* it has blocks; else it waits for some */
    bool is_in_flight;  /* a microbatch with rows of it is on its way */
    bool is_dead;       /* and nobody waits for them: it goes when they are back */
    const char *ending; /* why it is over: what the daemon hears; NULL: it is not */
    char *fault;        /* owned: with the ending "error", a sentence */
    struct tokenizer_stream *stream; /* owned, NULL without a tokenizer */
    struct tokenizer_stream *again;  /* owned: that of a prompt that is scored */
};

/* A microbatch on its way. */
struct flight {
    uint32_t mb;
    struct rows_batch batch; /* its arrays are owned here, as all below */
    struct seq **of_piece, **of_choice, **of_score;
    void **rooms; /* [batch.nchoices] of sets and adjustments */
    uint32_t *ids;
    bool has_prompt;
    struct instant sent_at;
    struct seq *hidden; /* of whose rows hidden values are wanted for an embedding, or NULL: */
    uint32_t first_embedded, nembedded; /* which rows; the batch may want those of others as well */
};

struct serve_counts {
    size_t requests, running, waiting; /* requests, and their answers */
    uint64_t prompt, cached, generated, preempted;
    uint64_t guessed[DRAFT_KINDS], right[DRAFT_KINDS];
};

struct server_run {
    struct serve_model model;
    struct head *head; /* borrowed, as the next */
    const struct job_plan *plan;
    struct rows_ring ring;
    struct kv_pool *pool; /* owned */
    uint32_t *states;     /* owned [nstates]: those that no sequence has */
    size_t nstates;
    bool has_state;           /* the model has layers with one, and so: */
    struct kept_states *kept; /* owned */
    struct seq *seqs;         /* owned: oldest first */
    struct flight flights[JOB_MAX_RANKS];
    size_t nflights; /* the oldest first */
    uint32_t last_mb;
    struct draft_model *draft; /* borrowed: the head's; NULL: there is none */
    struct draft_known known;
    struct guessing *guessing; /* owned */
    double usual_length;       /* of answers, in tokens */
    struct serve_counts counts, reported;
    struct instant reported_at;
};

static inline struct rows_limits serve_limits(const struct server_run *s)
{
    return (struct rows_limits){job_plan_places(s->plan), s->plan->seqs, s->head->spec.prefill_step};
}

/* Of its request's answers, the first is the one that the prompt is scored with. */
static inline bool seq_is_scored(const struct seq *q)
{
    return q->ask->wants_prompt && !q->choice;
}

/* --- serve_seq.c --- */

/* Sequences of a new request, behind all others. */
int seqs_add(struct server_run *s, struct serve_ask *ask, struct err *err);
/* It is over, or nobody wants it any more. */
void seq_end(struct server_run *s, struct seq *q);
/* What its microbatch held of it is computed. */
void seq_landed(struct seq *q);
/* Room for so many tokens behind those of the sequence. −ENOMEM. */
int seq_reserve(struct seq *q, size_t more);
/* The next token, and the text [n] that the stream has with it; borrowed until the next one. A
 * token that does not fit the form ends the sequence with a fault. */
int seq_append(struct seq *q, uint32_t id, const char **ret_text, size_t *ret_n, struct err *err);
void seq_fail(struct seq *q, const char *why);
/* Does this token end its answer? */
bool seq_ends_with(const struct server_run *s, const struct seq *q, uint32_t id);
/* Lets go of what the draft model has of it. */
void seq_drop_draft(struct server_run *s, struct seq *q);
/* Lets sequences begin that there are blocks for. */
int seqs_admit(struct server_run *s, struct err *err);
/* Blocks for n positions of a sequence that runs; the youngest others give theirs. False: not
 * now. */
bool seq_grow(struct server_run *s, struct seq *q, size_t n);

/* --- serve_state.c: of models that have layers with a state --- */

/* Of the text that its table shares: for how many positions a state is kept too. It begins with
 * that one, and lets go of the blocks behind. */
size_t seq_begin_state(struct server_run *s, struct seq *q);
/* Its next piece goes out. */
void seq_piece_state(struct server_run *s, struct seq *q, struct stage_piece *piece);
/* Of the next n rows of its prompt, those up to where its state is to be kept. */
size_t seq_piece_rows(const struct server_run *s, const struct seq *q, size_t n);
void seq_drop_state(struct server_run *s, struct seq *q);

/* --- serve_batch.c --- */

/* What comes next, as a microbatch; false: there is nothing to compute. */
int flight_fill(struct server_run *s, struct flight *ret, bool *ret_any, struct err *err);
void flight_done(struct flight *f);

/* --- serve_guess.c --- */

/* For sequences that wait for a token: what may follow, behind their tokens. */
void guess_all(struct server_run *s, struct rows_share share);
/* serve_ahead.c: what the model gave in an answer, for its layer that predicts a token more. After
 * the tokens were taken. */
void guess_from(struct server_run *s, const struct flight *f, const struct rows_answer *a);
/* Its guesses are of help alone: without them answers are the same. */
void guess_without(struct server_run *s, const struct err *why);
int guessing_new(struct server_run *s, struct err *err);
void guessing_free(struct guessing *g);

/* --- serve_tell.c --- */

void tell_serving(struct server_run *s);
void tell_begun(struct server_run *s, struct seq *q, size_t cached);
/* A token of the answer, for the next event "tokens". */
struct chosen_token {
    const struct rows_token *token;
    size_t top, n;    /* top: of so many likeliest */
    const char *text; /* [n] */
};
int tell_token(struct server_run *s, json_t *list, const struct seq *q, const struct chosen_token *chosen,
               struct err *err);
/* The next `n` tokens of the prompt, and how likely they were (rows_batch.h), each with as many of
 * the likeliest as it wanted. token NULL: of the first, which follows nothing. */
int tell_prompt(struct server_run *s, struct seq *q, const struct rows_token *token, size_t n,
                struct err *err);
void tell_ended(struct server_run *s, const struct seq *q);
void tell_refused(struct server_run *s, uint64_t id, int code, const char *why);
void tell_embedded(struct server_run *s, const struct seq *q);
/* If it has changed, once a second; must: at once. */
void tell_load(struct server_run *s, bool must);

#endif
