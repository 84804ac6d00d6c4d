/* SPDX-License-Identifier: MIT
 *
 * What systemd passes to the daemon and hears from it: sd_notify(3), sd_listen_fds(3) and the
 * journal's native protocol, which are datagrams and variables. libsystemd would bring five more
 * libraries, 1 MiB of resident memory, for this much. Owns nothing. Without systemd nothing is
 * handed over, and what is sent goes nowhere. Loop thread; the journal from any. */
#ifndef DAEMON_SYSTEMD_H
#define DAEMON_SYSTEMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* text: lines of VARIABLE=VALUE, such as "READY=1". Never waits. */
void systemd_notify(const char *text);
/* How often WATCHDOG=1 is wanted at least, in microseconds; 0: never. */
uint64_t systemd_watchdog_us(void);
/* The socket handed over under that name, −1: none. Children inherit none of them from now on. */
int systemd_socket(const char *name);

/* --- descriptors that systemd keeps over a restart: its file descriptor store ----------------- */

/* To systemd, for systemd_store; the caller closes it. It can be written while systemd reads.
 * −ENOENT: there is no systemd; or another negative errno. */
int systemd_connect(void);
/* systemd keeps a duplicate of fd under that name, until the name is removed or the service stops;
 * fd −1 removes all of that name. systemd says nothing back: what is above the unit's
 * FileDescriptorStoreMax= it closes, and says so in its log. Never waits. 0, −EAGAIN: systemd does
 * not read now; or another negative errno. */
int systemd_store(int sock, const char *name, int fd);
/* Calls for each descriptor that it has kept and handed over to this process; each is taken. */
void systemd_stored(void (*each)(void *owner, const char *name, int fd), void *owner);

struct systemd_field {
    const char *name, *value; /* borrowed; a value may have several lines */
};
/* An entry in the form of the journal. Returns its bytes, 0 when they are more than cap. */
size_t systemd_encode(const struct systemd_field *fields, size_t n, char *ret, size_t cap);
/* To the journal. Never waits. 0, or a negative errno: −EAGAIN, the journal does not read now. */
int systemd_log(const struct systemd_field *fields, size_t n);

#endif
