/* SPDX-License-Identifier: MIT
 *
 * What a generation had read and generated when it lost a stage process, as its daemon kept it
 * (ringd/job/survive/token_log.h): rank 0 brings the caches to where they were, and goes on. Main
 * thread of rank 0. */
#ifndef DAEMON_SO_FAR_H
#define DAEMON_SO_FAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

/* A prompt and what was generated after it: of a conversation one of several. */
struct so_far_turn {
    size_t kept;      /* positions whose caches it found, below n_ids */
    uint32_t *ids;    /* [n_ids] owned: the whole prompt */
    uint32_t *answer; /* [n_answer] owned */
    size_t n_ids, n_answer;
    uint64_t seed;
};

struct so_far {
    struct so_far_turn *turns; /* [n] owned: each begins behind the one before, as kept says */
    size_t n;                  /* 0: nothing was read yet */
    size_t first_prompt;       /* tokens of the very first prompt: the caches were planned for it */
    bool is_told_again;        /* the daemon has lost what was said of the last answer */
};

/* {"first_prompt", "again", "turns": [{"kept", "seed", "ids", "answer"}]}, `ids` of each turn from
 * `kept` on; NULL: there is nothing. −EBADMSG with a sentence. */
int so_far_read(struct so_far *ret, const json_t *json, size_t vocab, struct err *err);
void so_far_done(struct so_far *s);
/* −EBADMSG: more than a job with caches for so many positions and answers of so many tokens can
 * have. */
int so_far_fits(const struct so_far *s, size_t positions, size_t max_tokens, struct err *err);

/* The positions of turn `turn` that later turns found in the caches. */
size_t so_far_needed(const struct so_far *s, size_t turn);

#endif
