/* SPDX-License-Identifier: MIT
 *
 * Rows of the option tables of more than one command that submits a job, or looks at one, so that
 * their names, bounds and help texts are the same. A row is an initializer of struct opt_def; what
 * differs from command to command is its argument. Owns nothing. */
#ifndef DAEMON_CTL_OPTIONS_H
#define DAEMON_CTL_OPTIONS_H

#include "daemon/common/optable.h"
#include "daemon/common/spec_limits.h"

#define OPTION_MODEL(what)                                                                                   \
    {                                                                                                        \
        .name = "model", .type = OPT_PATH, .placeholder = "DIR", .help = what, .required = true              \
    }
#define OPTION_MODEL_HELP "model, as a Hugging Face directory"
#define OPTION_WEIGHTS(what)                                                                                 \
    {                                                                                                        \
        .name = "weights", .type = OPT_CHOICE, .placeholder = "stored|int8|int4", .def = "stored",           \
        .help = what " as they are stored, or quantized to 8 or 4 bits when the job starts"                  \
    }
#define OPTION_COMPUTE                                                                                       \
    {                                                                                                        \
        .name = "compute", .type = OPT_CHOICE, .placeholder = "f32|bf16|int8", .def = "f32",                 \
        .help = "number type of products: f32; bf16, up to twice as fast for prompts and texts where CPUs "  \
                "have AVX512_BF16; int8, for weights of 8 or 4 bits. bf16 and int8 are slightly less exact"  \
    }
#define OPTION_ADAPTER                                                                                       \
    {                                                                                                        \
        .name = "adapter", .type = OPT_PATH, .placeholder = "DIR", .help = "apply this adapter to the model" \
    }
#define OPTION_MAX_TOKENS(preset, what)                                                                      \
    {                                                                                                        \
        .name = "max-tokens", .type = OPT_INT, .placeholder = "N", .def = preset, .min = 1,                  \
        .max = SPEC_TOKENS_MAX, .help = what                                                                 \
    }
#define OPTION_TEMPERATURE(preset)                                                                           \
    {                                                                                                        \
        .name = "temperature", .type = OPT_FLOAT, .placeholder = "X", .def = preset, .min = 0,               \
        .max = SPEC_TEMPERATURE_MAX,                                                                         \
        .help = "scale of randomness in the choice of tokens; 0 always takes the likeliest token"            \
    }
#define OPTION_TOP_P(preset)                                                                                 \
    {                                                                                                        \
        .name = "top-p", .type = OPT_FLOAT, .placeholder = "P", .def = preset, .min = SPEC_TOP_P_MIN,        \
        .max = 1, .help = "choose only among the likeliest tokens whose probabilities add up to P"           \
    }
#define OPTION_SEED(what)                                                                                    \
    {                                                                                                        \
        .name = "seed", .type = OPT_INT, .placeholder = "N", .def = "0", .min = 0, .max = SPEC_SEED_MAX,     \
        .help = what                                                                                         \
    }
#define OPTION_SYSTEM(what)                                                                                  \
    {                                                                                                        \
        .name = "system", .type = OPT_STRING, .placeholder = "S", .help = what                               \
    }
#define OPTION_TEMPLATE_ARG(what)                                                                            \
    {                                                                                                        \
        .name = "template-arg", .type = OPT_LIST, .placeholder = "NAME=VALUE", .help = what                  \
    }
#define OPTION_IDS(what)                                                                                     \
    {                                                                                                        \
        .name = "ids", .type = OPT_STRING, .placeholder = "1,2,3", .help = what                              \
    }
#define OPTION_FORECAST                                                                                      \
    {                                                                                                        \
        .name = "forecast", .type = OPT_FLAG,                                                                \
        .help = "time the nodes first, to forecast the speed; `ringctl job` compares the forecast with the " \
                "measured speed"                                                                             \
    }
#define OPTION_DRY_RUN                                                                                       \
    {                                                                                                        \
        .name = "dry-run", .type = OPT_FLAG,                                                                 \
        .help = "only plan the job, as `ringctl plan` does: show which node would hold which layers, and "   \
                "whether they fit"                                                                           \
    }

/* Of schedule and simulate, whose includes have the limits. */
#define OPTION_CHUNKS                                                                                        \
    {                                                                                                        \
        .name = "chunks", .type = OPT_INT, .placeholder = "N", .min = 1, .max = SCHED_MAX_CHUNKS,            \
        .help = "number of stages on each node, if the schedule allows a choice"                             \
    }
#define OPTION_ROUND_STEPS                                                                                   \
    {                                                                                                        \
        .name = "steps", .type = OPT_INT, .placeholder = "N", .min = 1, .max = PLAN_MAX_TURNS,               \
        .help = "number of steps of each adapter in a round (default: as many as a job has)"                 \
    }

#endif
