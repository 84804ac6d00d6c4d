/* SPDX-License-Identifier: MIT
 *
 * The ledger of memory: every queue whose length somebody else decides (a client, another node, a
 * stage, a slow disk) has a name here and a cap in bytes. It counts, and decides nothing but "there
 * is room" or "there is none". What happens then is the queue's policy, which stands in the header
 * of its module: what is new is refused, or what is oldest goes. /metrics shows all of them.
 *
 * A queue is embedded in its owner and registered once, on the loop thread. Counting is for any
 * thread. */
#ifndef DAEMON_LEDGER_H
#define DAEMON_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ledger;

struct ledger_queue {
    struct ledger_queue *next; /* borrowed */
    const char *name;          /* static; a label of /metrics */
    size_t cap;                /* bytes */
    atomic_size_t bytes;
    atomic_uint_fast64_t refused; /* how often there was no room */
};

struct ledger *ledger_new(void);
void ledger_free(struct ledger *ledger);
/* The queue stays where it is for as long as the ledger is asked about it. ledger NULL: it counts
 * all the same, for tests of one module. */
void ledger_register(struct ledger *ledger, struct ledger_queue *queue, const char *name, size_t cap);
const struct ledger_queue *ledger_first(const struct ledger *ledger);

/* All n bytes or none. False: there is no room, and the owner follows its policy. */
bool ledger_take(struct ledger_queue *queue, size_t n);
void ledger_give(struct ledger_queue *queue, size_t n);
/* For an owner that keeps the sum itself, below the cap. */
void ledger_set(struct ledger_queue *queue, size_t bytes);

#endif
