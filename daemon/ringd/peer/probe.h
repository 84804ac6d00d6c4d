/* SPDX-License-Identifier: MIT
 *
 * How fast each cable is: who measures when, and the burst itself, as frames on the cable's control
 * connection. PURE: takes frames and the time, sends frames through its owner. measure.c feeds it.
 *
 *   smaller id                       other
 *   ASK            ------------->    busy, or measuring another cable: NO
 *                  <-------------    YES
 *   BURST          ------------->    k frames; measured from the arrival of the first to that of
 *   the last
 *                  <-------------    REPORT: bytes after the first, microseconds;   k = 4, 16, 60
 *                  until a burst
 *                                    takes 10 ms, and that three times: the middle one counts
 *   TURN: the rate ------------->    the same the other way round
 *                  <-------------    DONE: the rate
 *
 * A node takes part in one at a time, and only while neither end works on a job: a step of one ends
 * it. Where many ways are up, as on a switch of 16, they first all come up, and then a node takes
 * part in a few at once and in the rest one by one. */
#ifndef DAEMON_PROBE_H
#define DAEMON_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/clock.h"

enum probe_limits {
    PROBE_WAYS = 64,
    PROBE_FRAME = 256 << 10,    /* as large as the messages of a job are cut */
    PROBE_FIRST = 4,            /* frames of the first burst */
    PROBE_FRAMES = 60,          /* of one burst: what a connection may have waiting is 16 MiB */
    PROBE_ENOUGH_US = 10000,    /* a burst that took so long says enough */
    PROBE_TIMES = 3,            /* so many of them, for either end may have been held up once */
    PROBE_LONG_US = 50000,      /* one that took so long says all */
    PROBE_FIRST_US = 3000000,   /* after a cable came up: the ring forms first */
    PROBE_AGAIN_US = 600000000, /* after a measurement, */
    PROBE_USUAL =
        4, /* where a node has so many ways; with more the same in all, so that a switch of 16 is not busy measuring, */
    PROBE_PACE_US = 30000000, /* and beyond the first so many one each so long */
    PROBE_RETRY_US =
        500000, /* when somebody was busy; doubled each time, with up to as much again by chance */
    PROBE_RETRY_MAX_US = 60000000,
    PROBE_ANSWER_US = 3000000, /* an end that is not heard for so long has given up */
};

struct probe;
struct probe_ops {
    int (*send)(void *owner, uint64_t path, const uint8_t *body, size_t n);
    bool (*idle)(void *owner, const uint8_t peer[16]); /* neither we nor it work on a job */
    void (*measured)(void *owner, uint64_t cable);
};
struct probe *probe_new(const uint8_t self[16], uint64_t seed, const struct probe_ops *ops, void *owner);
void probe_free(struct probe *p);

/* A connection is up over a cable (again is fine), or gone. What was measured of a cable is kept
 * while it is away. */
void probe_up(struct probe *p, uint64_t cable, uint64_t path, const uint8_t peer[16], struct instant now);
void probe_down(struct probe *p, uint64_t path, struct instant now);
/* It may be another now: its speed is not what it was. */
void probe_again(struct probe *p, uint64_t cable, struct instant now);
void probe_frame(struct probe *p, uint64_t path, const uint8_t *body, size_t n, struct instant now);
void probe_tick(struct probe *p, struct instant now);
struct instant probe_due(const struct probe *p); /* when to tick; UINT64_MAX: after the next change */

struct probe_result {
    uint32_t tx_mbps, rx_mbps; /* 0 = not measured */
    struct instant at;
};
bool probe_is_up(const struct probe *p, uint64_t cable); /* a connection runs over it */
/* false: never measured. */
bool probe_result(const struct probe *p, uint64_t cable, struct probe_result *ret);

#endif
