/* SPDX-License-Identifier: MIT
 *
 * What it costs the CPUs of this node that gradients go to other nodes: packing, sealing, the
 * system's copies, opening, adding. Where all cores compute, that time is missing there. Called by
 * stage_search.c, in the stage process of rank 0; takes some tens of milliseconds. */
#ifndef DAEMON_HANDLING_COST_H
#define DAEMON_HANDLING_COST_H

#include <stdbool.h>

/* Seconds for each byte that is sent, and one that is received in return. */
struct handling_cost {
    double added; /* of gradients, which are packed and added, and much else of the system's work with them */
    double gathered; /* of a message of one chunk: sealed, copied and opened */
};
/* `may_time` false: a job works on this node, and what a usual CPU takes is returned; without
 * memory likewise. */
struct handling_cost handling_cost(bool may_time);

#endif
