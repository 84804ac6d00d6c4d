/* SPDX-License-Identifier: MIT
 *
 * A plan that has something in every field, for test_job_plan.c and test_job_plan_use.c. */
#ifndef TESTS_UNIT_JOB_PLAN_EXAMPLE_H
#define TESTS_UNIT_JOB_PLAN_EXAMPLE_H

#include "daemon/common/job_plan.h"

/* Adapters that are trained together have the forms of the first. */
#define EXAMPLE_FORMS .nforms = 2, .forms = {{8, 0.1f}, {3, 2}}, .form = {{0, 1, 2, 0, 1}, {0, 0, 0, 0, 2}}

/* Rank 0 has stages 0 and 3, and the embedding and the head. */
static size_t example_mapped[] = {500, 1, 1, 1, 0, 2000, 3000};

static inline struct job_plan example(void)
{
    return (struct job_plan){.type = JOB_SCORE,
                             .model = "/models/a \"b\" \xc3\xa9",
                             .fingerprint = "0123456789abcdef0123456789abcdef",
                             .ranks = 3,
                             .stages = 4,
                             .first = {0, 0, 3, 4, 5},
                             .place = {0, 1, 2, 0},
                             .schedule = "own",
                             .order = (char *)"0F0,3F0\n1F0\n",
                             .microbatches = 7,
                             .round_steps = 20,
                             .tune = {.kind = TUNE_LORA,
                                      .rank = 8,
                                      .alpha = 0.1f,
                                      .dropout = 0.05f,
                                      .rslora = true,
                                      .init = LORA_INIT_GAUSSIAN,
                                      .plus_ratio = 16.5,
                                      .dora = true,
                                      .layer_decay = 0.9,
                                      .ntargets = 2,
                                      .targets = {"q_proj", "down_proj"},
                                      .first_layer = 1,
                                      .end_layer = 5,
                                      EXAMPLE_FORMS,
                                      .seed = 9000000000000001,
                                      .random_init = true},
                             .nmore = 2,
                             .more = {{.kind = TUNE_LORA,
                                       .rank = 16,
                                       .alpha = 0.3f,
                                       .init = LORA_INIT_ORTHOGONAL,
                                       .plus_ratio = 2,
                                       .fixed = 8,
                                       .layer_decay = 0.5,
                                       .ntargets = 2,
                                       .targets = {"q_proj", "down_proj"},
                                       .first_layer = 1,
                                       .end_layer = 5,
                                       EXAMPLE_FORMS,
                                       .seed = 3,
                                       .random_init = true},
                                      {.kind = TUNE_LORA,
                                       .rank = 4,
                                       .alpha = 7,
                                       .dropout = 0.5f,
                                       .rslora = true,
                                       .ntargets = 2,
                                       .targets = {"q_proj", "down_proj"},
                                       .first_layer = 1,
                                       .end_layer = 5,
                                       EXAMPLE_FORMS,
                                       .random_init = true}},
                             .training = true,
                             .kv = true,
                             .by_layer = true,
                             .tokens = 96,
                             .seqs = 3,
                             .positions = 32,
                             .sample = 20,
                             .weight_bits = 4,
                             .compute = NUM_BF16,
                             .vocab = 512,
                             .dim = 64,
                             .slots = {3, 2, 1, 4},
                             .activations = {0, 1, 0, 2},
                             .bwd_x_only = {3, 1, 1, 2},
                             .bwd_w_only = {2, 1, 0, 1},
                             .bytes = {UINT64_C(1) << 40, 3, 0},
                             .draft_bytes = UINT64_C(1) << 30,
                             .nmapped = sizeof example_mapped / sizeof *example_mapped,
                             .mapped = example_mapped,
                             .tied = true};
}

#endif
