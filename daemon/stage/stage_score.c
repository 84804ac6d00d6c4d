/* SPDX-License-Identifier: MIT
 *
 * Scoring, driven from rank 0: log-probability of every token of a text, or the perplexity of a
 * data set. */
#include "daemon/stage/stage_drive.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan_admit.h"
#include "daemon/stage/serve/rows_ring.h"
#include "daemon/stage/token_json.h"
#include "net/clock.h"

/* Each token with what was said of it at the position before. */
static json_t *token_list(const struct head *h, const float *logprobs, const struct likely *likely)
{
    const size_t top = h->spec.top_logprobs;
    json_t *a = json_array();
    for (size_t i = 0; i < h->nids; i++) {
        json_t *token = token_json(h->tok, h->ids[i], i ? json_real((double)logprobs[i - 1]) : json_null());
        if (top)
            json_object_set_new(token, "top",
                                token_json_top(h->tok, i ? likely + (i - 1) * top : NULL, i ? top : 0));
        json_array_append_new(a, token);
    }
    return a;
}

/* A text on its way through the stages, piece by piece: all its tokens are there, so as many pieces
 * are under way as there are ranks. */
struct text_run {
    struct head *h;
    struct rows_ring ring;
    uint32_t *blocks;          /* owned: of all positions, in their order */
    struct rows_score *scores; /* owned [tokens]: of the piece that is sent */
    size_t sent, heard;        /* pieces */
    float *logprobs;           /* owned [nids]: of the token behind each */
    struct likely *likely;     /* owned [nids, top_logprobs] */
};

static void text_done(struct text_run *t)
{
    free(t->blocks);
    free(t->scores);
    free(t->logprobs);
    free(t->likely);
}

static int text_open(struct text_run *t, struct head *h, struct runner *r, struct err *err)
{
    const struct job_plan *p = &h->plan;
    *t = (struct text_run){.h = h,
                           .blocks = calloc(p->kv_blocks, sizeof *t->blocks),
                           .scores = calloc(p->tokens, sizeof *t->scores),
                           .logprobs = calloc(h->nids, sizeof *t->logprobs),
                           .likely = calloc(h->nids * h->spec.top_logprobs + 1, sizeof *t->likely)};
    if (!t->blocks || !t->scores || !t->logprobs || !t->likely)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < p->kv_blocks; i++)
        t->blocks[i] = (uint32_t)i;
    return runner_serve(r, &t->ring, err);
}

static struct rows_batch batch_of(const struct text_run *t, size_t i, struct stage_piece *piece)
{
    const struct head *h = t->h;
    const size_t at = i * h->plan.tokens, left = h->nids - at,
                 n = left < h->plan.tokens ? left : h->plan.tokens, scored = n < left ? n : n - 1;
    *piece = (struct stage_piece){.blocks = t->blocks,
                                  .nblocks = (at + n + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
                                  .at = at,
                                  .n = n,
                                  .adapter = h->plan.tune.kind == TUNE_LORA ? 0 : STAGE_NO_ADAPTER};
    for (size_t k = 0; k < scored; k++)
        t->scores[k] = (struct rows_score){(uint32_t)k, h->ids[at + k + 1], (uint32_t)h->spec.top_logprobs};
    return (struct rows_batch){
        .pieces = piece, .npieces = 1, .nrows = n, .scores = t->scores, .nscores = scored};
}

static int take_answer(struct text_run *t, struct rows_answer *a, struct err *err)
{
    struct stage_piece piece;
    const size_t top = t->h->spec.top_logprobs;
    const struct rows_batch batch = batch_of(t, t->heard++, &piece);
    int e = a->n >= rows_answer_size(&batch, t->h->plan.dim)
                ? 0
                : err_set(err, -EBADMSG, "the last rank answered with %zu bytes, which is too short", a->n);
    const struct rows_token *token = a->room;
    for (size_t i = 0; i < batch.nscores && !e; i++, token = rows_token_next(token, top)) {
        const struct likely *likely = rows_token_likely(token);
        t->logprobs[piece.at + i] = token->logprob;
        for (size_t k = 0; k < top && !e; k++) {
            e = plan_admit_token(&t->h->plan, likely[k].id, "a likely token", t->ring.prev, err);
            t->likely[(piece.at + i) * top + k] = likely[k];
        }
    }
    rows_ring_release(&t->ring, a);
    return e;
}

/* Waits for the oldest piece that is under way. */
static int hear(struct text_run *t, struct err *err)
{
    struct rows_answer answer = {0};
    const int e = rows_ring_hear(&t->ring, (uint32_t)t->heard + 1, &answer, err);
    return e ? e : take_answer(t, &answer, err);
}

static int send_piece(struct text_run *t, struct err *err)
{
    struct stage_piece piece;
    struct rows_answer answer = {0};
    const struct rows_batch batch = batch_of(t, t->sent++, &piece);
    const int e = rows_ring_send(&t->ring, (uint32_t)t->sent, &batch, t->h->ids + piece.at, &answer, err);
    return e || t->h->plan.ranks > 1 ? e : take_answer(t, &answer, err);
}

static int run_text(struct text_run *t, struct err *err)
{
    const size_t pieces = (t->h->nids + t->h->plan.tokens - 1) / t->h->plan.tokens;
    int e = 0;
    while (t->heard < pieces && !e)
        e = t->sent < pieces && t->sent - t->heard < t->h->plan.ranks ? send_piece(t, err) : hear(t, err);
    return e ? e : rows_ring_end(&t->ring, (uint32_t)pieces + 1, err);
}

static int score_text(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    struct text_run t;
    double total = 0;
    int e = text_open(&t, h, r, err);
    if (!e)
        e = run_text(&t, err);
    for (size_t i = 0; i + 1 < h->nids && !e; i++)
        total += (double)t.logprobs[i];
    if (!e)
        *ret_result = json_pack("{s:o s:f s:f}", "tokens", token_list(h, t.logprobs, t.likely), "total",
                                total, "perplexity", exp(-total / (double)(h->nids - 1)));
    text_done(&t);
    return e;
}

enum { GROUP = 8 }; /* rows a round: enough to fill the stages of a home ring */

static int score_group(struct head *h, struct runner *r, size_t at, size_t n, double *loss, size_t *labels,
                       struct err *err)
{
    struct head_mb mb[GROUP] = {0};
    struct seqs seqs[GROUP];
    uint32_t start[GROUP][2] = {0};
    for (size_t i = 0; i < n; i++) {
        struct data_row row = data_row(h->train.data, at + i);
        start[i][1] = (uint32_t)row.n;
        seqs[i] = (struct seqs){1, start[i]};
        mb[i] = (struct head_mb){.ids = row.ids, .labels = row.labels};
    }
    struct head_round round = {.mb = mb};
    struct go go = {.program = PROGRAM_FORWARD, .microbatches = n, .mb = seqs};
    int e = runner_round(r, &go, &round, err);
    for (size_t i = 0; i < n && !e; i++)
        *loss += mb[i].loss;
    for (size_t i = 0; i < n && !e; i++)
        *labels += data_row(h->train.data, at + i).supervised;
    return e;
}

static int score_data(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    size_t rows = data_rows(h->train.data),
           group = h->plan.microbatches < GROUP ? h->plan.microbatches : GROUP;
    struct data_counts counts = data_counts(h->train.data);
    double loss = 0;
    const struct instant begin = clock_now();
    size_t labels = 0; /* scored so far, so that what is shown on the way is a mean too */
    int e = 0;
    for (size_t at = 0; at < rows && !e; at += group) {
        e = score_group(h, r, at, rows - at < group ? rows - at : group, &loss, &labels, err);
        const size_t done = at + group < rows ? at + group : rows;
        if (!e && !head_was_said(h, "step", 0, done))
            stage_event(h->events, "step",
                        json_pack("{s:I s:I s:f}", "step", (json_int_t)done, "steps", (json_int_t)rows,
                                  "loss", loss / (double)labels));
    }
    if (!e)
        *ret_result = json_pack("{s:I s:I s:f s:f s:f}", "rows", (json_int_t)rows, "supervised_tokens",
                                (json_int_t)counts.supervised, "total", -loss, "perplexity",
                                exp(loss / (double)counts.supervised), "seconds",
                                (double)clock_since_us(clock_now(), begin) / 1e6);
    return e;
}

int head_score(struct head *h, struct runner *r, json_t **ret_result, struct err *err)
{
    return h->train.data ? score_data(h, r, ret_result, err) : score_text(h, r, ret_result, err);
}
