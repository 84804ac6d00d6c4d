/* SPDX-License-Identifier: MIT
 *
 * Guesses for the next microbatch, before its rows are put together (serve_batch.c). serve_draft.h
 * says who guesses, and the draft model guesses for all sequences at once, a token in each pass. It
 * reads a sequence that it has not read in pieces, and guesses behind the last of them. */
#include "daemon/stage/serve/serve_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/choice.h"

/* A sequence that the draft model guesses for. */
struct drafting {
    struct seq *q;
    struct form_at form; /* behind what is guessed */
    size_t wanted;       /* guesses */
    size_t row;          /* of the last pass: the one that it was chosen behind */
    bool is_over;        /* no more are wanted */
};

struct guessing {
    struct server_run *s; /* borrowed, as the sequences below */
    struct draft_case cases[JOB_SERVED_MAX];
    struct seq *ready[JOB_SERVED_MAX]; /* [n] who waits for a token */
    size_t n;
    struct drafting at[JOB_SERVED_MAX];
    size_t ndraft;
    /* The pass that is put together. */
    struct stage_piece pieces[JOB_SERVED_MAX];
    uint32_t rows[JOB_SERVED_MAX];       /* [nrows] that are chosen from, */
    struct drafting *of[JOB_SERVED_MAX]; /* and for whom */
    uint32_t *ids;                       /* owned [plan->tokens], `nids` of them used */
    size_t npieces, nrows, nids;
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- who wants a guess ------------------------------------------------------------------------ */

static bool wants_token(const struct seq *q)
{
    return q->is_running && !q->is_in_flight && !q->ending && q->ask->kind != ASK_EMBED &&
           q->n == q->computed + 1;
}

/* Guesses that a sequence may have, if it has `share` of those of the microbatch. */
static size_t most_of(const struct server_run *s, const struct seq *q, size_t share)
{
    const size_t said = q->n - q->n_prompt, left = q->ask->max_tokens - said - 1,
                 room = s->plan->positions - q->n - 1;
    return smaller(smaller(share, s->head->spec.draft_max), smaller(left, room));
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

/* What others have said to the draft model of the same text, it need not read again, unless it
 * would lack what a state has taken in. */
static size_t behind(struct server_run *s, struct seq *q, size_t most)
{
    struct kv_pool *pool = s->draft ? draft_model_pool(s->draft) : NULL;
    if (!pool || q->form.is_free || q->n + most > draft_model_positions(s->draft))
        return 0;
    if (draft_model_is_ahead(s->draft)) /* what the model gave before the last token must be there */
        return q->drafted_from + q->drafted_to + q->nkept == q->n - 1 ? q->nkept : 0;
    if (!q->drafted.n) {
        const int64_t there =
            draft_model_has_state(s->draft) ? 0 : kv_pool_share(pool, &q->drafted, q->ids, q->n);
        q->drafted_to = there > 0 ? (size_t)there : 0;
    }
    return q->n - smaller(q->drafted_to, q->n - 1);
}

/* Tokens to come: as many as answers have had lately, if it may have them. */
static size_t expected(const struct server_run *s, const struct seq *q)
{
    enum { LEAST = 16 };
    const size_t said = q->n - q->n_prompt, left = q->ask->max_tokens - said, usual = (size_t)s->usual_length;
    return smaller(left, usual > said + LEAST ? usual - said : LEAST);
}

static void look_at(struct guessing *g, struct seq *q, size_t share)
{
    struct draft_case *c = &g->cases[g->n];
    const size_t most = most_of(g->s, q, share);
    q->guesses = q->fed = 0;
    q->guessed_by = DRAFT_TEXT;
    if (!most || seq_reserve(q, most))
        return;
    *c = (struct draft_case){
        .most = most, .left = expected(g->s, q), .luck = {&q->luck[DRAFT_TEXT], &q->luck[DRAFT_MODEL]}};
    c->found = allowed(q, draft_find(q->ids, q->n, q->ids + q->n, most));
    c->behind = behind(g->s, q, most);
    g->ready[g->n++] = q;
}

static void look_at_all(struct guessing *g, struct rows_share share)
{
    size_t tokens = 0;
    g->n = 0;
    for (struct seq *q = g->s->seqs; q && tokens < share.tokens; q = q->next) {
        if (!wants_token(q))
            continue;
        tokens++;
        look_at(g, q, (share.spare + share.tokens - 1) / share.tokens);
    }
}

/* --- a pass of the draft model ---------------------------------------------------------------- */

static bool is_ahead(const struct guessing *g)
{
    return draft_model_is_ahead(g->s->draft);
}

/* Rows of ids [n] at positions at … of a sequence, x [n, dim] with them where the model's layer
 * reads them. `d`: it is chosen behind the last; or NULL. */
static void add_piece(struct guessing *g, struct seq *q, size_t at, size_t n, const float *x,
                      struct drafting *d)
{
    const size_t end = at + n, dim = g->s->plan->dim, first = is_ahead(g) ? q->drafted_from + at + 1 : at;
    if (x)
        memcpy(draft_model_in(g->s->draft) + g->nids * dim, x, n * dim * sizeof *x);
    g->pieces[g->npieces++] =
        (struct stage_piece){.blocks = q->drafted.blocks,
                             .nblocks = (end + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
                             .at = at,
                             .n = n,
                             .adapter = STAGE_NO_ADAPTER,
                             .state = q->state,
                             .guessed = first + n > q->n ? (uint32_t)(first + n - q->n) : 0};
    memcpy(g->ids + g->nids, q->ids + first, n * sizeof *g->ids);
    g->nids += n;
    if (!d)
        return;
    g->rows[g->nrows] = (uint32_t)g->nids - 1;
    g->of[g->nrows++] = d;
}

/* What the served model would choose there, if its logits were these: chance is the same, so models
 * that agree choose the same token. */
static int choose(struct guessing *g, struct drafting *d, const float *logits, struct err *err)
{
    struct server_run *s = g->s;
    struct seq *q = d->q;
    const struct job_spec *spec = &q->ask->spec;
    const size_t n = q->n - q->n_prompt + q->guesses;
    const struct choice_ids said = {q->ids, q->ids + q->n_prompt, q->n_prompt, n};
    struct err quiet;
    void *room = malloc(choice_room(spec) + 1);
    if (!room)
        return err_set(err, -ENOMEM, "out of memory for a guess");
    struct sample_params how = choice_next(spec, &said, room);
    how.seed += q->choice;
    d->is_over = form_at_mask(&d->form, &how.allowed, &quiet);
    if (!d->is_over) {
        const uint32_t id = sample_token(logits, s->plan->vocab, &how, n, draft_model_scratch(s->draft));
        d->is_over = seq_ends_with(s, q, id) || form_at_token(&d->form, id, "", 0, &quiet);
        q->ids[q->n + q->guesses] = id;
        q->guesses += !d->is_over;
        d->is_over = d->is_over || q->guesses == d->wanted || form_at_is_over(&d->form);
    }
    free(room);
    return 0;
}

static int run_pass(struct guessing *g, struct err *err)
{
    struct server_run *s = g->s;
    const struct instant start = clock_now();
    const float *logits = NULL;
    const bool is_short = g->nids <= 2 * g->npieces; /* what is read in pieces is no guess's price */
    progress_set(s->ring.progress, PROGRESS_COMPUTING, TASK_F, s->last_mb + 1, 0);
    int r = draft_model_pass(s->draft, g->pieces, g->npieces, g->ids, g->rows, g->nrows, &logits, err);
    for (size_t i = 0; i < g->nrows && !r; i++) {
        g->of[i]->row = g->rows[i];
        r = choose(g, g->of[i], logits + i * s->plan->vocab, err);
    }
    const uint64_t us = (uint64_t)clock_since_us(clock_now(), start);
    if (!r)
        draft_cost_saw(is_short ? &s->known.pass : &s->known.read, g->nids, us);
    atomic_fetch_add_explicit(&s->ring.progress->busy_us, us, memory_order_relaxed);
    g->npieces = g->nrows = g->nids = 0;
    return r;
}

/* --- its guesses ------------------------------------------------------------------------------ */

/* What it lacks of a sequence, as far as `room` reaches; behind the whole of it, it guesses. */
static void begin(struct guessing *g, const struct draft_case *c, struct seq *q, size_t *room)
{
    struct kv_pool *pool = draft_model_pool(g->s->draft);
    const size_t from = smaller(q->drafted_to, q->n - 1), lacks = q->n - from,
                 rows = smaller(lacks, *room + 1);
    const bool is_whole = rows == lacks;
    if ((!is_whole && !*room) || kv_pool_grow(pool, &q->drafted, q->n + c->length))
        return;
    struct drafting *d = is_whole ? &g->at[g->ndraft++] : NULL;
    if (d)
        *d = (struct drafting){.q = q, .form = form_at_copy(&q->form), .wanted = c->length};
    *room -= rows - 1;
    add_piece(g, q, from, rows, NULL, d);
    q->drafted_to = from + rows;
    q->guessed_by = DRAFT_MODEL;
    kv_pool_note(pool, &q->drafted, q->ids, q->drafted_to);
}

/* The same for a layer of the model, which reads what was kept. Its blocks are not shared: what is
 * in them follows from one token more than their own. */
static void begin_ahead(struct guessing *g, const struct draft_case *c, struct seq *q, size_t *room)
{
    const size_t n = q->nkept;
    if (n - 1 > *room ||
        kv_pool_grow(draft_model_pool(g->s->draft), &q->drafted, q->drafted_to + n + c->length))
        return;
    struct drafting *d = &g->at[g->ndraft++];
    *d = (struct drafting){.q = q, .form = form_at_copy(&q->form), .wanted = c->length};
    *room -= n - 1;
    add_piece(g, q, q->drafted_to, n, q->kept, d);
    q->drafted_to += n;
    q->nkept = 0;
    q->guessed_by = DRAFT_MODEL;
}

static bool add_next(struct guessing *g)
{
    for (size_t i = 0; i < g->ndraft; i++) {
        struct drafting *d = &g->at[i];
        if (d->is_over)
            continue;
        const bool ahead = is_ahead(g);
        const float *x = ahead ? draft_model_out(g->s->draft) + d->row * g->s->plan->dim : NULL;
        add_piece(g, d->q, (ahead ? d->q->drafted_to : d->q->n) + d->q->fed++, 1, x, d);
    }
    return g->npieces;
}

static int draft(struct guessing *g, struct err *err)
{
    size_t room = g->s->head->spec.prefill_step;
    int r = 0;
    g->ndraft = 0;
    for (size_t i = 0; i < g->n; i++)
        if (g->cases[i].length && g->cases[i].kind == DRAFT_MODEL)
            (is_ahead(g) ? begin_ahead : begin)(g, &g->cases[i], g->ready[i], &room);
    for (bool any = g->npieces; any && !r; any = add_next(g))
        r = run_pass(g, err);
    for (size_t i = 0; i < g->ndraft; i++)
        form_at_done(&g->at[i].form);
    return r;
}

void guess_without(struct server_run *s, const struct err *why)
{
    for (struct seq *q = s->seqs; q; q = q->next) {
        seq_drop_draft(s, q);
        q->guesses = 0;
    }
    s->draft = NULL;
    stage_say(s->head->events, "served without its draft model: %s", why->text);
}

void guess_all(struct server_run *s, struct rows_share share)
{
    struct guessing *g = s->guessing;
    struct err err;
    look_at_all(g, share);
    draft_choose(&s->known, g->cases, g->n);
    for (size_t i = 0; i < g->n; i++)
        g->ready[i]->guesses = g->cases[i].kind == DRAFT_TEXT ? g->cases[i].length : 0;
    if (s->draft && draft(g, &err))
        guess_without(s, &err);
}

int guessing_new(struct server_run *s, struct err *err)
{
    struct guessing *g = s->guessing = calloc(1, sizeof *g);
    if (g) {
        g->s = s;
        g->ids = calloc(s->plan->tokens, sizeof *g->ids);
    }
    return g && g->ids ? 0 : err_set(err, -ENOMEM, "out of memory for guesses");
}

void guessing_free(struct guessing *g)
{
    if (g)
        free(g->ids);
    free(g);
}
