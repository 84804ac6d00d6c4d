/* SPDX-License-Identifier: MIT
 *
 * Reads all of a model in a stage process of its own, to compare nodes: one at a time, never beside
 * a job. Loop thread. */
#ifndef DAEMON_DOCTOR_DEEP_H
#define DAEMON_DOCTOR_DEEP_H

#include <jansson.h>
#include <stdbool.h>

struct doctor_deep;
struct doctor_setup;

/* From the loop, but never from inside a call below. `done`: as model_facts.h has it, borrowed.
 * `reading`: about once a second. */
struct doctor_deep_ops {
    void (*done)(void *owner, const json_t *model);
    void (*reading)(void *owner, const json_t *event);
};
/* setup, ops: borrowed. */
struct doctor_deep *doctor_deep_new(const struct doctor_setup *setup, const struct doctor_deep_ops *ops,
                                    void *owner);
void doctor_deep_free(struct doctor_deep *d);
/* NULL: it is read, or was being read already; else a sentence that says why not. */
const char *doctor_deep_read(struct doctor_deep *d, const char *dir);
/* A job begins here: the reading ends with an error that says so. */
void doctor_deep_yield(struct doctor_deep *d);

#endif
