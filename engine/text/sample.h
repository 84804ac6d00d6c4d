/* SPDX-License-Identifier: MIT
 *
 * The choice of the next token from the logits of the head. PURE: called by the stage that has the
 * head. */
#ifndef TEXT_SAMPLE_H
#define TEXT_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

struct sample_params {
    float temperature; /* 0 = greedy: the first index of the maximum */
    float
        top_p; /* nucleus (Holtzman et al. 2019): smallest set of tokens of at least this probability; 1 = all */
    uint64_t seed;
};

/* Chooses from logits [vocab] for the index-th new token of a sequence: a pure function of its
 * arguments, so a rerun with the same seed repeats. `scratch` holds vocab entries. */
struct sample_scratch {
    float p;
    uint32_t id;
};
uint32_t sample_token(const float *logits, size_t vocab, const struct sample_params *params, uint64_t index,
                      struct sample_scratch *scratch);

#endif
