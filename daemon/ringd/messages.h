/* SPDX-License-Identifier: MIT
 *
 * Messages between daemons: who may send which, and who handles it. docs/PROTOCOL.md lists them. */
#ifndef DAEMON_MESSAGES_H
#define DAEMON_MESSAGES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct node;

/* A message for this node; body borrowed. Unknown kinds are dropped: a newer version may know
 * them. */
void messages_receive(struct node *n, const uint8_t from[16], const json_t *body);

const char *messages_kind(size_t i); /* the kinds there are; NULL behind the last */

#endif
