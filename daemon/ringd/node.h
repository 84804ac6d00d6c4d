/* SPDX-License-Identifier: MIT
 *
 * struct node owns everything a daemon has; opened top-down, closed bottom-up. node.c: the loop and
 * who owns what; peers.c: control connections and the messages over them. Everything here runs on
 * the loop thread. */
#ifndef DAEMON_NODE_H
#define DAEMON_NODE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/common/optable.h"
#include "net/link.h"

struct api;
struct cables;
struct cluster;
struct aside;
struct ballots;
struct coord;
struct deputy;
struct doctor;
struct elsewhere;
struct enrol;
struct event_base;
struct cost_server;
struct http;
struct event_log;
struct intake;
struct keys;
struct keys_process;
struct mailbox;
struct ledger;
struct loan_book;
struct desk;
struct loan_desk;
struct loan_store;
struct measure;
struct metrics;
struct metrics_sources;
struct parts;
struct peers;
struct plan_requests;
struct records;
struct relay;
struct service;
struct held_disk;
struct spawner;
struct store;
struct supply;
struct timer;
struct cost_query;
struct workers;

struct node {
    struct opts *opts; /* borrowed: main, as the words they come from */
    int argc;
    char **argv;
    struct event_base *base;           /* all below owned */
    struct keys_process *keys_process; /* has the secret keys */
    struct keys *keys;                 /* what is asked of it */
    bool is_lost;                      /* it has gone */
    char name[64], state_dir[3072];
    int threads;
    uint64_t memory_limit;   /* 0 = what the machine has */
    char ring_text[1500];    /* what was last said of the ring */
    struct cluster *cluster; /* which it is in, and who else */
    struct enrol *enrol;     /* getting in, and letting in */
    struct members *members;
    struct records *records; /* as they travel */
    struct mailbox *mailbox;
    struct aside *aside; /* work that may wait for a disk */
    struct event_log *events;
    struct ledger *ledger;
    struct store *store;
    struct cables *cables;
    struct peers *peers;
    struct measure *measure;            /* what the cables can do */
    struct relay *relay;                /* data connections of others, passing through */
    struct spawner *spawner;            /* all stage processes */
    struct held_disk *held_disk;        /* copies of what jobs train; NULL: there can be none */
    struct workers *workers;            /* run stages, for any head */
    struct coord *coord;                /* runs the jobs submitted here */
    json_t *notes;                      /* of the store, while the node opens */
    struct ballots *ballots;            /* who heads jobs, as this node has promised; */
    struct parts *parts;                /* their files on the way, */
    struct deputy *deputy;              /* and what it keeps of jobs of other heads */
    struct supply *supply;              /* models by their names */
    struct plan_requests *plan_request; /* plans without a job */
    struct loan_book *loans;            /* what clients opened for their jobs, */
    struct loan_store *loan_store;      /* what systemd keeps of it over a restart, */
    struct loan_desk *loan_desk;        /* and where they hand it in */
    struct desk *desk;                  /* requests for models that this node serves */
    struct intake *intake;              /* looks at the paths of what is submitted */
    struct cost_query *cost_query;      /* asks the other nodes what a model costs them */
    struct cost_server *cost_server;    /* and answers, when others ask */
    struct elsewhere *elsewhere;        /* the jobs of other heads; NULL while the node opens */
    struct doctor *doctor;              /* examines this node and the others */
    struct api *api;                    /* answers the requests */
    struct http *http;
    struct metrics *metrics; /* what has been counted */
    struct service *service; /* what systemd is told; the configuration read again */
    struct event *sigterm, *sigint, *sighup;
    struct timer *ring_timer, *soon;
    struct timer
        *leaving;       /* this daemon ends once its part of a job is with other nodes; NULL: it does not */
    uint64_t change_us; /* how long node_changed took last */
};

/* argc, argv: what opts were read from, to be read again. */
int node_open(struct node **ret, struct opts *opts, int argc, char **argv, struct err *err);
int node_run(struct node *n); /* until a signal; 0 */
void node_close(struct node *n);

/* Our own record brought up to date: memory, what the worker does. */
void node_refresh_self(struct node *n);
void node_refresh_doings(struct node *n); /* all but the memory, which takes the kernel 50 µs to tell */
/* The set of nodes or links changed: ring, jobs and listeners are told. */
void node_changed(struct node *n);
/* The same for news of others and for connections that are up, which come in crowds: once for all
 * that come within a few times what it took last. */
void node_changed_soon(struct node *n);
/* Whoever watches is told that this node's status is another; an answer kept for the next who asks
 * is old from now on. */
void node_publish(struct node *n);
/* As the member of that id asks: this node takes no part in jobs; "": it does again. */
void node_drain(struct node *n, const uint8_t by[16], const char *reason);
/* Keys of clients that another member knows of (client_keys_tell). */
void node_take_keys(struct node *n, const uint8_t from[16], const json_t *keys);
/* The roster changed, or we have become a member of a cluster or were removed from one. */
void node_membership_changed(struct node *n);

#endif
