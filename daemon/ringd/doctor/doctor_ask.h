/* SPDX-License-Identifier: MIT
 *
 * `ringctl doctor` in the daemon: asks every node that can be reached, this one too, for facts
 * about itself, waits for two seconds at most (where all of a model is to be read, for as long as
 * nodes tell that they read), has them judged (doctor.h) and answers the HTTP request. Loop
 * thread. */
#ifndef DAEMON_DOCTOR_ASK_H
#define DAEMON_DOCTOR_ASK_H

#include <jansson.h>
#include <stdint.h>

struct doctor;
struct http_call;
struct node;

struct doctor *doctor_new(struct node *node);
void doctor_free(struct doctor *d); /* whoever waits for an answer is told that the daemon ends */

/* GET /v1/doctor; ?model=DIR compares that directory on all nodes. */
void doctor_get(struct doctor *d, struct http_call *call);
/* POST /v1/doctor {"model":DIR}: every node reads all of that directory first. */
void doctor_post(struct doctor *d, struct http_call *call);
/* A job begins on this node. */
void doctor_yield(struct doctor *d);
/* "doctor-ask", "doctor-reading" and "doctor-facts"; others are none of its business. */
void doctor_message(struct doctor *d, const uint8_t from[16], const char *kind, const json_t *body);

#endif
