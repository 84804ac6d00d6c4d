/* SPDX-License-Identifier: MIT
 *
 * Control connections: the listener, the configured peers with their back-off, one connection per
 * neighbour, and messages to any node, relayed where it is no neighbour. Data connections come in
 * through the same listener and are handed to the worker. */
#ifndef DAEMON_PEERS_H
#define DAEMON_PEERS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "net/beacon.h"
#include "net/link.h"

struct cluster;
struct enrol;
struct event_base;
struct mailbox;
struct measure;
struct members;
struct opts;
struct peers;
struct port;
struct records;
struct relay;

/* What lies above the control connections is told through here; the pointers are borrowed. */
struct peers_ops {
    /* Our own record is about to be signed: it should say what this node does now; `doings` is the
     * same without the memory, which takes the kernel 50 µs to tell. */
    void (*refresh_self)(void *owner);
    void (*refresh_doings)(void *owner);
    /* The set of nodes or links changed; soon: such news come in crowds. */
    void (*changed)(void *owner);
    void (*changed_soon)(void *owner);
    void (*membership_changed)(void *owner);           /* a newer roster was taken */
    void (*record)(void *owner, const uint8_t id[16]); /* a node's record is news */
    void (*message)(void *owner, const uint8_t from[16], const json_t *body);
    /* A data connection came in: its hello (0, or why not), then the connection, which is given
     * away. */
    int (*data_hello)(void *owner, const struct link_hello *peer, char *why, size_t size);
    void (*data_up)(void *owner, struct link *link);
    /* A heartbeat came over the cable; our heartbeats are sent whole seconds from `beat` now. */
    void (*cable_heard)(void *owner, uint64_t cable);
    void (*connection_ended)(void *owner);
    void (*beat_changed)(void *owner, struct instant beat);
    /* A port of this machine, NULL: none such; the trouble with a cable, "" if there is none. */
    const struct port *(*port)(void *owner, unsigned ifindex);
    void (*cable_trouble)(void *owner, uint64_t cable, char *ret, size_t size);
};
struct peers_setup {
    struct event_base *base;
    const struct opts *opts;
    const struct auth_identity *id;
    const char *name, *state_dir; /* of this node; a member is called what its certificate says */
    struct cluster *cluster;
    struct enrol *enrol;
    struct members *members;
    struct records *records;
    struct mailbox *mailbox;
    struct measure *measure;
    struct relay *relay;
    const struct peers_ops *ops;
    void *owner; /* of ops */
};

/* Binds --listen (or takes the socket systemd, or ringctl local, passed) and starts dialling every
 * --peer. */
int peers_open(struct peers **ret, const struct peers_setup *setup, struct err *err);
void peers_close(struct peers *p);
uint16_t peers_port(const struct peers *p);

/* A message {"kind": …} to a node, ourselves included (delivered from the loop, never from inside).
 * Takes the reference. Not 0: it was not sent, and unsent.h has the words; −EHOSTUNREACH,
 * −ENOTCONN: there is no way now; −EMSGSIZE: more than 1 MiB as text; −ENOBUFS, −ENOMEM. */
int peers_send(struct peers *p, const uint8_t to[16], json_t *body);
/* The same to every member that can be reached, but not to ourselves. */
void peers_broadcast(struct peers *p, json_t *body);
/* Messages for this node so far that their author did not sign, or that were heard before. */
uint64_t peers_forged(const struct peers *p);
/* The roster is another: neighbours are told, those not in it are let go, and those just in are
 * called. */
void peers_membership_changed(struct peers *p);
/* A frame of measuring, on the connection of that path. −ENOTCONN, −ENOBUFS. */
int peers_send_measure(struct peers *p, uint64_t path, const uint8_t *body, size_t n);
/* What our links can do has changed. */
void peers_links_changed(struct peers *p);
/* Our record changed in a way the others should know at once. */
void peers_flood_self(struct peers *p);

/* What a link_setup of ours says, for a data connection too. Its psk is the cluster's newest,
 * borrowed until the next call. */
void peers_setup(struct peers *p, struct link_setup *ret);
struct instant peers_beat(const struct peers *p); /* heartbeats are sent whole seconds from then */
/* The ways to a neighbour: one per connection with it. */
enum { PEERS_MAX_PATHS = 4 };
struct path {
    uint64_t id; /* never 0, never used again */
    char host[64];
    uint16_t port;
    uint64_t cable;       /* 0 = a configured address */
    uint16_t max_segment; /* of a data connection over it: link_setup */
    bool ours;            /* we dial data connections over it, not the other end */
    bool peer_unanswered; /* the other end tried, and this node did not answer */
};
/* What people call it; "" where there is no such thing. */
struct path_name {
    char peer[64], port[32], cable[17];
};
/* False if the path is gone, or none. */
bool peers_path_name(struct peers *p, uint64_t path, struct path_name *ret);
size_t peers_paths(struct peers *p, const uint8_t id[16], struct path ret[PEERS_MAX_PATHS]);
/* Our dial of a data connection over the path came to nothing: from now on the other end dials
 * there; it gets a message. */
void peers_turn_path(struct peers *p, uint64_t path);
/* The other end of that cable (0 = a configured address) says the same to us. */
void peers_path_turned(struct peers *p, const uint8_t from[16], uint64_t cable);
/* The boot of that node as a connection that is up has proved it; 0 = none is. */
uint64_t peers_boot_of(const struct peers *p, const uint8_t id[16]);
/* Why the last connection to the node ended, "" if unknown. */
const char *peers_last_words(struct peers *p, const uint8_t id[16]);

/* A cable was found, or something about it changed; a cable is out. */
struct cable;
void peers_cable_up(struct peers *p, const struct cable *cable);
void peers_cable_down(struct peers *p, uint64_t cable, const char *why, enum cable_end end);
/* Ports have changed: what ran over one that is gone, ends, also where its cable had not been found
 * yet. */
void peers_ports_changed(struct peers *p);
/* Packets of so many bytes, and no larger ones, get over the cable: connections that would send
 * larger ones are replaced. */
void peers_cable_size(struct peers *p, uint64_t cable, uint32_t packet);
/* The path whose cable (or, without one, whose node) a data connection came over; 0 = none. */
uint64_t peers_path_of(struct peers *p, struct link *link, const uint8_t id[16]);

json_t *peers_encode(struct peers *p); /* for GET /v1/links */
/* What the way to each neighbour is like: [{"id","mbps","rtt_us"}, …], 0 where it is not known. */
json_t *peers_ways(struct peers *p);
/* How far the clocks of those of the nodes that are neighbours are ahead of ours: [[index, µs, µs
 * it may be off], …]. */
json_t *peers_clocks(struct peers *p, const uint8_t (*nodes)[16], size_t n);

#endif
