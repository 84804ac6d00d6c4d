/* SPDX-License-Identifier: MIT
 *
 * Memory shared by a stage process and its daemon: what the stage is doing right now. The stage
 * writes, the daemon reads when it makes a heartbeat; nothing is sent, nothing waits. */
#ifndef DAEMON_PROGRESS_H
#define DAEMON_PROGRESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum progress_state {
    PROGRESS_STARTING,
    PROGRESS_COMPUTING,
    PROGRESS_WAITING_FOR,
    PROGRESS_WAITING_TO,
    PROGRESS_ENDING,
    PROGRESS_IDLE /* the model is loaded, and nobody says anything */
};

/* A data connection's path over one stage's life: whoever opens one there again counts on. */
enum { PROGRESS_LANES = 64 }; /* the last place is for all that come later */
struct progress_lane {
    uint64_t path;         /* written before `used` */
    _Atomic uint32_t used; /* 1: a path has this place */
    _Atomic uint32_t rtt_us;
    _Atomic uint64_t tx_bytes, rx_bytes, retransmits;
    _Atomic uint64_t keyed_us; /* when what is sent there got its key, as since_us; 0: no lane is there */
};

struct progress {
    _Atomic uint32_t state;
    _Atomic uint32_t what;     /* task kind while computing, message kind while waiting: pipe/plan.h */
    _Atomic uint32_t mb, rank; /* microbatch; the rank waited for */
    _Atomic uint64_t since_us; /* CLOCK_BOOTTIME of the last change of state */
    _Atomic uint64_t step, tasks, tx_bytes, rx_bytes;
    _Atomic uint64_t busy_us, wait_us; /* computing, and standing still between two tasks of a round */
    struct progress_lane lanes[PROGRESS_LANES];
    _Atomic uint32_t has_last_words; /* 1: those below are whole */
    char last_words[512];            /* of a stage that a signal ends: "had to end: …" */
};

/* A fresh page in a memfd for the stage to inherit, whose size nobody can change; −errno. */
int progress_create(struct progress **ret, int *ret_fd);
struct progress *progress_attach(int fd); /* NULL on failure */
void progress_detach(struct progress *p);

void progress_set(struct progress *p, enum progress_state state, uint32_t what, uint32_t mb, uint32_t rank);
/* "computing F3 of step 12", "waiting for rank 1: activations 3 of step 12" … */
void progress_describe(const struct progress *p, char *buf, size_t n);
/* The place of that path; by one thread at a time. */
struct progress_lane *progress_lane(struct progress *p, uint64_t path);
/* What a stage said when a signal ended it; "" = nothing. ret [sizeof last_words]. */
void progress_last_words(const struct progress *p, char *ret);
double progress_seconds(const struct progress *p); /* in the present state */

#endif
