/* SPDX-License-Identifier: MIT
 *
 * Between ringd and the stage process it started: JSON objects over a Unix stream socket, each behind a u32
 * length, file descriptors (data connections) beside them. The daemon sends without blocking; the stage may
 * block. */
#ifndef DAEMON_IPC_H
#define DAEMON_IPC_H

#include <jansson.h>
#include <stddef.h>

enum { IPC_MAX = 64 << 20, IPC_FD = 3, IPC_PROGRESS_FD = 4 };

/* Sends one object, with fd ≥ 0 beside it. 0 or −errno (−EAGAIN: the stage does not read; −EPIPE: it is
 * gone). The object's reference is taken. */
int ipc_send(int sock, json_t *object, int fd);

/* Stage: waits for the next object; ret_fd gets the descriptor or −1. −EPIPE when the daemon is gone,
 * −EBADMSG on nonsense. */
int ipc_receive(int sock, json_t **ret, int *ret_fd);

#endif
