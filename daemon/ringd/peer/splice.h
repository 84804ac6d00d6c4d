/* SPDX-License-Identifier: MIT
 *
 * Two sockets made one: what comes in at either goes out at the other, by splice(2), so that the
 * bytes pass through the kernel only. As much waits here as a pipe holds in each direction; a
 * receiver that is slow slows its sender. Owned by a relay; loop thread. */
#ifndef DAEMON_SPLICE_H
#define DAEMON_SPLICE_H

#include <stdint.h>

struct event_base;
struct splice;

/* Takes both sockets, on failure too. `ended` is called once, from the loop: both ends have closed,
 * one broke, or one closed and the other did not within 10 s. The callee frees the splice, now or
 * later. */
int splice_new(struct splice **ret, struct event_base *base, int a, int b, void (*ended)(void *owner),
               void *owner);
void splice_free(struct splice *s);
uint64_t splice_bytes(const struct splice *s); /* carried so far, both directions */

#endif
