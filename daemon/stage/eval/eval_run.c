/* SPDX-License-Identifier: MIT */
#include "daemon/stage/eval/eval_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan_admit.h"
#include "daemon/stage/stop_text.h"

/* A place in the caches. The choices of a row take it one after the other: each finds there what
 * the one before it begins with as well. Blocks are free once the last piece was sent, because all
 * ranks take pieces in one order. */
struct place {
    uint32_t *blocks;     /* borrowed: of all its positions */
    bool is_taken, waits; /* waits: for a token */
    size_t seq;           /* that is sent, */
    size_t sent;          /* rows of it */
    /* Of a generation: prompt and answer so far. */
    uint32_t *ids; /* owned [positions] */
    size_t n, made;
    struct tokenizer_stream *stream; /* owned */
    char *text;                      /* owned */
    size_t length;
};

/* A microbatch that was sent. */
struct eval_flight {
    struct rows_batch batch;
    uint32_t *ids;            /* [plan->tokens] */
    size_t *of_score;         /* [plan->tokens] sequences */
    struct place **of_choice; /* [plan->seqs] */
};

struct eval_runner {
    const struct eval_run_setup *s;
    struct place *places; /* owned [plan->seqs] */
    uint32_t *blocks;     /* owned */
    struct eval_flight flights[JOB_MAX_RANKS];
    size_t sent, heard; /* microbatches */
    size_t next;        /* sequence that no place has begun with */
    size_t *left;       /* owned [rows]: tokens that are still to be heard, of a generation 1 */
    size_t nleft;       /* rows */
    double *logprobs;   /* borrowed */
    json_t *stops;      /* owned */
};

static bool is_generation(const struct eval_runner *r)
{
    return r->s->work->set.task == EVAL_GENERATION;
}

/* --- memory ----------------------------------------------------------------------------------- */

static int open_flight(struct eval_flight *f, const struct job_plan *p, struct err *err)
{
    f->batch.pieces = calloc(p->seqs, sizeof *f->batch.pieces);
    f->batch.choices = calloc(p->seqs, sizeof *f->batch.choices);
    f->batch.scores = calloc(p->tokens, sizeof *f->batch.scores);
    f->ids = calloc(p->tokens, sizeof *f->ids);
    f->of_score = calloc(p->tokens, sizeof *f->of_score);
    f->of_choice = calloc(p->seqs, sizeof(struct place *));
    return f->batch.pieces && f->batch.choices && f->batch.scores && f->ids && f->of_score && f->of_choice
               ? 0
               : err_set(err, -ENOMEM, "out of memory for a microbatch");
}

static void close_flight(struct eval_flight *f)
{
    free(f->batch.pieces);
    free(f->batch.choices);
    free(f->batch.scores);
    free(f->ids);
    free(f->of_score);
    free(f->of_choice);
}

static int open_places(struct eval_runner *r, struct err *err)
{
    const struct job_plan *p = r->s->plan;
    const size_t each = p->kv_blocks / p->seqs;
    for (size_t i = 0; i < p->kv_blocks; i++)
        r->blocks[i] = (uint32_t)i;
    for (size_t i = 0; i < p->seqs; i++) {
        struct place *at = &r->places[i];
        at->blocks = r->blocks + i * each;
        at->ids = is_generation(r) ? calloc(p->positions, sizeof *at->ids) : NULL;
        if (is_generation(r) && !at->ids)
            return err_set(err, -ENOMEM, "out of memory for answers");
    }
    return 0;
}

static int open_run(struct eval_runner *r, struct err *err)
{
    const struct eval_work *w = r->s->work;
    const struct job_plan *p = r->s->plan;
    r->places = calloc(p->seqs, sizeof *r->places);
    r->blocks = calloc(p->kv_blocks, sizeof *r->blocks);
    r->left = calloc(w->set.n, sizeof *r->left);
    r->stops =
        r->s->spec->stop ? json_incref((json_t *)(uintptr_t)r->s->spec->stop) : json_pack("[s]", EVAL_STOP);
    r->nleft = w->set.n;
    int e = r->places && r->blocks && r->left && r->stops ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < w->nseqs && !e; i++)
        r->left[w->seqs[i].row] += is_generation(r) ? 1 : w->seqs[i].n - w->seqs[i].from;
    if (!e)
        e = open_places(r, err);
    for (size_t i = 0; i < p->ranks && !e; i++)
        e = open_flight(&r->flights[i], p, err);
    return e;
}

static void close_run(struct eval_runner *r)
{
    for (size_t i = 0; r->places && i < r->s->plan->seqs; i++) {
        free(r->places[i].ids);
        free(r->places[i].text);
        tokenizer_stream_free(r->places[i].stream);
    }
    for (size_t i = 0; i < JOB_MAX_RANKS; i++)
        close_flight(&r->flights[i]);
    free(r->places);
    free(r->blocks);
    free(r->left);
    json_decref(r->stops);
}

/* --- what is sent ----------------------------------------------------------------------------- */

static int begin_answer(struct eval_runner *r, struct place *p, struct err *err)
{
    const struct eval_work *w = r->s->work;
    const struct eval_seq *seq = &w->seqs[p->seq];
    memcpy(p->ids, w->ids + seq->at, seq->n * sizeof *p->ids);
    p->n = seq->n;
    p->made = p->length = 0;
    tokenizer_stream_free(p->stream);
    p->stream = NULL;
    return tokenizer_stream_new(&p->stream, r->s->tok, true, err);
}

/* How many rows of the sequence before it are this one's, too. The row before the first token that
 * counts is computed again: its logits are wanted. A state of linear layers has taken in more than
 * the two have in common. */
static size_t shared(const struct eval_runner *r, size_t seq)
{
    const struct eval_work *w = r->s->work;
    const struct eval_seq *now = &w->seqs[seq], *before = now - 1;
    const uint32_t *a = w->ids + now->at, *b = w->ids + before->at;
    const size_t most = config_has_state(r->s->config, 0, r->s->config->layers) ? 0 : before->n;
    size_t n = 0;
    while (n + 1 < now->from && n + 1 < most && a[n] == b[n])
        n++;
    return n;
}

/* The next sequence that a place takes; false: there is none. */
static bool take_seq(struct eval_runner *r, struct place *p, int *e, struct err *err)
{
    const struct eval_work *w = r->s->work;
    if (p->is_taken)
        return true;
    if (r->next == w->nseqs)
        return false;
    p->is_taken = true;
    p->seq = r->next++;
    p->sent = 0;
    while (r->next < w->nseqs && w->seqs[r->next].follows)
        r->next++;
    if (is_generation(r))
        *e = begin_answer(r, p, err);
    return !*e;
}

static void want_scores(const struct eval_runner *r, struct eval_flight *f, const struct place *p, size_t n)
{
    const struct eval_seq *seq = &r->s->work->seqs[p->seq];
    const uint32_t *ids = r->s->work->ids + seq->at;
    for (size_t i = 0; i < n; i++) {
        const size_t token = p->sent + i + 1;
        if (token < seq->from)
            continue;
        f->of_score[f->batch.nscores] = p->seq;
        f->batch.scores[f->batch.nscores++] =
            (struct rows_score){(uint32_t)(f->batch.nrows + i), ids[token], 0};
    }
}

/* Greedy: --temperature 0. */
static void want_token(struct eval_flight *f, struct place *p, size_t row)
{
    f->of_choice[f->batch.nchoices] = p;
    f->batch.choices[f->batch.nchoices++] =
        (struct rows_choice){.row = (uint32_t)row, .index = p->made, .how.top_p = 1};
    p->waits = true;
}

/* The last piece of a sequence was sent: the next choice of its row follows. */
static void go_on(const struct eval_runner *r, struct place *p)
{
    const struct eval_work *w = r->s->work;
    p->is_taken = p->seq + 1 < w->nseqs && w->seqs[p->seq + 1].follows;
    if (p->is_taken)
        p->sent = shared(r, ++p->seq);
}

static void add_piece(struct eval_runner *r, struct eval_flight *f, struct place *p, size_t n)
{
    const struct eval_seq *seq = &r->s->work->seqs[p->seq];
    const uint32_t *ids = is_generation(r) ? p->ids : r->s->work->ids + seq->at;
    struct rows_batch *b = &f->batch;
    memcpy(f->ids + b->nrows, ids + p->sent, n * sizeof *ids);
    b->pieces[b->npieces++] =
        (struct stage_piece){.blocks = p->blocks,
                             .nblocks = (p->sent + n + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
                             .at = p->sent,
                             .n = n,
                             .adapter = r->s->plan->tune.kind == TUNE_LORA ? 0 : STAGE_NO_ADAPTER,
                             .state = (uint32_t)(p - r->places)};
    if (!is_generation(r))
        want_scores(r, f, p, n);
    p->sent += n;
    b->nrows += n;
    if (!is_generation(r) && p->sent + 1 == seq->n)
        go_on(r, p);
    else if (is_generation(r) && p->sent == p->n)
        want_token(f, p, b->nrows - 1);
}

/* The next microbatch, at most one piece of a place. Answers that are written are shared out among
 * the ranks, so that each has some to work on. */
static int fill(struct eval_runner *r, struct eval_flight *f, struct err *err)
{
    const struct job_plan *p = r->s->plan;
    const size_t most = is_generation(r) ? (p->seqs + p->ranks - 1) / p->ranks : p->seqs;
    struct rows_batch *b = &f->batch;
    int e = 0;
    b->npieces = b->nrows = b->nchoices = b->nscores = 0;
    for (size_t i = 0; i < p->seqs && b->npieces < most && b->nrows < p->tokens; i++) {
        struct place *at = &r->places[i];
        if (at->waits || !take_seq(r, at, &e, err))
            continue;
        const size_t rows = is_generation(r) ? at->n : r->s->work->seqs[at->seq].n - 1,
                     left = rows - at->sent, room = p->tokens - b->nrows;
        add_piece(r, f, at, left < room ? left : room);
    }
    return e;
}

/* --- what is heard ---------------------------------------------------------------------------- */

static void end_row(struct eval_runner *r, size_t row)
{
    r->nleft--;
    if (!is_generation(r))
        r->s->scored(r->s->owner, row);
}

static bool is_eos(const struct config *c, uint32_t id)
{
    for (size_t i = 0; i < c->neos; i++)
        if ((uint32_t)c->eos[i] == id)
            return true;
    return false;
}

static int append(const struct eval_runner *r, struct place *p, uint32_t id, bool *ret_stop, struct err *err)
{
    const char *piece;
    size_t n, before = p->length;
    if (tokenizer_stream_push(p->stream, id, &piece, &n))
        return err_set(err, -ENOMEM, "out of memory for an answer");
    char *grown = realloc(p->text, p->length + n + 1);
    if (!grown)
        return err_set(err, -ENOMEM, "out of memory for an answer");
    p->text = grown;
    memcpy(p->text + p->length, piece, n);
    p->length += n;
    const size_t end = stop_text_find(r->stops, p->text, p->length, before);
    *ret_stop = end < p->length;
    p->length = end;
    p->ids[p->n++] = id;
    p->made++;
    return 0;
}

static int take_token(struct eval_runner *r, struct place *p, uint32_t id, struct err *err)
{
    bool is_over = is_eos(r->s->config, id);
    int e = plan_admit_token(r->s->plan, id, "a generated token", r->s->ring->prev, err);
    p->waits = false;
    if (!e && !is_over)
        e = append(r, p, id, &is_over, err);
    if (!e && (is_over || p->made == r->s->spec->max_tokens)) {
        const size_t row = r->s->work->seqs[p->seq].row;
        p->is_taken = false;
        r->s->written(r->s->owner, row, p->text ? p->text : "", p->length, p->made);
        end_row(r, row);
    }
    return e;
}

static int take_answer(struct eval_runner *r, struct rows_answer *a, struct err *err)
{
    const struct eval_flight *f = &r->flights[r->heard++ % r->s->plan->ranks];
    const struct rows_batch *b = &f->batch;
    int e = a->n >= rows_answer_size(b, r->s->plan->dim)
                ? 0
                : err_set(err, -EBADMSG, "the last rank answered with %zu bytes, which is too short", a->n);
    const struct rows_token *token = a->room;
    for (size_t i = 0; i < b->nchoices && !e; i++, token = rows_token_next(token, 0))
        e = take_token(r, f->of_choice[i], token->token, err);
    for (size_t i = 0; i < b->nscores && !e; i++, token = rows_token_next(token, 0)) {
        const size_t row = r->s->work->seqs[f->of_score[i]].row;
        r->logprobs[f->of_score[i]] += (double)token->logprob;
        if (!--r->left[row])
            end_row(r, row);
    }
    rows_ring_release(r->s->ring, a);
    return e;
}

/* Sends a microbatch if there is work for one, and no rank has too many. Else waits for the oldest
 * that is under way. */
static int advance(struct eval_runner *r, struct err *err)
{
    const size_t ranks = r->s->plan->ranks;
    struct eval_flight *f = &r->flights[r->sent % ranks];
    struct rows_answer answer = {0};
    const bool may_send = r->sent - r->heard < ranks;
    int e = may_send ? fill(r, f, err) : 0;
    if (!e && may_send && f->batch.npieces) {
        e = rows_ring_send(r->s->ring, (uint32_t)++r->sent, &f->batch, f->ids, &answer, err);
        return e || ranks > 1 ? e : take_answer(r, &answer, err);
    }
    if (!e)
        e = rows_ring_hear(r->s->ring, (uint32_t)r->heard + 1, &answer, err);
    return e ? e : take_answer(r, &answer, err);
}

int eval_run(const struct eval_run_setup *setup, double *ret_logprobs, struct err *err)
{
    struct eval_runner r = {.s = setup, .logprobs = ret_logprobs};
    int e = open_run(&r, err);
    while (!e && r.nleft)
        e = advance(&r, err);
    if (!e)
        e = rows_ring_end(setup->ring, (uint32_t)r.sent + 1, err);
    close_run(&r);
    return e;
}
