/* SPDX-License-Identifier: MIT
 *
 * Rows of the option tables of more than one command that submits a job, or looks at one, so that
 * their names, bounds and help texts are the same. A row is an initializer of struct opt_def; what
 * differs from command to command is its argument. Owns nothing. */
#ifndef DAEMON_CTL_OPTIONS_H
#define DAEMON_CTL_OPTIONS_H

#include "daemon/common/optable.h"

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
