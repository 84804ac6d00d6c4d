/* SPDX-License-Identifier: MIT
 *
 * Rows of the option tables of more than one command that submits a job, so that they are called,
 * bounded and told of in one way. A row is an initializer of struct opt_def; what differs from
 * command to command is its argument. Owns nothing. */
#ifndef DAEMON_CTL_OPTIONS_H
#define DAEMON_CTL_OPTIONS_H

#include "daemon/common/optable.h"
#include "daemon/common/spec_limits.h"

#define OPTION_MODEL(what)                                                                                   \
    {                                                                                                        \
        .name = "model", .type = OPT_PATH, .placeholder = "DIR", .help = what, .required = true              \
    }
#define OPTION_MODEL_HELP "the model, a Hugging Face directory"
#define OPTION_WEIGHTS(what)                                                                                 \
    {                                                                                                        \
        .name = "weights", .type = OPT_CHOICE, .placeholder = "stored|int8|int4", .def = "stored",           \
        .help = what " as they are stored, or quantized to 8 or 4 bits when the job starts"                  \
    }
#define OPTION_COMPUTE                                                                                       \
    {                                                                                                        \
        .name = "compute", .type = OPT_CHOICE, .placeholder = "f32|bf16|int8", .def = "f32",                 \
        .help = "multiply in f32; or what has many rows, as prompts and texts do, in bf16, summed in f32, "  \
                "up to twice as fast where CPUs have AVX512_BF16; or weights of 8 or 4 bits in whole "       \
                "numbers of 8 bits; both are a little less exact"                                            \
    }
#define OPTION_ADAPTER                                                                                       \
    {                                                                                                        \
        .name = "adapter", .type = OPT_PATH, .placeholder = "DIR", .help = "an adapter to put on it"         \
    }
#define OPTION_MAX_TOKENS(preset, what)                                                                      \
    {                                                                                                        \
        .name = "max-tokens", .type = OPT_INT, .placeholder = "N", .def = preset, .min = 1,                  \
        .max = SPEC_TOKENS_MAX, .help = what                                                                 \
    }
#define OPTION_TEMPERATURE(preset)                                                                           \
    {                                                                                                        \
        .name = "temperature", .type = OPT_FLOAT, .placeholder = "X", .def = preset, .min = 0,               \
        .max = SPEC_TEMPERATURE_MAX, .help = "0 for the likeliest token each time"                           \
    }
#define OPTION_TOP_P(preset)                                                                                 \
    {                                                                                                        \
        .name = "top-p", .type = OPT_FLOAT, .placeholder = "P", .def = preset, .min = SPEC_TOP_P_MIN,        \
        .max = 1, .help = "choose among the likeliest tokens that make up this share"                        \
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
                "speed reached"                                                                              \
    }
#define OPTION_DRY_RUN                                                                                       \
    {                                                                                                        \
        .name = "dry-run", .type = OPT_FLAG,                                                                 \
        .help =                                                                                              \
            "only plan, as `ringctl plan` does: which node would hold which layers, and whether they fit"    \
    }

#endif
