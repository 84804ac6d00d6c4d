/* SPDX-License-Identifier: MIT
 *
 * What the cables of this node can do: expected of such a port, negotiated by it, measured over it
 * (probe.h); and the class that follows for each neighbour, which goes into our record. Loop
 * thread. */
#ifndef DAEMON_MEASURE_H
#define DAEMON_MEASURE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/cluster/members.h"

struct cable;
struct event_base;
struct measure;
struct members;
struct port;

struct measure_setup {
    struct event_base *base; /* borrowed */
    struct members *members; /* borrowed */
    /* A frame of measuring, over the control connection of that path: 0, −ENOTCONN, −ENOBUFS. */
    int (*send)(void *owner, uint64_t path, const uint8_t *body, size_t n);
    /* Our own record is about to be read, and should say what this node does now. */
    void (*refresh_self)(void *owner);
    /* A port of this machine; NULL: none such. */
    const struct port *(*port)(void *owner, unsigned ifindex);
    /* What a cable can do is not what it was. */
    void (*changed)(void *owner);
    void *owner;
};
struct measure *measure_new(const struct measure_setup *setup);
void measure_free(struct measure *m);

/* From discovery: a cable is there or something about it is new; it is out; a port of ours has
 * changed. */
void measure_cable(struct measure *m, const struct cable *cable);
void measure_cable_gone(struct measure *m, uint64_t cable);
void measure_ports_changed(struct measure *m);

/* From the control connections: one over a cable is up (again is fine), or ended; a frame of it. */
void measure_link_up(struct measure *m, uint64_t cable, uint64_t path, const uint8_t peer[16]);
void measure_link_down(struct measure *m, uint64_t path);
void measure_frame(struct measure *m, uint64_t path, const uint8_t *body, size_t n);

/* Fills class and share of the way to link->id. All cables to a neighbour count together, because a
 * job's data is striped over all of them; those over a shared segment only where there is no
 * other. */
void measure_describe(struct measure *m, struct member_link *link);
/* Mbit/s that all those cables carry together, measured, or negotiated where nothing was measured
 * yet; 0 = not known. */
uint32_t measure_rate(const struct measure *m, const uint8_t peer[16]);
/* For GET /v1/links; NULL: no such cable. */
json_t *measure_encode(const struct measure *m, uint64_t cable);

#endif
