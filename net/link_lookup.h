/* SPDX-License-Identifier: MIT
 *
 * The addresses of a name, without keeping the loop from anything else: a resolver whose name
 * servers are silent takes many seconds. Called by link_dial.c on the loop. */
#ifndef NET_LINK_LOOKUP_H
#define NET_LINK_LOOKUP_H

#include <stdint.h>

struct addrinfo;
struct event_base;
struct lookup;

/* TCP addresses of host and port. `done` is called once, from the loop: with error 0 and what was
 * found, which is the callee's, or with a code of getaddrinfo and NULL. It may free the lookup.
 * −errno: it could not be begun, and `done` is not called. */
int lookup_start(struct lookup **ret, struct event_base *base, const char *host, uint16_t port,
                 void (*done)(void *owner, int error, struct addrinfo *found), void *owner);
void lookup_free(struct lookup *lookup); /* NULL is fine; before `done`: the answer is not wanted any more */

#endif
