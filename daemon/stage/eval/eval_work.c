/* SPDX-License-Identifier: MIT */
#include "daemon/stage/eval/eval_work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/pytext.h"
#include "engine/text/textbuf.h"

struct eval_maker {
    struct eval_work *work;
    const struct tokenizer *tok; /* borrowed */
    size_t answer_tokens;        /* of a generation, at most */
    const char *option;          /* which says so */
    uint32_t first;              /* stands before a text that has no other token before it */
    bool has_first;
    struct err *err;
};

static int no_memory(const struct eval_maker *m)
{
    return err_set(m->err, -ENOMEM, "out of memory for so many questions: give --limit N");
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* --- sequences -------------------------------------------------------------------------------- */

/* [n] tokens behind `before`, if there is one; its numbers count the one before. */
static int add_seq(const struct eval_maker *m, const struct eval_seq *like, const uint32_t *before,
                   const uint32_t *ids)
{
    struct eval_work *w = m->work;
    struct eval_seq seq = *like;
    if (array_reserve((void **)&w->ids, &w->ids_room, w->nids + seq.n, sizeof *w->ids) ||
        array_reserve((void **)&w->seqs, &w->seqs_room, w->nseqs + 1, sizeof *w->seqs))
        return no_memory(m);
    seq.at = w->nids;
    if (before)
        w->ids[w->nids] = *before;
    memcpy(w->ids + w->nids + !!before, ids, (seq.n - !!before) * sizeof *ids);
    w->nids += seq.n;
    w->seqs[w->nseqs++] = seq;
    w->positions = larger(w->positions, seq.n + m->answer_tokens);
    return 0;
}

static int encode(const struct eval_maker *m, const char *text, size_t n, bool special, uint32_t **ret,
                  size_t *ret_n)
{
    return tokenizer_encode(m->tok, text, n, special, ret, ret_n, m->err);
}

/* What a text without a token before it is scored behind: the token that the tokenizer begins with,
 * else the one that ends texts. */
static int find_first(struct eval_maker *m, const struct config *config)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    const int r = encode(m, "", 0, true, &ids, &n);
    m->has_first = !r && (n || config->neos);
    if (m->has_first)
        m->first = n ? ids[0] : (uint32_t)config->eos[0];
    free(ids);
    return r;
}

/* --- multiple choice -------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Context and answer are one text, since tokens may lie across. Spaces that end the context count
 * as the answer's. */
static int add_choice(const struct eval_maker *m, const struct eval_row *row, size_t answer, size_t context,
                      size_t at_row)
{
    const struct eval_text *c = &row->context, *a = &row->answers[answer];
    const bool apart = (c->n && is_space(c->text[c->n - 1])) || is_space(*a->text) || !c->n;
    const size_t most = m->work->seq_len + 1; /* the last one is not computed */
    uint32_t *ids = NULL;
    size_t n = 0;
    char *text;
    const int length = asprintf(&text, "%s%s%s", c->text, apart ? "" : " ", a->text);
    if (length < 0)
        return no_memory(m);
    int r = encode(m, text, (size_t)length, true, &ids, &n);
    free(text);
    const bool wants_first = !context && m->has_first;
    struct eval_seq seq = {
        .n = n + wants_first, .from = context, .row = at_row, .answer = answer, .follows = answer > 0};
    const size_t cut = seq.n > most ? seq.n - most : 0;
    seq.n -= cut;
    seq.from = seq.from + wants_first > cut ? seq.from + wants_first - cut : 0;
    seq.from = seq.from < seq.n ? larger(seq.from, 1) : seq.n - 1;
    if (!r && seq.n < 2)
        r = err_set(m->err, -EBADMSG, "the row of line %zu has a choice of no token: \"%.60s\"", row->line,
                    a->text);
    m->work->cut += cut && !answer;
    if (!r)
        r = add_seq(m, &seq, wants_first && !cut ? &m->first : NULL,
                    wants_first && cut ? ids + cut - 1 : ids + cut);
    free(ids);
    return r;
}

static int add_choices(const struct eval_maker *m, size_t at_row)
{
    const struct eval_row *row = &m->work->set.rows[at_row];
    uint32_t *ids = NULL;
    size_t context = 0;
    int r =
        encode(m, row->context.text, pytext_rspace(row->context.text, row->context.n), true, &ids, &context);
    free(ids);
    for (size_t a = 0; a < row->nanswers && !r; a++)
        r = add_choice(m, row, a, context, at_row);
    return r;
}

/* --- generation ------------------------------------------------------------------------------- */

static int add_prompt(const struct eval_maker *m, size_t at_row)
{
    const struct eval_row *row = &m->work->set.rows[at_row];
    const size_t most = m->work->seq_len - m->answer_tokens;
    uint32_t *ids = NULL;
    size_t n = 0;
    int r = encode(m, row->context.text, row->context.n, true, &ids, &n);
    const size_t cut = n > most ? n - most : 0;
    if (!r && !n && !m->has_first)
        r = err_set(m->err, -EBADMSG, "the prompt of line %zu has no token", row->line);
    const struct eval_seq seq = {.n = n ? n - cut : 1, .from = n ? n - cut : 1, .row = at_row};
    m->work->cut += cut > 0;
    if (!r)
        r = add_seq(m, &seq, n ? NULL : &m->first, ids + cut);
    free(ids);
    return r;
}

/* --- perplexity ------------------------------------------------------------------------------- */

/* Windows of as many tokens as a sequence may have, each behind one token. The last one begins
 * sooner, so that it is as long as the others. */
static int add_windows(const struct eval_maker *m, size_t at_row)
{
    const struct eval_row *row = &m->work->set.rows[at_row];
    const size_t window = m->work->seq_len;
    uint32_t *ids = NULL;
    size_t n = 0;
    int r = encode(m, row->context.text, row->context.n, false, &ids, &n);
    if (!r && n + m->has_first < 2)
        r = err_set(m->err, -EBADMSG, "the text of line %zu has %zu tokens: at least two are needed",
                    row->line, n);
    for (size_t done = 0, end; done < n && !r; done = end) {
        end = n - done > window ? done + window : n;
        const bool wants_first = m->has_first && end <= window;
        const size_t begin = end > window ? end - window - 1 : 0;
        struct eval_seq seq = {.n = end - begin + wants_first, .row = at_row};
        seq.from = larger(seq.n - (end - done), 1);
        if (seq.n > 1)
            r = add_seq(m, &seq, wants_first ? &m->first : NULL, ids + begin);
    }
    free(ids);
    return r;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int make(struct eval_maker *m, const struct config *config)
{
    static int (*const add[EVAL_TASKS])(const struct eval_maker *, size_t) = {
        [EVAL_CHOICE] = add_choices, [EVAL_GENERATION] = add_prompt, [EVAL_PERPLEXITY] = add_windows};
    struct eval_work *w = m->work;
    int r = find_first(m, config);
    if (!r && m->answer_tokens >= w->seq_len)
        r = err_set(m->err, -EINVAL,
                    "%s %zu leaves no room for a prompt in %zu tokens: make it smaller, or --seq-len larger",
                    m->option, m->answer_tokens, w->seq_len);
    for (size_t i = 0; i < w->set.n && !r; i++)
        r = add[w->set.task](m, i);
    for (size_t i = 0; i < w->nids && !r; i++)
        if (w->ids[i] >= config->vocab)
            r = err_set(m->err, -ERANGE,
                        "the tokenizer makes token %u, but the model has only %zu: are they of one model?",
                        w->ids[i], config->vocab);
    return r;
}

int eval_work_new(struct eval_work **ret, const struct job_spec *spec, const struct config *config,
                  const struct tokenizer *tok, struct err *err)
{
    const struct eval_request req = {
        .path = spec->data, .task = spec->task, .limit = spec->limit, .fields = spec->fields};
    const size_t made_for = config_positions(config);
    struct eval_work *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    w->seq_len = spec->seq_len < made_for ? spec->seq_len : made_for;
    int r = eval_set_open(&w->set, &req, err);
    struct eval_maker m = {.work = w, .tok = tok, .err = err};
    m.answer_tokens = w->set.task == EVAL_GENERATION ? spec->max_tokens : 0;
    m.option = spec->type == JOB_TRAIN ? "--sample-tokens" : "--max-tokens";
    if (!r)
        r = make(&m, config);
    if (r)
        eval_work_free(w);
    else
        *ret = w;
    return r;
}

void eval_work_free(struct eval_work *w)
{
    if (!w)
        return;
    eval_set_done(&w->set);
    free(w->ids);
    free(w->seqs);
    free(w);
}
