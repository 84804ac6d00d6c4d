/* SPDX-License-Identifier: MIT
 *
 * The training examples of a golden case: four microbatches of one sequence each, and the same laid
 * end to end. */
#ifndef TESTS_LIB_EXAMPLES_H
#define TESTS_LIB_EXAMPLES_H

#include "tests/lib/chain.h"
#include "tests/lib/golden.h"

enum { EXAMPLES = 4, EXAMPLES_TOKENS = 96 };

struct examples {
    struct microbatch mb[EXAMPLES], packed; /* packed: all in one */
    uint32_t ids[EXAMPLES_TOKENS], start[EXAMPLES][2], starts[EXAMPLES + 1];
    int32_t labels[EXAMPLES_TOKENS];
    size_t supervised;
};

/* Where labels are −100 nothing is learned: the prompt, and the last token. */
void examples_open(struct examples *e, const struct golden *g);

#endif
