/* SPDX-License-Identifier: MIT
 *
 * Which rows the next microbatch of serving takes: a token of each sequence that waits for one, and
 * pieces of prompts. What serves asks here (daemon/stage/serve), and what foresees serving asks
 * here, too (daemon/ctl/forecast), so that both do the same. PURE but for what the caller's
 * functions do; any thread. */
#ifndef PIPE_ROWS_ORDER_H
#define PIPE_ROWS_ORDER_H

#include <stdbool.h>
#include <stddef.h>

struct rows_limits {
    size_t ranks;  /* of the pipeline: as many microbatches are under way, at most */
    size_t seqs;   /* of a microbatch: sequences, and tokens that are chosen behind its rows */
    size_t prompt; /* of a microbatch: tokens of prompts */
};

/* Sequences that are worked on at once, at most. */
static inline size_t rows_running_most(const struct rows_limits *l)
{
    return l->seqs * l->ranks;
}

/* A sequence, as the order sees it. */
struct rows_seq {
    bool is_running; /* it has room for keys and values */
    bool is_ready;   /* and has no rows under way, nor has it ended */
    bool is_hidden;  /* wanted are its hidden values, and no token: of one such in a microbatch */
    bool is_read;    /* no token is wanted behind its rows */
    size_t left;     /* positions that are not computed; 1: that of its last token */
};

/* The sequences, and what is done with them. `token` and `piece` return how many tokens are chosen
 * behind the rows they took, or −errno. What they do may change other sequences. */
struct rows_source {
    void *owner;
    void *(*next)(void *owner, void *seq); /* by age; of NULL the oldest; NULL: no more */
    struct rows_seq (*look)(const void *seq);
    /* The row of its last token, and up to `most` guesses behind it. 0: not now, and it took no
     * row. */
    int (*token)(void *owner, void *seq, size_t most);
    int (*piece)(void *owner, void *seq, size_t n); /* its next n rows */
};

/* What one microbatch will have: the first so many of the sequences that wait for a token, and
 * guesses of all of them together. */
struct rows_share {
    size_t tokens, spare;
};
struct rows_share rows_order_share(const struct rows_limits *limits, const struct rows_source *source);

/* One microbatch. Returns how many sequences have rows in it, 0: there is nothing to compute; or
 * the first −errno of the caller's functions. */
int rows_order_next(const struct rows_limits *limits, const struct rows_source *source);

#endif
