/* SPDX-License-Identifier: MIT
 *
 * Stage processes: starts one with its environment, hands it messages and sockets, reads its
 * events, and names its end. Loop thread; after spawn_free no callback fires. */
#ifndef DAEMON_SPAWN_H
#define DAEMON_SPAWN_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/ipc.h"
#include "daemon/common/progress.h"
#include "engine/err.h"

struct event_base;
struct opts;
struct spawn;

struct spawn_ops {
    void (*event)(void *owner, const char *kind, json_t *event); /* event: borrowed */
    /* The process is gone. `text` says how where that was not a plain exit: "was killed by SIGKILL
     * …", or what it said itself ("had to end: …"), else "". Comes last. */
    void (*ended)(void *owner, const char *text);
};

/* The program is --stage-binary; that nothing of --state-dir is its business is the first it is
 * told (daemon/stage/cell/cell.h). */
int spawn_start(struct spawn **ret, struct event_base *base, const struct opts *opts, int threads,
                const struct spawn_ops *ops, void *owner, struct err *err);
/* In the order of the calls; what the stage does not take at once waits here. −EAGAIN: it takes
 * nothing any more, and too much waits. */
int spawn_send(struct spawn *s, json_t *message);                          /* takes the reference */
int spawn_send_lane(struct spawn *s, const struct ipc_lane *lane, int fd); /* both are borrowed */
void spawn_kill(struct spawn *s, int signal);
pid_t spawn_pid(const struct spawn *s);
uint64_t spawn_memory(const struct spawn *s); /* resident, with what is mapped of files; 0 = gone */
uint64_t spawn_peak(const struct spawn *s);   /* most that ever was, once it has ended; else 0 */
const struct progress *spawn_progress(const struct spawn *s);
/* Kills the process if it still runs, and reaps it. */
void spawn_free(struct spawn *s);

#endif
