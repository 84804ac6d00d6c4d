/* SPDX-License-Identifier: MIT
 *
 * The choice of the next token from the logits of the head. PURE: called by the stage that has the
 * head.
 *
 * The order is that of Hugging Face's generate: adjustments of single tokens, temperature, top_k,
 * top_p, min_p. Each looks at what those before it left. Tokens that are
 * not allowed are no part of any of it. */
#ifndef TEXT_SAMPLE_H
#define TEXT_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* What is done to the logit of one token. */
struct sample_adjust {
    uint32_t id;
    float repeat; /* repetition penalty (Keskar et al., "CTRL", 2019, section 4.1): a positive logit is
                     divided by it, another one multiplied; 1: nothing */
    float add;    /* then added: a bias, less the presence and frequency penalties */
};

struct sample_params {
    float temperature; /* 0 = greedy: the first index of the maximum */
    float
        top_p; /* nucleus (Holtzman et al. 2019): smallest set of tokens of at least this probability; 1 = all */
    float min_p;    /* least probability, as a share of the likeliest token's (Nguyen et al. 2024); 0 = all */
    uint32_t top_k; /* so many of the likeliest tokens (Fan et al. 2018); 0 = all */
    uint64_t seed;
    const struct sample_adjust *adjust; /* [nadjust] borrowed: in turn; each id below vocab */
    size_t nadjust;
    /* Which tokens may be chosen: bit id % 64 of word id / 64, [sample_words(vocab)] borrowed, at
     * least one of them; NULL: all. */
    const uint64_t *allowed;
};

static inline size_t sample_words(size_t vocab)
{
    return (vocab + 63) / 64;
}

/* Chooses from logits [vocab] for the index-th new token of a sequence: a pure function of its
 * arguments, so a rerun with the same seed repeats. `scratch` holds vocab entries. */
struct sample_scratch {
    float p;
    uint32_t id;
};
uint32_t sample_token(const float *logits, size_t vocab, const struct sample_params *params, uint64_t index,
                      struct sample_scratch *scratch);

#endif
