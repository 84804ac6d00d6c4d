/* SPDX-License-Identifier: MIT
 *
 * `ringctl doctor` in the daemon: asks every node that can be reached, this one too, for facts
 * about itself, waits for two seconds at most (where all of a model is to be read, for as long as
 * nodes tell that they read), has them judged (doctor.h) and says what was found. Loop
 * thread. */
#ifndef DAEMON_DOCTOR_ASK_H
#define DAEMON_DOCTOR_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"

struct doctor;
struct doctor_setup;

struct doctor *doctor_new(const struct doctor_setup *setup);
void doctor_free(struct doctor *d); /* questions under way are answered with NULL */

/* Examines all nodes. With a model (the path of its folder), compares it on all nodes; is_deep:
 * every node reads all of it first. `done` comes once, from the loop or from doctor_free:
 * {"node","findings"}, whose reference it takes, or NULL when the daemon ends. −EINVAL, −EBUSY:
 * `done` does not come, and err says why. */
int doctor_examine(struct doctor *d, const char *model, bool is_deep,
                   void (*done)(void *owner, json_t *answer), void *owner, struct err *err);
/* A job begins on this node. */
void doctor_yield(struct doctor *d);
/* The messages "doctor-ask", "doctor-facts" and "doctor-reading". */
void doctor_take_ask(struct doctor *d, const uint8_t from[16], const json_t *body);
void doctor_take_facts(struct doctor *d, const uint8_t from[16], const json_t *body);
void doctor_take_reading(struct doctor *d, const uint8_t from[16], const json_t *body);

#endif
