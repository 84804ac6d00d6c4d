/* SPDX-License-Identifier: MIT
 *
 * A small plan that can be read: one stage of one layer on each rank. What a test is about it sets
 * in the struct. */
#ifndef TESTS_LIB_SMALL_PLAN_H
#define TESTS_LIB_SMALL_PLAN_H

#include "daemon/common/job_plan.h"

static inline struct job_plan small_plan(enum job_type type, size_t ranks)
{
    struct job_plan p = {.type = type,
                         .model = "/m",
                         .fingerprint = "00112233445566778899aabbccddeeff",
                         .ranks = ranks,
                         .microbatches = 1,
                         .round_steps = 1,
                         .training = type == JOB_TRAIN,
                         .kv = type == JOB_GENERATE,
                         .tokens = 8,
                         .seqs = 1,
                         .positions = 8,
                         .vocab = 16,
                         .dim = 4,
                         .tune = {.kind = type == JOB_TRAIN ? TUNE_LORA : TUNE_NONE,
                                  .rank = 2,
                                  .alpha = 16,
                                  .ntargets = 1,
                                  .targets = {"q_proj"},
                                  .end_layer = ranks}};
    job_plan_place_single(&p);
    for (size_t r = 0; r < ranks; r++) {
        p.first[r + 1] = r + 1;
        p.slots[r] = 1;
        p.bytes[r] = 1 << 20;
    }
    if (type == JOB_TRAIN)
        for (size_t i = 0; i < sizeof "1f1b"; i++)
            p.schedule[i] = "1f1b"[i];
    return p;
}

/* As the message job-planned has it; the caller owns it. */
static inline json_t *small_plan_told(const struct job_plan *plan, uint64_t steps)
{
    return json_pack("{s:o s:I}", "plan", job_plan_encode(plan), "steps", (json_int_t)steps);
}

#endif
