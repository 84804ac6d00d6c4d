/* SPDX-License-Identifier: MIT
 *
 * Each microbatch has a row of every sequence that waits for its next token, but no more than its
 * share, so that as many are under way as there are stages; and the next pieces of prompts, so
 * many tokens of all of them together. */
#include "daemon/stage/serve/serve_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/choice.h"

static bool is_ready(const struct seq *q)
{
    return q->is_running && !q->is_in_flight && !q->ending;
}

static size_t left_of(const struct seq *q)
{
    return q->n - q->computed;
}

static int flight_room(struct flight *f, const struct job_plan *p, struct err *err)
{
    f->batch.pieces = calloc(p->seqs, sizeof *f->batch.pieces);
    f->batch.choices = calloc(p->seqs, sizeof *f->batch.choices);
    f->of_piece = calloc(p->seqs, sizeof(struct seq *));
    f->of_choice = calloc(p->seqs, sizeof(struct seq *));
    f->rooms = calloc(p->seqs, sizeof *f->rooms);
    f->ids = calloc(p->tokens, sizeof *f->ids);
    return f->batch.pieces && f->batch.choices && f->of_piece && f->of_choice && f->rooms && f->ids
               ? 0
               : err_set(err, -ENOMEM, "out of memory for a microbatch");
}

void flight_done(struct flight *f)
{
    for (size_t i = 0; f->rooms && i < f->batch.nchoices; i++)
        free(f->rooms[i]);
    free(f->batch.pieces);
    free(f->batch.choices);
    free(f->of_piece);
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
 * forbids were cut off (guess); one that cannot be followed now is a fault of this sequence. */
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
    f->batch.nhidden = q->ask->is_last_alone ? 1 : (uint32_t)n;
    f->batch.first_hidden = (uint32_t)f->batch.nrows - f->batch.nhidden;
}

/* The next n rows of a sequence, of which the last `guessed` stand behind its tokens. */
static int add(struct server_run *s, struct flight *f, struct seq *q, size_t n, size_t guessed,
               struct err *err)
{
    const size_t end = q->computed + n;
    f->batch.pieces[f->batch.npieces] =
        (struct stage_piece){.blocks = q->table.blocks,
                             .nblocks = (end + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
                             .at = q->computed,
                             .n = n,
                             .adapter = q->ask->adapter};
    f->of_piece[f->batch.npieces++] = q;
    memcpy(f->ids + f->batch.nrows, q->ids + q->computed, n * sizeof *f->ids);
    f->batch.nrows += n;
    q->computed = end - guessed;
    q->is_in_flight = true;
    kv_pool_note(s->pool, &q->table, q->ids, q->computed);
    s->counts.prompt += q->computed <= q->n_prompt ? n : 0;
    if (q->ask->kind == ASK_EMBED) {
        f->hidden = q;
        want_hidden(f, q, n);
        return 0;
    }
    return q->computed == q->n ? want_tokens(s, f, q, guessed, err) : 0;
}

static size_t count_running(const struct server_run *s)
{
    size_t n = 0;
    for (const struct seq *q = s->seqs; q; q = q->next)
        n += q->is_running;
    return n;
}

static bool wants_rows(const struct seq *q)
{
    return is_ready(q) && (left_of(q) > 1 || q->ask->kind == ASK_EMBED);
}

/* The oldest whose prompt is not read. A microbatch gives the hidden values of one embedding. */
static struct seq *next_prompt(const struct server_run *s, const struct flight *f)
{
    struct seq *q = s->seqs;
    while (q && !(wants_rows(q) && !(f->hidden && q->ask->kind == ASK_EMBED)))
        q = q->next;
    return q;
}

static size_t count_prompts(const struct server_run *s)
{
    size_t n = 0;
    for (const struct seq *q = s->seqs; q; q = q->next)
        n += wants_rows(q);
    return n;
}

static bool wants_token(const struct seq *q)
{
    return is_ready(q) && left_of(q) == 1 && q->ask->kind == ASK_TEXT;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Those of n guesses, behind the tokens of a sequence, that its form lets through. */
static size_t allowed(const struct seq *q, size_t n)
{
    struct form_at form = form_at_copy(&q->form);
    struct err quiet;
    size_t i = 0;
    while (i < n && !form.is_free && !form_at_token(&form, q->ids[q->n + i], "", 0, &quiet))
        i++;
    form_at_done(&form);
    return i;
}

/* Writes guesses behind the tokens of a sequence; returns how many, which are at most `most` and
 * take blocks that nobody has. */
static size_t guess(struct server_run *s, const struct flight *f, struct seq *q, size_t most)
{
    const size_t said = q->n - q->n_prompt, left = q->ask->max_tokens - said - 1,
                 room = s->plan->positions - q->n - 1;
    most = smaller(smaller(most, s->head->spec.draft_max), smaller(left, room));
    most = draft_length(&s->cost, &q->luck, f->batch.nrows + 1, most);
    if (!most || q->ending || seq_reserve(q, most))
        return 0;
    size_t n = allowed(q, draft_find(q->ids, q->n, q->ids + q->n, most));
    return n && kv_pool_left(s->pool) > count_running(s) + n / STAGE_KV_BLOCK + 1 &&
                   !kv_pool_grow(s->pool, &q->table, q->n + n)
               ? n
               : 0;
}

/* A token of each that waits for one, but of `most` at most. What is left of `choices` is for
 * guesses. */
static int add_tokens(struct server_run *s, struct flight *f, size_t most, size_t choices, struct err *err)
{
    size_t wanting = 0;
    for (const struct seq *q = s->seqs; q; q = q->next)
        wanting += wants_token(q);
    wanting = smaller(wanting, most);
    size_t spare = choices > wanting ? choices - wanting : 0;
    int r = 0;
    for (struct seq *q = s->seqs; q && !r && f->batch.npieces < most; q = q->next) {
        if (!wants_token(q) || !seq_grow(s, q, q->n))
            continue;
        const size_t left = wanting > f->batch.npieces ? wanting - f->batch.npieces : 1,
                     guessed = guess(s, f, q, (spare + left - 1) / left);
        spare -= guessed;
        r = add(s, f, q, 1 + guessed, guessed, err);
    }
    return r;
}

static int add_prompts(struct server_run *s, struct flight *f, struct err *err)
{
    size_t rows = s->head->spec.prefill_step;
    struct seq *q; /* looked for each time: it may have given its blocks */
    int r = 0;
    while (!r && rows && f->batch.npieces < s->plan->seqs && f->batch.nchoices < s->plan->seqs &&
           (q = next_prompt(s, f))) {
        const size_t n = smaller(left_of(q), rows);
        r = add(s, f, q, n, 0, err);
        q->ask->is_read = q->ask->is_read || q->computed >= q->n_prompt - 1;
        f->has_prompt = true;
        rows -= n;
    }
    return r;
}

int flight_fill(struct server_run *s, struct flight *f, bool *ret_any, struct err *err)
{
    *f = (struct flight){0};
    *ret_any = false;
    int r = seqs_admit(s, err);
    const size_t running = count_running(s), ranks = s->plan->ranks, share = (running + ranks - 1) / ranks,
                 seqs = s->plan->seqs, prompts = count_prompts(s), most = seqs - (prompts && seqs > 1);
    if (r || !running)
        return r;
    r = flight_room(f, s->plan, err);
    if (!r)
        r = add_tokens(s, f, smaller(share, most), prompts ? most - smaller(most, prompts - 1) : most, err);
    if (!r)
        r = add_prompts(s, f, err);
    *ret_any = !r && f->batch.npieces;
    if (!*ret_any)
        flight_done(f);
    return r;
}
