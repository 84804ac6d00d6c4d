/* SPDX-License-Identifier: MIT
 *
 * The daemon's end of the socket to a stage process: messages to it, which wait here while it takes
 * none, and its events. What it may send is limited, in bytes a message and in messages and bytes a
 * second: a stage that sends faster has to wait. Owned by spawn.c; loop thread. */
#ifndef DAEMON_SPAWN_SOCKET_H
#define DAEMON_SPAWN_SOCKET_H

#include <jansson.h>
#include <stddef.h>

struct event_base;
struct ipc_frame;
struct spawn_socket;

enum { SPAWN_EVENT_MAX = 16 << 20 }; /* bytes of one event */

struct spawn_socket_ops {
    void (*event)(void *owner, const char *kind, json_t *event); /* event: borrowed */
    /* It sent what is no event, and nothing more is read; why: the rest of a sentence that begins
     * with "the stage process". */
    void (*broken)(void *owner, const char *why);
    void (*closed)(void *owner); /* it closed its end */
};

struct spawn_socket *spawn_socket_new(struct event_base *base, int sock /* taken */,
                                      const struct spawn_socket_ops *ops, void *owner);
void spawn_socket_free(struct spawn_socket *s); /* not from its own callbacks */

/* Takes the frame. In the order of the calls; −EAGAIN: too much waits already. */
int spawn_socket_send(struct spawn_socket *s, struct ipc_frame *frame);
/* The process has ended: what it said before is read now, and passed on. */
void spawn_socket_drain(struct spawn_socket *s);
/* Nothing more is read or passed on. Also from its own callbacks. */
void spawn_socket_stop(struct spawn_socket *s);

#endif
