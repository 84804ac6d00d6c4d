/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/serve_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- their beginning -------------------------------------------------------------------------- */

static void seq_free(struct seq *q)
{
    form_at_done(&q->form);
    tokenizer_stream_free(q->stream);
    tokenizer_stream_free(q->again);
    free(q->fault);
    free(q->kept);
    free(q->ids);
    free(q);
}

int seq_reserve(struct seq *q, size_t more)
{
    if (q->cap - q->n >= more)
        return 0;
    const size_t cap = q->n + q->n / 2 + more + 64;
    uint32_t *ids = realloc(q->ids, cap * sizeof *ids);
    if (!ids)
        return -ENOMEM;
    q->ids = ids;
    q->cap = cap;
    return 0;
}

void seq_fail(struct seq *q, const char *why)
{
    if (q->ending && !strcmp(q->ending, "error"))
        return;
    q->ending = "error";
    q->fault = strdup(why);
}

bool seq_ends_with(const struct server_run *s, const struct seq *q, uint32_t id)
{
    const struct config *c = &s->head->config;
    const struct serve_forms *forms = &s->model.forms;
    for (size_t i = 0; i < c->neos; i++)
        if ((uint32_t)c->eos[i] == id)
            return true;
    for (size_t i = 0; i < forms->nends && q->ask->form; i++) /* what its form lets through as an end */
        if (forms->ends[i] == id)
            return true;
    return q->ask->has_end && q->ask->end == id;
}

int seq_append(struct seq *q, uint32_t id, const char **ret_text, size_t *ret_n, struct err *err)
{
    struct err why;
    *ret_text = "";
    *ret_n = 0;
    if (seq_reserve(q, 1) || (q->stream && tokenizer_stream_push(q->stream, id, ret_text, ret_n)))
        return err_set(err, -ENOMEM, "out of memory for a request");
    q->ids[q->n++] = id;
    const int r = form_at_token(&q->form, id, *ret_text, *ret_n, &why);
    if (r)
        seq_fail(q, why.text);
    return r == -ENOMEM ? err_set(err, r, "%s", why.text) : 0;
}

/* So that the first new token knows what stands before it. */
static int read_prompt(struct seq *q, struct server_run *s, struct err *err)
{
    const struct serve_ask *ask = q->ask;
    const char *text;
    size_t n;
    int r = 0;
    if (ask->kind == ASK_TEXT && s->head->tok)
        r = tokenizer_stream_new(&q->stream, s->head->tok, false, err);
    if (!r && q->stream && seq_is_scored(q))
        r = tokenizer_stream_new(&q->again, s->head->tok, false, err);
    for (size_t i = 0; i < ask->n && !r; i++)
        r = seq_append(q, ask->ids[i], &text, &n, err);
    if (!r && ask->form)
        form_at_begin(&q->form, ask->form, json_object_get(ask->json, "form"), ask->tail);
    return r;
}

/* What was generated before a loss. */
static int read_so_far(struct seq *q, const struct server_run *s, struct err *err)
{
    const json_t *so_far = json_array_get(json_object_get(q->ask->json, "so_far"), q->choice);
    const char *text;
    size_t n;
    int r = 0;
    for (size_t i = 0; i < json_array_size(so_far) && !r; i++) {
        const json_int_t id = json_integer_value(json_array_get(so_far, i));
        r = id < 0 || (size_t)id >= s->plan->vocab || q->n + 1 >= s->plan->positions
                ? err_set(err, -EINVAL, "the tokens so far of this request are none of this model")
                : seq_append(q, (uint32_t)id, &text, &n, err);
    }
    return r;
}

/* With a fault, it would wait for a token that cannot come. */
static int seq_new(struct seq **ret, struct server_run *s, struct serve_ask *ask, size_t choice,
                   struct err *err)
{
    struct seq *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(err, -ENOMEM, "out of memory for a request");
    *q = (struct seq){.ask = ask, .choice = choice, .n_prompt = ask->n, .table = {.root = ask->adapter}};
    int r = read_prompt(q, s, err);
    r = r ? r : read_so_far(q, s, err);
    if (!r && q->ending)
        r = err_set(err, -EINVAL, "%s", q->fault ? q->fault : "out of memory for a request");
    if (r)
        seq_free(q);
    else
        *ret = q;
    return r;
}

int seqs_add(struct server_run *s, struct serve_ask *ask, struct err *err)
{
    struct seq *first = NULL, **last = &first, **end = &s->seqs;
    int r = 0;
    for (size_t i = 0; i < ask->choices && !r; i++) {
        r = seq_new(last, s, ask, i, err);
        last = r ? last : &(*last)->next;
    }
    while (r && first) {
        struct seq *next = first->next;
        seq_free(first);
        first = next;
    }
    while (*end)
        end = &(*end)->next;
    *end = first;
    return r;
}

/* --- their end -------------------------------------------------------------------------------- */

void seq_drop_draft(struct server_run *s, struct seq *q)
{
    if (s->draft)
        kv_pool_drop(draft_model_pool(s->draft), &q->drafted);
    q->drafted_to = q->nkept = 0;
}

static void drop(struct server_run *s, struct seq *q)
{
    kv_pool_drop(s->pool, &q->table);
    seq_drop_draft(s, q);
    seq_drop_state(s, q);
    q->is_running = false;
    q->computed = 0;
}

void seq_end(struct server_run *s, struct seq *q)
{
    struct seq **at = &s->seqs;
    struct serve_ask *ask = q->ask;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    drop(s, q);
    form_at_done(&q->form);
    q->ask = NULL;
    q->is_dead = true;
    ask->is_read = true; /* its other answers need not wait for this one */
    if (!--ask->open)
        serve_ask_free(ask);
    if (!q->is_in_flight)
        seq_free(q);
}

void seq_landed(struct seq *q)
{
    q->is_in_flight = false;
    if (q->is_dead)
        seq_free(q);
}

/* --- their blocks ----------------------------------------------------------------------------- */

static size_t running(const struct server_run *s)
{
    size_t n = 0;
    for (const struct seq *q = s->seqs; q; q = q->next)
        n += q->is_running;
    return n;
}

/* Of its tokens, those whose rows may be spared, and one more. Of an embedding all rows are wanted,
 * of a prompt that is scored those that were not scored yet. */
static size_t sharable(const struct seq *q)
{
    if (q->ask->kind == ASK_EMBED && !q->ask->is_last_alone)
        return 0;
    return seq_is_scored(q) && q->scored + 1 < q->n_prompt ? q->scored + 1 : q->n;
}

/* 0: it runs; −ENOSPC: not yet. */
static int begin(struct server_run *s, struct seq *q, struct err *err)
{
    int64_t cached = kv_pool_share(s->pool, &q->table, q->ids, sharable(q));
    if (s->has_state && cached > 0)
        cached = (int64_t)seq_begin_state(s, q);
    int r = cached < 0 ? (int)cached
                       : kv_pool_grow(s->pool, &q->table,
                                      q->n + 1 < s->plan->positions ? q->n + 1 : s->plan->positions);
    if (r) {
        seq_drop_state(s, q);
        kv_pool_drop(s->pool, &q->table);
        return r;
    }
    q->computed = (size_t)cached;
    q->is_running = true;
    q->state = s->states[--s->nstates];
    if (!q->ask->is_begun)
        tell_begun(s, q, q->computed);
    return seq_is_scored(q) && !q->reported ? tell_prompt(s, q, NULL, 1, err) : 0;
}

int seqs_admit(struct server_run *s, struct err *err)
{
    const struct rows_limits limits = serve_limits(s);
    const size_t most = rows_running_most(&limits);
    size_t n = running(s);
    for (struct seq *q = s->seqs; q && n < most; q = q->next) {
        if (q->is_running || q->is_in_flight || (q->choice && !q->ask->is_read))
            continue;
        /* Those that run need a block each before long. */
        if (n && kv_pool_left(s->pool) < n + q->n / STAGE_KV_BLOCK)
            return 0;
        const int r = begin(s, q, err);
        if (r == -ENOSPC)
            return 0; /* nobody passes one that waits: it would wait for ever */
        if (r)
            return err_set(err, r, "out of memory for a request");
        n++;
    }
    return 0;
}

static struct seq *youngest(const struct server_run *s)
{
    struct seq *found = NULL;
    for (struct seq *q = s->seqs; q; q = q->next)
        if (q->is_running && !q->is_in_flight)
            found = q;
    return found;
}

bool seq_grow(struct server_run *s, struct seq *q, size_t n)
{
    while (kv_pool_grow(s->pool, &q->table, n)) {
        struct seq *other = youngest(s);
        if (!other || other == q) /* those before it are on their way, and give theirs when they end */
            return false;
        drop(s, other); /* its tokens are kept: they are computed again, to the same bits */
        s->counts.preempted++;
    }
    return true;
}
