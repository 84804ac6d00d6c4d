/* SPDX-License-Identifier: MIT
 *
 * Tokens that may come next: guessed from the request's own text (prompt lookup decoding; Saxena
 * 2023, github.com/apoorvumang/prompt-lookup-decoding), or by a draft model (draft_model.h).
 * Guessed tokens are rows of the same microbatch, and each is kept only if it is the very token
 * that would have been chosen. Who guesses, and how many, follows from what was measured. PURE;
 * any thread. */
#ifndef DAEMON_SERVE_DRAFT_H
#define DAEMON_SERVE_DRAFT_H

#include <stddef.h>
#include <stdint.h>

/* The tokens that followed the last place in ids [n] where the text was as it is at its end:
 * `most` to ret. Returns how many: 0 if there is no such place. */
size_t draft_find(const uint32_t *ids, size_t n, uint32_t *ret, size_t most);

/* What a microbatch costs by its rows, a line through what was seen: older ones count less and
 * less. Of a pass of the draft model likewise. All zero at the beginning. */
struct draft_cost {
    double weight, rows, us, rows_rows, rows_us;
};
void draft_cost_saw(struct draft_cost *cost, size_t rows, uint64_t us);

/* How many guesses were right; older ones count less. All zero at the beginning. */
struct draft_luck {
    double tried, right;
    unsigned rested; /* microbatches since it last guessed */
};
/* Of `guessed` tokens the first `right` were right. */
void draft_luck_saw(struct draft_luck *luck, size_t guessed, size_t right);

enum draft_kind { DRAFT_TEXT, DRAFT_MODEL, DRAFT_KINDS };

/* A sequence of the next microbatch. */
struct draft_case {
    size_t most;   /* guesses that it may have */
    size_t found;  /* guesses from its text that there are */
    size_t behind; /* rows that the draft model would compute before its first guess, 1 at least; 0: it
                      cannot guess for this one, or, decided here, is not to */
    size_t left;   /* tokens that are expected to come */
    struct draft_luck *luck[DRAFT_KINDS]; /* borrowed: its own */
    enum draft_kind kind;                 /* decided here, as the next */
    size_t length;
};

/* What is known of all sequences together. */
struct draft_known {
    struct draft_cost cost, pass;        /* of microbatches, and of the draft model's passes, */
    struct draft_cost read;              /* and of those in which it reads what is there */
    struct draft_luck luck[DRAFT_KINDS]; /* of all answers; rested counts for DRAFT_MODEL alone */
};

/* For each of n cases who guesses and how many, so that the microbatch gives the most tokens in a
 * time. What does not pay is tried now and then, because texts change. */
void draft_choose(struct draft_known *known, struct draft_case *cases, size_t n);

#endif
