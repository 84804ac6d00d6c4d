/* SPDX-License-Identifier: MIT
 *
 * What the options of a job may be: read by the tables of ringctl, which refuse at once, and by
 * job_spec.c, which refuses what came another way. Floating-point limits are macros because C 17
 * has no constants of that kind. */
#ifndef DAEMON_SPEC_LIMITS_H
#define DAEMON_SPEC_LIMITS_H

enum spec_limits {
    SPEC_RANK_MAX = 4096,
    SPEC_LAYERS_MAX = 65535,
    SPEC_BATCH_MAX = 65535,
    SPEC_MICRO_BATCH_MAX = 4096,
    SPEC_SEQ_LEN_MAX = 1 << 20,
    SPEC_STEPS_MAX = 1 << 24,
    SPEC_EPOCHS_MAX = 1 << 20,
    SPEC_TOKENS_MAX = 1 << 20,
    SPEC_TOP_LOGPROBS_MAX = 20,
    SPEC_KEEP_ALIVE_MAX = 86400, /* seconds */
    SPEC_KV_SIZE = 4096,
    SPEC_SAMPLE_TOKENS_MAX = 4096, /* a sample is an event of its job */
};

#define SPEC_ALPHA_MIN 1e-6
#define SPEC_ALPHA_MAX 1e6
#define SPEC_DROPOUT_MAX 0.99
#define SPEC_PLUS_RATIO_MIN 1e-3
#define SPEC_PLUS_RATIO_MAX 1e4
#define SPEC_LR_MAX 100.0
#define SPEC_LR_LORA 5e-4 /* where nothing is said */
#define SPEC_LR_FULL 2e-4
#define SPEC_WEIGHT_DECAY_MAX 100.0
#define SPEC_GRAD_NORM_MAX 1e9
#define SPEC_TEMPERATURE_MAX 100.0
#define SPEC_TOP_P_MIN 1e-6
#define SPEC_SEED_MAX 9e15 /* what JSON's numbers hold exactly */

#endif
