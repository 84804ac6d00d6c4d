/* SPDX-License-Identifier: MIT
 *
 * Inside the node: which file wires which rooms. node.c calls these in the order of opening. */
#ifndef DAEMON_NODE_IMPL_H
#define DAEMON_NODE_IMPL_H

#include "engine/err.h"

struct metrics_sources;
struct node;
struct opts;

/* node_peer.c: the rooms cluster and peer. */
void node_open_enrol(struct node *n);
void node_open_measure(struct node *n);
void node_open_relay(struct node *n);
int node_open_peers(struct node *n, struct err *err);
int node_open_cables(struct node *n, struct err *err);

/* node_drain.c: at once, or once a job that trains here has moved to other nodes; asked again, at
 * once. The other: this node's part in a job is over. */
void node_end(struct node *n);
void node_left_job(struct node *n);

/* node_hub.c: the room hub */
void node_open_hub(struct node *n);

/* node_job.c: the room job */
void node_open_job(struct node *n);
/* Where metrics_text finds what it shows. */
void node_metrics_sources(const struct node *n, struct metrics_sources *ret);

/* node_http.c: the rooms doctor and http. The server listens before cables are looked for, so that
 * a second daemon of this machine ends without touching them; no request is handled before the loop
 * runs. */
int node_open_http(struct node *n, struct err *err);
void node_open_api(struct node *n); /* after all that the API shows */
/* All members hear of the keys of clients that are known here. */
void node_share_keys(struct node *n);
/* The token that other options name counts from now on. */
int node_reload_token(struct node *n, const struct opts *opts, struct err *err);

#endif
