/* SPDX-License-Identifier: MIT
 *
 * Each microbatch has a row of every sequence that waits for its next token, but no more than its
 * share, so that as many are under way as there are stages; and the next pieces of prompts, so
 * many tokens of all of them together. */
#include "pipe/rows_order.h"

/* What a microbatch has so far. */
struct rows_filling {
    const struct rows_limits *limits;
    const struct rows_source *from;
    size_t seqs, choices;
    bool has_hidden;
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool wants_token(const struct rows_seq *q)
{
    return q->is_ready && q->left == 1 && !q->is_hidden && !q->is_read;
}

static bool wants_rows(const struct rows_seq *q)
{
    return q->is_ready && (q->left > 1 || q->is_hidden || (q->is_read && q->left));
}

struct census {
    size_t running, tokens, prompts;
};

static struct census count(const struct rows_source *from)
{
    struct census n = {0};
    for (void *at = from->next(from->owner, NULL); at; at = from->next(from->owner, at)) {
        const struct rows_seq q = from->look(at);
        n.running += q.is_running;
        n.tokens += wants_token(&q);
        n.prompts += wants_rows(&q);
    }
    return n;
}

struct rows_share rows_order_share(const struct rows_limits *limits, const struct rows_source *source)
{
    const struct census n = count(source);
    const size_t share = (n.running + limits->ranks - 1) / limits->ranks,
                 most = limits->seqs - (n.prompts && limits->seqs > 1),
                 choices = n.prompts ? most - smaller(most, n.prompts - 1) : most,
                 tokens = smaller(n.tokens, smaller(share, most));
    return (struct rows_share){tokens, choices > tokens ? choices - tokens : 0};
}

/* A token of each that waits for one, but of `share` at most, and guesses in equal parts. */
static int add_tokens(struct rows_filling *f, struct rows_share share)
{
    const struct rows_source *from = f->from;
    size_t spare = share.spare;
    for (void *at = from->next(from->owner, NULL); at && f->seqs < share.tokens;
         at = from->next(from->owner, at)) {
        const struct rows_seq q = from->look(at);
        const size_t left = share.tokens - f->seqs;
        const int n = wants_token(&q) ? from->token(from->owner, at, (spare + left - 1) / left) : 0;
        if (n < 0)
            return n;
        f->seqs += n > 0;
        f->choices += (size_t)n;
        spare -= n > 0 ? (size_t)n - 1 : 0;
    }
    return 0;
}

/* The oldest whose prompt is not read. */
static void *next_prompt(const struct rows_filling *f, struct rows_seq *ret)
{
    const struct rows_source *from = f->from;
    void *at = from->next(from->owner, NULL);
    for (; at; at = from->next(from->owner, at)) {
        *ret = from->look(at);
        if (wants_rows(ret) && !(f->has_hidden && ret->is_hidden))
            break;
    }
    return at;
}

static int add_prompts(struct rows_filling *f)
{
    size_t rows = f->limits->prompt;
    const size_t most = f->limits->seqs;
    void *at; /* looked for each time: taking rows changes who has some */
    struct rows_seq q;
    while (rows && f->seqs < most && f->choices < most && (at = next_prompt(f, &q))) {
        const size_t n = smaller(q.left, rows);
        const int chosen = f->from->piece(f->from->owner, at, n);
        if (chosen < 0)
            return chosen;
        f->seqs++;
        f->choices += (size_t)chosen;
        f->has_hidden = f->has_hidden || q.is_hidden;
        rows -= n;
    }
    return 0;
}

int rows_order_next(const struct rows_limits *limits, const struct rows_source *source)
{
    struct rows_filling f = {.limits = limits, .from = source};
    int r = add_tokens(&f, rows_order_share(limits, source));
    r = r ? r : add_prompts(&f);
    return r ? r : (int)f.seqs;
}
