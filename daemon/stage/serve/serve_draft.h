/* SPDX-License-Identifier: MIT
 *
 * Tokens that may come next, guessed from the request's own text (prompt lookup decoding; Saxena
 * 2023, github.com/apoorvumang/prompt-lookup-decoding). Guessed tokens are rows of the same
 * microbatch, and each is kept only if it is the very token that would have been chosen. How many
 * are worth their rows follows from what was measured. PURE; any thread. */
#ifndef DAEMON_SERVE_DRAFT_H
#define DAEMON_SERVE_DRAFT_H

#include <stddef.h>
#include <stdint.h>

/* The tokens that followed the last place in ids [n] where the text was as it is at its end:
 * `most` to ret. Returns how many: 0 if there is no such place. */
size_t draft_find(const uint32_t *ids, size_t n, uint32_t *ret, size_t most);

/* What a microbatch costs by its rows, a line through what was seen: older ones count less and
 * less. All zero at the beginning. */
struct draft_cost {
    double weight, rows, us, rows_rows, rows_us;
};
void draft_cost_saw(struct draft_cost *cost, size_t rows, uint64_t us);

/* How many guesses were right, of one answer; older ones count less. All zero at the beginning. */
struct draft_luck {
    double tried, right;
    unsigned rested; /* microbatches since it last guessed */
};
/* Of `guessed` tokens the first `right` were right. */
void draft_luck_saw(struct draft_luck *luck, size_t guessed, size_t right);

/* How many guesses, up to `most`, give the most tokens in a time, in a microbatch of `rows`
 * without them. One that does not pay is tried now and then, because texts change. */
size_t draft_length(const struct draft_cost *cost, struct draft_luck *luck, size_t rows, size_t most);

#endif
