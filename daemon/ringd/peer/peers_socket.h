/* SPDX-License-Identifier: MIT
 *
 * The listening socket of control and data connections, and addresses as people write them. Called
 * at start by peers.c, and by the API. Loop thread. */
#ifndef DAEMON_PEERS_SOCKET_H
#define DAEMON_PEERS_SOCKET_H

#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

/* "host:port", "[v6]:port" into host (cut to size) and port; −EINVAL. */
int peers_split_address(const char *text, char *host, size_t size, uint16_t *port);
/* The socket passed by systemd (or by whoever plays its part) under the name "peer", else one bound
 * to `address`. */
int peers_listen_socket(const char *address, struct err *err);
uint16_t peers_bound_port(int fd);

#endif
