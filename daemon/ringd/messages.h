/* SPDX-License-Identifier: MIT
 *
 * Messages between daemons: who may send which, and who handles it. docs/PROTOCOL.md lists them. */
#ifndef DAEMON_MESSAGES_H
#define DAEMON_MESSAGES_H

#include <jansson.h>
#include <stdint.h>

struct node;

/* A message for this node; body borrowed. What message_table.h does not allow is dropped and
 * counted, unknown kinds too: a newer version may know them. */
void messages_receive(struct node *n, const uint8_t from[16], const json_t *body);

#endif
