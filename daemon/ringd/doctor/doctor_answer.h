/* SPDX-License-Identifier: MIT
 *
 * What this node says about itself when it is asked how it is. Where a port is plugged in and hears
 * nobody, packets are counted for a moment first: that tells a firewall from a cable. Loop
 * thread. */
#ifndef DAEMON_DOCTOR_ANSWER_H
#define DAEMON_DOCTOR_ANSWER_H

#include <jansson.h>
#include <stdint.h>

struct doctor_answers;
struct doctor_setup;

struct doctor_answers *doctor_answers_new(const struct doctor_setup *setup); /* borrowed */
void doctor_answers_free(struct doctor_answers *a);
/* A message "doctor-ask". It is answered with "doctor-facts", within ANSWER_MS, or dropped where
 * too many wait. With "deep" all of the model is read first, however long that takes, and
 * "doctor-reading" says about once a second how far it is. */
void doctor_answer(struct doctor_answers *a, const uint8_t to[16], const json_t *ask);
/* A job begins on this node: nothing is read beside it. */
void doctor_answers_yield(struct doctor_answers *a);

/* The wall clock, in microseconds since 1970. */
int64_t doctor_wall_us(void);

#endif
