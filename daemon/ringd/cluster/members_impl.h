/* SPDX-License-Identifier: MIT
 *
 * Inside the members: shared by members.c (records) and members_ring.c (what follows from them),
 * and by nobody else. PURE. */
#ifndef DAEMON_MEMBERS_IMPL_H
#define DAEMON_MEMBERS_IMPL_H

#include "daemon/ringd/cluster/members.h"

enum { FORMER = 4 }; /* lives of a node that are remembered beside the present one */

struct life {
    uint64_t boot, seq;
};
struct members_order { /* by ids: places in the table change hands */
    size_t n;          /* 0 = none */
    uint8_t id[RING_MAX_NODES][16];
};
/* The last ring computed, for one search may take 30 ms and records come all the time; and the ring
 * that stands. */
struct members_orders {
    bool has;
    struct ring_graph graph;
    struct ring_order best;
    struct members_order standing, coming;
    struct instant coming_since;
};
struct members {
    struct life former[RING_MAX_NODES][FORMER]; /* last words of each node's other lives, the latest first */
    uint64_t twin_boot, twin_seq;               /* last word under our own id that was not ours */
    uint64_t patience_us;                       /* 0 = none is too old */
    struct members_orders *orders;              /* owned */
    size_t n;
    bool stale[RING_MAX_NODES];
    struct member at[RING_MAX_NODES]; /* 0 = ourselves */
};

/* What members_learn does with a record that is decoded, and answers. */
int members_take(struct members *m, const struct member *news, struct instant said);

#endif
