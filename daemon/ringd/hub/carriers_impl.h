/* SPDX-License-Identifier: MIT
 *
 * What carriers.c (models and nodes), carriers_give.c (who asks for one) and carrier_hub.c (the
 * hub as a source) share. Loop thread. */
#ifndef DAEMON_CARRIERS_IMPL_H
#define DAEMON_CARRIERS_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/common/model/model_name.h"
#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/peer/peers.h"
#include "net/clock.h"
#include "net/link.h"
#include "net/ring.h"

struct ipc_lane;
struct lanes;
struct timer;

enum {
    NODES = 2 * RING_MAX_NODES, /* with which a model is shared at once, */
    MODELS = 16,                /* and models that are */
    SOON_MS = 25,    /* a source that gives nothing yet is asked again, after twice as long each time, */
    AGAIN_MS = 3000, /* at most */
    PATIENCE_S = 30, /* for the first word of any source, or of a taker that has asked, */
    STALL_S = 600    /* and for the next byte: sources that wait for each other say that they are here */
};
/* What the other end of a connection is: carry_frame.h. */
enum { RANK_SOURCE = 0, RANK_TAKER = 1, RANK_HUB = 2 };
enum { NUMBER = sizeof(((struct link_hello *)NULL)->fingerprint) }; /* how a hello names a model */

struct carrier;
struct carry_lend;

/* A connection: how the process calls it, and the path that it goes over. */
struct carry_way {
    uint64_t number, path;
};

/* The hub, as this node asks it for what no other node has. */
struct carry_hub {
    bool is_wanted;
    bool is_vain;            /* it gives nothing to this node: why */
    struct hub_fetch *fetch; /* owned: the process that asks it */
    uint64_t number;         /* of the connection with that process; 0: none */
    struct instant since;    /* it is wanted, or was last tried */
    unsigned tries;          /* that ended with their process, */
    uint64_t done;           /* since when so many bytes were here */
    char why[500];           /* the last reason that it gives nothing */
};

/* A node at the other end; one that gives and takes is there twice, and once more if it asks the
 * hub for this one, or the other way round. */
struct carry_node {
    struct carrier *c;   /* borrowed: owner; NULL = this place is free */
    struct lanes *lanes; /* owned */
    uint8_t id[16];
    bool is_source, is_barred;     /* it sent what it must not, or has nothing of the hub */
    bool is_hub;                   /* a source that asks the hub; a taker for which this node does */
    uint64_t done;                 /* of the former: bytes that were here when its connection was made */
    LIST_HEAD(, carry_lend) lends; /* of the latter: owned: a process for each connection */
    struct instant since;          /* it was added, or its last lane was lost */
    size_t up;                     /* lanes */
    struct carry_way ways[PEERS_MAX_PATHS];
    char why[300]; /* the last reason that it gives nothing */
};

struct carrier {
    LIST_ENTRY(carrier) next;
    struct carriers *all; /* borrowed: owner */
    char model[MODEL_NAME], content[MODEL_CONTENT + 1];
    char list[MODEL_CONTENT + 1];    /* the hash of its list of blocks; "": not known */
    struct hub_fetch *fetch;         /* owned: from the first connection on */
    json_t *want;                    /* owned: all that is still to come; NULL: nothing */
    uint64_t wants;                  /* number of the last order to want something */
    uint64_t ways;                   /* of the last connection */
    const struct hub_fetch_ops *ops; /* of who takes; NULL: it only gives */
    void *owner;
    struct carry_node nodes[NODES];
    struct carry_hub hub;
    struct timer *again;   /* owned */
    unsigned soon_ms;      /* until it is due, if a source gives nothing yet */
    struct instant waited; /* since when no source has been heard */
    struct instant moved;  /* when the last bytes came, */
    uint64_t done;         /* of which there were so many then */
};

struct carriers {
    struct carriers_setup setup;
    LIST_HEAD(, carrier) list;
    size_t n;
};

/* carriers.c. NULL: there is none; of add_node: there are too many. */
struct carrier *carrier_find(const struct carriers *all, const char *model);
struct carrier *carrier_new(struct carriers *all, const char *model, const char *content, const char *list);
struct carry_node *carrier_find_node(struct carrier *c, const uint8_t id[16], bool is_source, bool is_hub);
struct carry_node *carrier_add_node(struct carrier *c, const uint8_t id[16], bool is_source, bool is_hub);
/* Where no cable leads there, who takes asks for a way through other nodes. */
void carrier_connect(struct carry_node *n);

/* carrier_hub.c. It is time to ask the hub: all nodes that are to give have had a word. */
bool carrier_hub_is_due(const struct carrier *c);
/* c->fetch runs. */
void carrier_hub_start(struct carrier *c);
/* A connection of the process that carries has ended: true, it was that with the hub's. */
bool carrier_hub_lost(struct carrier *c, uint64_t number);
/* A taker that asked for the hub's bytes has a connection: what it is sealed with stays the
 * caller's. 0, or −errno. */
int carrier_lend(struct carry_node *n, const struct ipc_lane *lane, int fd);
void carrier_lend_stop(struct carry_node *n);
/* The process that carries is another one now. */
void carrier_hub_drop(struct carrier *c);
void carrier_hub_stop(struct carrier *c);

#endif
