/* SPDX-License-Identifier: MIT
 *
 * Stage processes: starts each with its environment, hands it messages and sockets, reads its
 * events, sees that it ends in time, and names its end. The spawner owns all processes until the
 * kernel has let go of them, with any owner; each start has one owner. Nothing here waits,
 * but spawner_free does for a moment. Loop thread. */
#ifndef DAEMON_SPAWN_H
#define DAEMON_SPAWN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/ipc.h"
#include "daemon/common/progress.h"
#include "engine/err.h"

struct cgroup;
struct event_base;
struct loan;
struct opts;
struct spawn;
struct spawner;

struct spawner_setup { /* the pointers are borrowed */
    struct event_base *base;
    const struct opts *opts; /* stage-binary, which may change, as may */
    const int *threads;
    const char *groups;     /* where processes get a control group each; NULL: nowhere; copied */
    uint64_t kill_after_us; /* from asking a process to end to making it; 0: 2 s */
    uint64_t give_up_us;    /* from then to no longer waiting for it; 0: 5 s */
};
struct spawner *spawner_new(const struct spawner_setup *setup);
/* Kills what still runs, and waits for it for at most 2 s. */
void spawner_free(struct spawner *m);
/* Bytes that processes have resident which were killed, belong to nobody any more and have not
 * ended: taken, though no job has them. */
uint64_t spawner_lingering(const struct spawner *m);

struct spawn_ops {
    void (*event)(void *owner, const char *kind, json_t *event); /* event: borrowed */
    /* The process is gone, or was killed and given up. `text` is the rest of a sentence about it
     * where it did not just exit: "was killed by SIGKILL …", what it said itself ("had to end: …")
     * or what it did wrong; else "". Comes last, once, also when nothing ends the process. */
    void (*ended)(void *owner, const char *text);
};

/* The program is --stage-binary; that nothing of --state-dir is its business is the first it is
 * told (daemon/stage/cell/cell.h). within_us: it has to end in that time, or is killed; 0: it may
 * run for ever. An error names the way out: also if too many processes that were killed have not
 * ended. */
int spawn_start(struct spawn **ret, struct spawner *m, uint64_t within_us, const struct spawn_ops *ops,
                void *owner, struct err *err);
/* In the order of the calls; what the stage does not take at once waits here. −EAGAIN: it takes
 * nothing any more, and too much waits. */
int spawn_send_file(struct spawn *s, json_t *message,
                    int fd); /* takes the reference; fd: borrowed, −1: none */
static inline int spawn_send(struct spawn *s, json_t *message)
{
    return spawn_send_file(s, message, -1);
}
/* Before all else: what a client opened for it. The loan is held until it has left; NULL: none. */
int spawn_lend(struct spawn *s, struct loan *loan);
int spawn_send_lane(struct spawn *s, const struct ipc_lane *lane, int fd); /* both are borrowed */

void spawn_end(struct spawn *s); /* asks it to end, and kills it if it does not */
/* At once; cause: what `ended` will say, "": that it was killed. Nothing more is read of it. */
void spawn_kill(struct spawn *s, const char *cause);
/* Its owner lets go, also from inside a callback: none comes any more. A process that still runs is
 * killed. */
void spawn_free(struct spawn *s);

/* Gives it a control group of its own. −errno: it has none, and runs all the same. 0 also where
 * there are no groups. */
int spawn_confine(struct spawn *s, uint64_t job);
pid_t spawn_pid(const struct spawn *s);
struct cgroup *spawn_group(const struct spawn *s); /* NULL: none */

uint64_t spawn_memory(const struct spawn *s); /* resident, with what is mapped of files; 0 = gone */
uint64_t spawn_peak(const struct spawn *s);   /* most that ever was, once it has ended; else 0 */
/* Why it ended. Of a signal from elsewhere another like it knows nothing; one that the kernel ended
 * for want of memory would end again. */
enum spawn_fate { SPAWN_HAS_FAILED, SPAWN_WAS_KILLED, SPAWN_WAS_STARVED };
enum spawn_fate spawn_fate(const struct spawn *s);
const struct progress *spawn_progress(const struct spawn *s);

#endif
