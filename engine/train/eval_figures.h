/* SPDX-License-Identifier: MIT
 *
 * What a model's answers to a set of questions amount to. The figures are those of EleutherAI's
 * lm-evaluation-harness, by its names and formulas (lm_eval/api/metrics.py, lm_eval/api/task.py).
 * Pure functions: sums run over rows in their order. */
#ifndef TRAIN_EVAL_FIGURES_H
#define TRAIN_EVAL_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

#include "train/eval_set.h"

/* A share of rows, and its standard error: s / √n with the sample's standard deviation s
 * (`mean_stderr`); not a number of fewer than two rows. */
struct eval_share {
    double mean, stderr_of;
};
struct eval_share eval_share_of(size_t right, size_t n);

/* Is the right choice the likeliest? logprobs [row->nanswers]: sums over tokens. */
bool eval_is_acc(const struct eval_row *row, const double *logprobs);
/* The same with each sum divided by the characters of its choice. */
bool eval_is_acc_norm(const struct eval_row *row, const double *logprobs);

/* Is the text one of the answers, but for white space around both? */
bool eval_is_match(const struct eval_row *row, const char *text, size_t n);

/* Over all texts: `weighted_perplexity` and `bits_per_byte`. */
struct eval_perplexity {
    double logprob; /* sum over all tokens, natural logarithm */
    size_t words;   /* of each text the parts between runs of white space, as Python's re.split(r"\s+") */
    size_t bytes;
};
void eval_perplexity_add(struct eval_perplexity *to, const struct eval_row *row, double logprob);
double eval_word_perplexity(const struct eval_perplexity *p); /* exp(−logprob / words) */
double eval_byte_perplexity(const struct eval_perplexity *p); /* exp(−logprob / bytes) */
double eval_bits_per_byte(const struct eval_perplexity *p);   /* −logprob / bytes / ln 2 */

#endif
