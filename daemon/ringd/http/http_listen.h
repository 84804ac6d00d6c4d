/* SPDX-License-Identifier: MIT
 *
 * The sockets the HTTP server listens on, bound by us so that their mode, their port and what is
 * wrong with them are ours to say. */
#ifndef DAEMON_HTTP_LISTEN_H
#define DAEMON_HTTP_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"

/* Mode 0660; a socket file nobody answers on is replaced. */
int listen_unix(int *ret_fd, const char *path, struct err *err);

/* The Unix socket that systemd holds for us, named "control"; −1 if there is none. The last to
 * look: what was inherited is not asked about again. */
int listen_inherited(void);

struct listen_addr {
    char host[256]; /* without brackets */
    uint16_t port;  /* the one bound */
    bool is_loopback;
};
int listen_tcp(int *ret_fd, struct listen_addr *ret_addr, const char *addr_port, struct err *err);
/* Reads "127.0.0.1:80", "[::1]:0", "localhost:80" without binding: port is the one asked for. */
int listen_read_addr(struct listen_addr *ret, const char *addr_port, struct err *err);

#endif
