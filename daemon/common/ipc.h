/* SPDX-License-Identifier: MIT
 *
 * Between ringd and the stage process it started: messages over a Unix stream socket, each behind a
 * u32 length, file descriptors beside them. Most are JSON objects. A data connection, whose keys
 * should stay in no more memory than they must, is a struct of its own, and is wiped where it was
 * on both sides. The stage may block; the daemon keeps what the socket does not take at once, and
 * goes on later (spawn.c). */
#ifndef DAEMON_IPC_H
#define DAEMON_IPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "net/seal.h"

enum { IPC_MAX = 64 << 20, IPC_FD = 3, IPC_PROGRESS_FD = 4, IPC_FDS_MAX = 253 /* SCM_MAX_FD */ };

/* The keys and counters of a data connection, whose socket goes beside them. */
struct ipc_lane {
    uint64_t path;
    uint32_t rank;
    struct seal tx, rx;
};

/* A message on its way. */
struct ipc_frame;
/* fd ≥ 0 is duplicated. The object's reference is taken. */
int ipc_frame_new(struct ipc_frame **ret, json_t *object, int fd);
int ipc_frame_new_lane(struct ipc_frame **ret, const struct ipc_lane *lane, int fd);
/* Descriptors, 1 to IPC_FDS_MAX, beside a blank, for ipc_receive_fds at the other end: an object
 * before it says what they are. They are borrowed until let_go(owner), once, when they have left or
 * the frame goes. −ENOMEM, −E2BIG: let_go was not called. */
int ipc_frame_new_fds(struct ipc_frame **ret, const int *fds, size_t n, void (*let_go)(void *owner),
                      void *owner);
/* Sends what the socket takes: 0 = all of it, −EAGAIN = the rest is still here, −EPIPE … = the
 * stage is gone. */
int ipc_frame_push(struct ipc_frame *frame, int sock);
size_t ipc_frame_left(const struct ipc_frame *frame);
void ipc_frame_free(struct ipc_frame *frame); /* wipes it */

/* Stage: sends one object, waiting for room. The reference is taken. */
int ipc_send(int sock, json_t *object);

/* Stage: waits for the next message: 0 = an object, 1 = a data connection, in ret_lane (NULL: none
 * is expected). ret_fd gets the descriptor or −1. −EPIPE when the daemon is gone, −EBADMSG on
 * nonsense. */
int ipc_receive(int sock, json_t **ret, struct ipc_lane *ret_lane, int *ret_fd);
/* Stage: waits for a frame of ipc_frame_new_fds. All n come, or none: −EBADMSG, −EPIPE, −EMFILE. */
int ipc_receive_fds(int sock, int *ret, size_t n);

/* Any socket: recvmsg(2) with `flags`, of at most `size` bytes and the descriptors beside them, at
 * most IPC_FDS_MAX, which are the caller's. ret_cut: there were more, or no room for them in this
 * process; the kernel has closed those. Returns bytes, 0 at the end, −errno. */
ssize_t ipc_read_fds(int sock, void *to, size_t size, int flags, int *ret, size_t *ret_n, bool *ret_cut);

#endif
