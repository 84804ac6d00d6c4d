/* SPDX-License-Identifier: MIT
 *
 * PURE: which task's message each task of a compiled plan awaits. */
#ifndef DAEMON_TASK_CAUSES_H
#define DAEMON_TASK_CAUSES_H

#include <stddef.h>
#include <stdint.h>

struct plan;

/* What a task had to await: for each need, who made the message. */
struct task_cause {
    size_t rank, task;
    uint32_t emit; /* which of its messages */
};

/* [plan->ranks] of TASK_MAX_NEEDS causes for each task of the rank; a cause with task SIZE_MAX is
 * none. The caller frees with task_causes_free. */
struct task_cause **task_causes(const struct plan *plan);
void task_causes_free(struct task_cause **causes, size_t ranks); /* NULL is allowed */

#endif
