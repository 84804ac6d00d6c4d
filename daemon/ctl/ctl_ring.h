/* SPDX-License-Identifier: MIT
 *
 * A ring of daemons on this machine, for as long as ringctl local runs: made, awaited, watched,
 * ended. */
#ifndef DAEMON_CTL_RING_H
#define DAEMON_CTL_RING_H

#include <stdbool.h>
#include <sys/types.h>

enum { RING_NODES_MAX = 16 }; /* what a ring can hold */

struct ring_node {
    char *dir;     /* owned: its state directory; its log is dir/log */
    int port;      /* of its peer socket on 127.0.0.1 */
    int listen_fd; /* that socket, handed over at start; -1 after it */
    int notify_fd; /* where it says READY=1 */
    pid_t pid;     /* 0 = not started, or ended and collected */
    int pid_fd;    /* readable when it ends, -1 = none */
    bool is_ready;
    pid_t joiner; /* waits for it to get into the cluster, 0 = none */
};

struct local_ring {
    char *dir;    /* owned: everything lives below */
    char *socket; /* owned: of the first node */
    char *self;   /* owned: path of this ringctl */
    int threads;  /* per node */
    int n;
    int signal_fd; /* borrowed: SIGINT, SIGTERM, SIGHUP */
    struct ring_node nodes[RING_NODES_MAX];
};

/* Everything but processes: directory, sockets. An exit status, as below; on failure what was made
 * is for ring_remove. */
int ring_prepare(struct local_ring *ring, int n, int threads, int signal_fd);
/* Starts the daemons, makes them a cluster (a node alone needs none) and waits until the ring is
 * closed. */
int ring_start(struct local_ring *ring);
/* A daemon whose pid_fd is readable: collects it and says how it ended, with the last lines of its
 * log. */
void ring_tell_end(struct local_ring *ring, int node);
void ring_stop(struct local_ring *ring);              /* SIGTERM, five seconds, SIGKILL */
void ring_remove(struct local_ring *ring, bool keep); /* the directory too, unless it is kept */

#endif
