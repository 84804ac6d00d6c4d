/* SPDX-License-Identifier: MIT
 *
 * What data connections carried, by cable: the stage counts in the page it shares with us
 * (progress.h) under the path of each, and a path is gone sooner than people stop asking about its
 * cable. So the name of a path's cable is kept here when the stage gets a connection, and what was
 * counted when the stage has ended. Owned by the worker; loop thread. */
#ifndef DAEMON_LANE_COUNTS_H
#define DAEMON_LANE_COUNTS_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/ringd/peer/peers.h"

struct progress;
struct lane_counts;

struct lane_counts *lane_counts_new(void);
void lane_counts_free(struct lane_counts *c);

/* A connection over that path is handed to the stage. */
void lane_counts_name(struct lane_counts *c, uint64_t path, const struct path_name *name);
/* The stage is gone: its paths are forgotten, what they carried is not. */
void lane_counts_keep(struct lane_counts *c, const struct progress *stage);
/* What those have counted too, with the page of their present stage, or NULL. */
void lane_counts_add(struct lane_counts *c, const struct lane_counts *more, const struct progress *stage);
/* [{"peer","port","cable","data_tx_bytes","data_rx_bytes","data_retransmits"[,"data_rtt_ms"]}, …],
 * one for each cable. */
json_t *lane_counts_encode(const struct lane_counts *c);

#endif
