/* SPDX-License-Identifier: MIT
 *
 * TCP connections that somebody has begun and nobody has finished: the kernel lists them with those
 * that stand. A call that arrives here while our answer does not arrive there shows at which of two
 * nodes a firewall drops TCP. Called by peers_blocked.c and the doctor. Any thread. */
#ifndef DAEMON_HALF_OPEN_H
#define DAEMON_HALF_OPEN_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a call from that IPv6 address ("fe80::1", "fe80::1%3") to our port waits for the caller's
 * answer. root: "" but in tests. */
bool half_open_from(const char *root, const char *address, uint16_t port);

#endif
