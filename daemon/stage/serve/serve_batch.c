/* SPDX-License-Identifier: MIT
 *
 * Each microbatch has a row of every sequence that waits for its next token, but no more than its
 * share, so that as many are under way as there are stages; and a piece of one prompt. */
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

/* The token behind its last row. */
static int want_token(struct flight *f, struct seq *q, struct err *err)
{
    struct job_spec *spec = &q->ask->spec;
    const size_t room = choice_room(spec), at = f->batch.nchoices;
    const struct choice_ids said = {q->ids, q->ids + q->n_prompt, q->n_prompt, q->n - q->n_prompt};
    f->rooms[at] = malloc(room + 1);
    if (!f->rooms[at])
        return err_set(err, -ENOMEM, "out of memory for a choice");
    struct rows_choice *c = &f->batch.choices[at];
    *c = (struct rows_choice){.row = (uint32_t)f->batch.nrows - 1,
                              .top = (uint32_t)spec->top_logprobs,
                              .wants_logprob = q->ask->wants_logprob,
                              .index = q->n - q->n_prompt,
                              .how = choice_next(spec, &said, f->rooms[at])};
    c->how.seed += q->choice;
    f->of_choice[f->batch.nchoices++] = q;
    return 0;
}

static void want_hidden(struct flight *f, struct seq *q, size_t n)
{
    const bool is_whole = q->computed == q->n;
    if (q->ask->is_last_alone && !is_whole)
        return;
    f->batch.nhidden = q->ask->is_last_alone ? 1 : (uint32_t)n;
    f->batch.first_hidden = (uint32_t)f->batch.nrows - f->batch.nhidden;
}

/* The next n rows of a sequence. */
static int add(struct server_run *s, struct flight *f, struct seq *q, size_t n, struct err *err)
{
    const size_t end = q->computed + n;
    f->batch.pieces[f->batch.npieces] =
        (struct stage_piece){.blocks = q->table.blocks,
                             .nblocks = (end + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
                             .at = q->computed,
                             .n = n,
                             .adapter = s->plan->tune.kind == TUNE_LORA ? 0 : STAGE_NO_ADAPTER};
    f->of_piece[f->batch.npieces++] = q;
    memcpy(f->ids + f->batch.nrows, q->ids + q->computed, n * sizeof *f->ids);
    f->batch.nrows += n;
    q->computed = end;
    q->is_in_flight = true;
    kv_pool_note(s->pool, &q->table, q->ids, end);
    s->counts.prompt += q->computed <= q->n_prompt ? n : 0;
    if (q->ask->kind == ASK_EMBED) {
        f->hidden = q;
        want_hidden(f, q, n);
        return 0;
    }
    return end == q->n ? want_token(f, q, err) : 0;
}

static size_t count_running(const struct server_run *s)
{
    size_t n = 0;
    for (const struct seq *q = s->seqs; q; q = q->next)
        n += q->is_running;
    return n;
}

/* The oldest whose prompt is not read. */
static struct seq *next_prompt(const struct server_run *s)
{
    struct seq *q = s->seqs;
    while (q && !(is_ready(q) && (left_of(q) > 1 || q->ask->kind == ASK_EMBED)))
        q = q->next;
    return q;
}

static int add_tokens(struct server_run *s, struct flight *f, size_t most, struct err *err)
{
    int r = 0;
    for (struct seq *q = s->seqs; q && !r && f->batch.npieces < most; q = q->next)
        if (is_ready(q) && left_of(q) == 1 && q->ask->kind == ASK_TEXT && seq_grow(s, q, q->n))
            r = add(s, f, q, 1, err);
    return r;
}

static int add_prompt(struct server_run *s, struct flight *f, struct err *err)
{
    struct seq *q = next_prompt(s); /* looked for again: it may have given its blocks */
    if (!q)
        return 0;
    const size_t step = s->head->spec.prefill_step, left = left_of(q);
    int r = add(s, f, q, left < step ? left : step, err);
    q->ask->is_read = q->ask->is_read || q->computed >= q->n_prompt - 1;
    return r;
}

int flight_fill(struct server_run *s, struct flight *f, bool *ret_any, struct err *err)
{
    *f = (struct flight){0};
    *ret_any = false;
    int r = seqs_admit(s, err);
    const size_t running = count_running(s), ranks = s->plan->ranks, share = (running + ranks - 1) / ranks;
    const size_t most = s->plan->seqs - (next_prompt(s) && s->plan->seqs > 1);
    if (r || !running)
        return r;
    r = flight_room(f, s->plan, err);
    if (!r)
        r = add_tokens(s, f, share < most ? share : most, err);
    if (!r && f->batch.npieces < s->plan->seqs)
        r = add_prompt(s, f, err);
    *ret_any = !r && f->batch.npieces;
    if (!*ret_any)
        flight_done(f);
    return r;
}
