/* SPDX-License-Identifier: MIT */
#include "train/eval_figures.h"

#include <math.h>
#include <string.h>

#include "text/pytext.h"
#include "text/utf8.h"

struct eval_share eval_share_of(size_t right, size_t n)
{
    const double mean = (double)right / (double)n, others = (double)(n - right);
    /* Σ (x − mean)² of ones and zeros. */
    const double squares = (double)right * (1 - mean) * (1 - mean) + others * mean * mean;
    return (struct eval_share){mean, n < 2 ? (double)NAN : sqrt(squares / (double)(n - 1) / (double)n)};
}

/* The first of those with the largest value, as numpy's argmax. */
static size_t likeliest(const struct eval_row *row, const double *logprobs, bool by_length)
{
    size_t best = 0;
    double most = -INFINITY;
    for (size_t i = 0; i < row->nanswers; i++) {
        const struct eval_text *answer = &row->answers[i];
        const double value =
            by_length ? logprobs[i] / (double)pytext_length(answer->text, answer->n) : logprobs[i];
        if (value > most) {
            most = value;
            best = i;
        }
    }
    return best;
}

bool eval_is_acc(const struct eval_row *row, const double *logprobs)
{
    return likeliest(row, logprobs, false) == row->right;
}

bool eval_is_acc_norm(const struct eval_row *row, const double *logprobs)
{
    return likeliest(row, logprobs, true) == row->right;
}

static struct eval_text stripped(const char *text, size_t n)
{
    const size_t before = pytext_lspace(text, n);
    return (struct eval_text){(char *)(uintptr_t)(text + before), pytext_rspace(text + before, n - before)};
}

bool eval_is_match(const struct eval_row *row, const char *text, size_t n)
{
    const struct eval_text said = stripped(text, n);
    for (size_t i = 0; i < row->nanswers; i++) {
        const struct eval_text answer = stripped(row->answers[i].text, row->answers[i].n);
        if (answer.n == said.n && !memcmp(answer.text, said.text, said.n))
            return true;
    }
    return false;
}

static size_t count_words(const char *text, size_t n)
{
    size_t words = 1;
    bool in_space = false;
    for (size_t i = 0; i < n;) {
        const struct utf8_char c = utf8_next(text + i, n - i);
        const bool is_space = pytext_is_space(c.cp);
        words += is_space && !in_space;
        in_space = is_space;
        i += c.len;
    }
    return words;
}

void eval_perplexity_add(struct eval_perplexity *to, const struct eval_row *row, double logprob)
{
    to->logprob += logprob;
    to->words += count_words(row->context.text, row->context.n);
    to->bytes += row->context.n;
}

double eval_word_perplexity(const struct eval_perplexity *p)
{
    return exp(-p->logprob / (double)p->words);
}

double eval_byte_perplexity(const struct eval_perplexity *p)
{
    return exp(-p->logprob / (double)p->bytes);
}

double eval_bits_per_byte(const struct eval_perplexity *p)
{
    return -p->logprob / (double)p->bytes / log(2);
}
