/* SPDX-License-Identifier: MIT
 *
 * Schedules written out, task by task, for the tests of plans. */
#ifndef TESTS_PLAN_LISTS_H
#define TESTS_PLAN_LISTS_H

#include "pipe/sched.h"

#define LIST(...)                                                                                            \
    {                                                                                                        \
        (struct sched_task[]){__VA_ARGS__},                                                                  \
            sizeof((struct sched_task[]){__VA_ARGS__}) / sizeof(struct sched_task), NULL                     \
    }
#define F(s, i)                                                                                              \
    {                                                                                                        \
        OP_F, s, i                                                                                           \
    }
#define I(s, i)                                                                                              \
    {                                                                                                        \
        OP_I, s, i                                                                                           \
    }
#define W(s, i)                                                                                              \
    {                                                                                                        \
        OP_W, s, i                                                                                           \
    }
#define B(s, i)                                                                                              \
    {                                                                                                        \
        OP_B, s, i                                                                                           \
    }

#endif
