/* SPDX-License-Identifier: MIT
 *
 * The doctor's calls: a TCP connection to every neighbour on every cable, made and let go, to see
 * whether a firewall lets it through. Called by doctor_answer.c. Loop thread. */
#ifndef DAEMON_DOCTOR_CALL_H
#define DAEMON_DOCTOR_CALL_H

#include <jansson.h>
#include <stdint.h>

struct event_base;
struct doctor_calls;

/* Calls each two-way neighbour of `ports` (as of GET /v1/ports). `answered` comes from the loop
 * once all have answered, perhaps never. NULL: there is nobody to call. */
struct doctor_calls *doctor_calls_start(struct event_base *base, const json_t *ports,
                                        void (*answered)(void *owner), void *owner);
/* Adds to each neighbour that was called `tcp`: "open", "refused", or "silent" as long as it has
 * not answered; and `half_open`: its own call has arrived at our port `own_port`, and what we
 * answer does not arrive there. */
void doctor_calls_tell(const struct doctor_calls *c, json_t *ports, uint16_t own_port);
void doctor_calls_free(struct doctor_calls *c);

#endif
