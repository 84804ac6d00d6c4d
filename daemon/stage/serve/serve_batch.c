/* SPDX-License-Identifier: MIT
 *
 * Puts together the microbatch whose rows pipe/rows_order.h chooses. */
#include "daemon/stage/serve/serve_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/choice.h"
#include "engine/pipe/rows_order.h"

static int flight_room(struct flight *f, const struct job_plan *p, struct err *err)
{
    f->batch.pieces = calloc(p->seqs, sizeof *f->batch.pieces);
    f->batch.choices = calloc(p->seqs, sizeof *f->batch.choices);
    f->batch.scores = calloc(p->tokens, sizeof *f->batch.scores);
    f->of_piece = calloc(p->seqs, sizeof(struct seq *));
    f->of_score = calloc(p->tokens, sizeof(struct seq *));
    f->of_choice = calloc(p->seqs, sizeof(struct seq *));
    f->rooms = calloc(p->seqs, sizeof *f->rooms);
    f->ids = calloc(p->tokens, sizeof *f->ids);
    return f->batch.pieces && f->batch.choices && f->batch.scores && f->of_piece && f->of_choice &&
                   f->of_score && f->rooms && f->ids
               ? 0
               : err_set(err, -ENOMEM, "out of memory for a microbatch");
}

void flight_done(struct flight *f)
{
    for (size_t i = 0; f->rooms && i < f->batch.nchoices; i++)
        free(f->rooms[i]);
    free(f->batch.pieces);
    free(f->batch.choices);
    free(f->batch.scores);
    free(f->of_piece);
    free(f->of_score);
    free(f->of_choice);
    free(f->rooms);
    free(f->ids);
    *f = (struct flight){0};
}

/* Which tokens may come, at the beginning of a choice's room. One that cannot be said is a fault
 * of this sequence alone: its token is computed in vain, and it ends then. */
static const uint64_t *put_mask(struct seq *q, const struct form_at *form, uint64_t *room, size_t words)
{
    const uint64_t *mask = NULL;
    struct err why;
    if (form_at_mask(form, &mask, &why))
        seq_fail(q, why.text);
    if (mask)
        memcpy(room, mask, words * sizeof *room);
    return mask ? room : NULL;
}

/* The token behind row `row`, where the answer has n tokens, guessed ones among them. */
static int want_token(struct server_run *s, struct flight *f, struct seq *q, const struct form_at *form,
                      size_t row, size_t n, struct err *err)
{
    const struct job_spec *spec = &q->ask->spec;
    const size_t words = form->form ? sample_words(s->plan->vocab) : 0, at = f->batch.nchoices;
    const struct choice_ids said = {q->ids, q->ids + q->n_prompt, q->n_prompt, n};
    uint64_t *room = f->rooms[at] = malloc(words * sizeof *room + choice_room(spec) + 1);
    if (!room)
        return err_set(err, -ENOMEM, "out of memory for a choice");
    struct rows_choice *c = &f->batch.choices[at];
    *c = (struct rows_choice){.row = (uint32_t)row,
                              .top = (uint32_t)spec->top_logprobs,
                              .wants_logprob = q->ask->wants_logprob,
                              .index = n,
                              .how = choice_next(spec, &said, room + words)};
    c->how.seed += q->choice;
    c->how.allowed = put_mask(q, form, room, words);
    f->of_choice[f->batch.nchoices++] = q;
    return 0;
}

/* The tokens behind its last row and behind the guessed ones before it. Guesses that the form
 * forbids were cut off (serve_guess.c); one that cannot be followed now is a fault of this
 * sequence. */
static int want_tokens(struct server_run *s, struct flight *f, struct seq *q, size_t guessed, struct err *err)
{
    struct form_at form = form_at_copy(&q->form);
    struct err why;
    int r = 0;
    for (size_t i = 0; i <= guessed && !r; i++) {
        if (i && form_at_token(&form, q->ids[q->n + i - 1], "", 0, &why))
            seq_fail(q, why.text);
        r = want_token(s, f, q, &form, f->batch.nrows - 1 - guessed + i, q->n - q->n_prompt + i, err);
    }
    form_at_done(&form);
    return r;
}

static void want_hidden(struct flight *f, struct seq *q, size_t n)
{
    const bool is_whole = q->computed == q->n;
    if (q->ask->is_last_alone && !is_whole)
        return;
    f->nembedded = q->ask->is_last_alone ? 1 : (uint32_t)n;
    f->first_embedded = (uint32_t)f->batch.nrows - f->nembedded;
}

/* All of them where the model's own layer guesses. */
static void choose_hidden(const struct server_run *s, struct flight *f)
{
    const bool all = s->draft && draft_model_is_ahead(s->draft);
    f->batch.first_hidden = all ? 0 : f->first_embedded;
    f->batch.nhidden = all ? (uint32_t)f->batch.nrows : f->nembedded;
}

/* Of the batch's last n rows, which are a sequence's next ones: those whose next token is one of
 * its prompt. What was computed before, and gave its blocks, is not wanted once more. */
static void want_scores(struct flight *f, struct seq *q, size_t n)
{
    const size_t first = f->batch.nrows - n,
                 end = q->computed + n < q->n_prompt ? q->computed + n : q->n_prompt - 1;
    for (size_t at = q->computed > q->scored ? q->computed : q->scored; at < end; at++) {
        f->of_score[f->batch.nscores] = q;
        f->batch.scores[f->batch.nscores++] = (struct rows_score){.row = (uint32_t)(first + at - q->computed),
                                                                  .token = q->ids[at + 1],
                                                                  .top = (uint32_t)q->ask->spec.top_logprobs};
    }
    q->scored = end > q->scored ? end : q->scored;
}

/* The next n rows of a sequence, of which the last `guessed` stand behind its tokens. Returns how
 * many tokens are chosen behind them. */
static int add(struct server_run *s, struct flight *f, struct seq *q, size_t n, size_t guessed,
               struct err *err)
{
    const size_t end = q->computed + n;
    f->batch.pieces[f->batch.npieces] =
        (struct stage_piece){.blocks = q->table.blocks,
                             .nblocks = (end + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
                             .at = q->computed,
                             .n = n,
                             .adapter = q->ask->adapter,
                             .guessed = s->has_state ? (uint32_t)guessed : 0};
    f->of_piece[f->batch.npieces++] = q;
    memcpy(f->ids + f->batch.nrows, q->ids + q->computed, n * sizeof *f->ids);
    f->batch.nrows += n;
    if (seq_is_scored(q))
        want_scores(f, q, n);
    q->computed = end - guessed;
    q->is_in_flight = true;
    kv_pool_note(s->pool, &q->table, q->ids, q->computed);
    seq_piece_state(s, q, &f->batch.pieces[f->batch.npieces - 1]);
    s->counts.prompt += q->computed <= q->n_prompt ? n : 0;
    if (q->ask->kind == ASK_EMBED) {
        f->hidden = q;
        want_hidden(f, q, n);
        return 0;
    }
    if (q->ask->has_no_answer)
        return 0;
    const int r = q->computed == q->n ? want_tokens(s, f, q, guessed, err) : 0;
    return r ? r : q->computed == q->n ? (int)guessed + 1 : 0;
}

static size_t count_running(const struct server_run *s)
{
    size_t n = 0;
    for (const struct seq *q = s->seqs; q; q = q->next)
        n += q->is_running;
    return n;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Takes up to `most` of the guesses that stand behind the tokens of a sequence; returns how many,
 * which take blocks that nobody has. */
static size_t take_guesses(struct server_run *s, struct seq *q, size_t most)
{
    const size_t n = smaller(q->guesses, most);
    q->guesses = 0;
    return n && kv_pool_left(s->pool) > count_running(s) + n / STAGE_KV_BLOCK + 1 &&
                   !kv_pool_grow(s->pool, &q->table, q->n + n)
               ? n
               : 0;
}

/* --- what pipe/rows_order.h asks -------------------------------------------------------------- */

struct filling_flight {
    struct server_run *s;
    struct flight *f;
    struct err *err;
};

static void *next_seq(void *owner, void *seq)
{
    const struct filling_flight *o = owner;
    return seq ? ((struct seq *)seq)->next : o->s->seqs;
}

static struct rows_seq look(const void *seq)
{
    const struct seq *q = seq;
    return (struct rows_seq){.is_running = q->is_running,
                             .is_ready = q->is_running && !q->is_in_flight && !q->ending,
                             .is_hidden = q->ask->kind == ASK_EMBED,
                             .is_read = q->ask->has_no_answer,
                             .left = q->n - q->computed};
}

static int add_token(void *owner, void *seq, size_t most)
{
    struct filling_flight *o = owner;
    struct seq *q = seq;
    if (!seq_grow(o->s, q, q->n))
        return 0;
    const size_t guessed = take_guesses(o->s, q, most);
    return add(o->s, o->f, q, 1 + guessed, guessed, o->err);
}

static int add_piece(void *owner, void *seq, size_t n)
{
    struct filling_flight *o = owner;
    struct seq *q = seq;
    const int r = add(o->s, o->f, q, seq_piece_rows(o->s, q, n), 0, o->err);
    q->ask->is_read = q->ask->is_read || q->computed >= q->n_prompt - 1;
    o->f->has_prompt = true;
    return r;
}

int flight_fill(struct server_run *s, struct flight *f, bool *ret_any, struct err *err)
{
    struct filling_flight filling = {s, f, err};
    const struct rows_source source = {&filling, next_seq, look, add_token, add_piece};
    const struct rows_limits limits = serve_limits(s);
    *f = (struct flight){0};
    *ret_any = false;
    int r = seqs_admit(s, err);
    if (r || !count_running(s))
        return r;
    r = flight_room(f, s->plan, err);
    if (!r) {
        guess_all(s, rows_order_share(&limits, &source));
        r = rows_order_next(&limits, &source);
    }
    *ret_any = r > 0;
    choose_hidden(s, f);
    if (!*ret_any)
        flight_done(f);
    return r < 0 ? r : 0;
}
