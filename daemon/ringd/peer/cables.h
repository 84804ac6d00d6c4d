/* SPDX-License-Identifier: MIT
 *
 * Discovery in the daemon: the ports of this machine, the finder on them, and the cables it finds,
 * handed to peers. Silent until the node is in a cluster. Loop thread. */
#ifndef DAEMON_CABLES_H
#define DAEMON_CABLES_H

#include <jansson.h>
#include <stdint.h>

#include "engine/err.h"
#include "net/clock.h"

struct cables;
struct event_base;
struct cluster;
struct enrol;
struct measure;
struct member;
struct members;
struct opts;
struct peers;

struct cables_setup {
    struct event_base *base; /* borrowed, as all here */
    const struct opts *opts;
    const char *name; /* of this node, as beacons tell it */
    struct cluster *cluster;
    struct members *members;
    struct enrol *enrol;
    struct measure *measure;
    struct peers *peers;
};

/* Lists the ports by --ports-allow and --ports-deny and watches them; with --discover off, does
 * nothing at all. */
int cables_open(struct cables **ret, const struct cables_setup *setup, struct err *err);
void cables_close(struct cables *c); /* says goodbye on every cable */
/* A heartbeat has come over the cable: if its port is flooded, that stands for a beacon. */
void cables_heard(struct cables *c, uint64_t cable);
/* A connection with some node is no more: what said goodbye before goes now. */
void cables_connection_ended(struct cables *c);
void cables_keep_step(struct cables *c, struct instant beat); /* beacons with heartbeats */
/* The cluster's network keys are others, or we have just become a member. */
void cables_keys_changed(struct cables *c);

/* A join has begun that names no member: asks on every cable while enrol has a question. */
void cables_search(struct cables *c);

/* A port of this machine; NULL: none such, or nothing is looked for. */
struct port;
const struct port *cables_port(const struct cables *c, unsigned ifindex);

/* What is wrong with the packets that a cable passes, with the way out: a sentence, "" if nothing
 * is. */
enum { CABLES_TROUBLE = 360 };
void cables_trouble(const struct cables *c, uint64_t cable, char ret[static CABLES_TROUBLE]);

/* The same for every cable of which the log says so: a sentence each is appended to the array, for
 * GET /v1/status. */
void cables_add_troubles(const struct cables *c, json_t *to);

/* Our ends of the cables that have subnets, for our record. */
void cables_describe(const struct cables *c, struct member *self);

/* For GET /v1/ports: every port with what is heard on it, and for each neighbour that is no cable,
 * why. */
json_t *cables_encode(struct cables *c);
/* And the addresses of all other nodes' ends of cables, as their records tell. */
json_t *cables_elsewhere_encode(const struct members *members);
/* And Thunderbolt of the machine as a whole: where the driver is missing there are no ports to say
 * it. */
json_t *cables_thunderbolt_encode(struct cables *c);
/* For the doctor: beacons counted by what became of them, why ringd-link is of no help, and
 * addresses or routes of this machine within a cable's subnet that lead elsewhere. */
json_t *cables_health(struct cables *c);

#endif
