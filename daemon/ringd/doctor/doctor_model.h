/* SPDX-License-Identifier: MIT
 *
 * Reads what a model directory is, on a thread of its own, since the loop must not wait for a disk
 * or a network share. One at a time. Loop thread. */
#ifndef DAEMON_DOCTOR_MODEL_H
#define DAEMON_DOCTOR_MODEL_H

#include <jansson.h>

struct doctor_model;
struct mailbox;

/* `done` comes from the loop, as model_facts.h has it, borrowed. */
struct doctor_model *doctor_model_new(struct mailbox *mailbox, void (*done)(void *owner, const json_t *model),
                                      void *owner);
/* A read that hangs is left to itself. */
void doctor_model_free(struct doctor_model *m);
/* −EBUSY: another directory is being read. The same one again: done is called once for both. */
int doctor_model_read(struct doctor_model *m, const char *dir);

#endif
