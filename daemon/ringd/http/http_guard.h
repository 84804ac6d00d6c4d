/* SPDX-License-Identifier: MIT
 *
 * Deadlines for HTTP connections. The server's own timeout counts inactivity, so a client that
 * sends one byte a second holds its place for ever; here a connection has until a moment. One
 * thread that sleeps until the next deadline, or for good. */
#ifndef DAEMON_HTTP_GUARD_H
#define DAEMON_HTTP_GUARD_H

#include <stdint.h>

struct guard;
struct guard_entry; /* one connection */

int guard_start(struct guard **ret);
void guard_stop(struct guard *guard); /* every entry has been removed */

/* Any thread. `expired` runs on the guard's thread, with the guard's lock held: it calls nothing
 * of this header. Once guard_remove has returned it is not running and will not run. */
struct guard_entry *guard_add(struct guard *guard, void (*expired)(void *owner), void *owner);
void guard_remove(struct guard *guard, struct guard_entry *entry);
void guard_set(struct guard *guard, struct guard_entry *entry,
               unsigned ms); /* from now; 0 = no deadline. Fires once */

#endif
