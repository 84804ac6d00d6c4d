/* SPDX-License-Identifier: MIT
 *
 * A model that nodes carry to each other: taken from those that have it, block by block, and passed
 * on to others while it still comes. One process for a model does both. ringd gives it the
 * connections; they must form no circle, for a node that waits for itself waits for ever. A source
 * may also be one that asks the hub (lend.h), for what no other source has. One thread, which waits
 * for the disk and in poll(2). */
#ifndef DAEMON_CARRY_H
#define DAEMON_CARRY_H

#include <jansson.h>
#include <stdint.h>

#include "engine/err.h"

struct carry_setup { /* all borrowed */
    int ipc;         /* ringd's socket: lanes and answers come, events go */
    int dir;         /* the folder of models */
    const char *model, *content;
    const char *list;   /* the hash of its list of blocks (manifest.h); "": nobody knows it */
    const char *source; /* from where it comes, as users read it */
    /* {"do": "want"}, of ringd, perhaps with "blocks", a list of [file, first block, the one after
     * the last]: the outline and these are to come; more such orders may follow. With a true as
     * fourth of a row, a node of a lower rank wants these too, and asks the hub for them. NULL: it
     * gives. */
    const json_t *want;
    uint64_t rate; /* bytes a second that are given, at most; 0: as many as there can be */
    /* Of the other end of a lane, and of ringd to bring a source at all. */
    uint64_t patience_us;
    uint64_t idle_us; /* without a lane, once all is here that is wanted: then it ends */
};
#define CARRY_PATIENCE_US (UINT64_C(30) * 1000000)
#define CARRY_IDLE_US (UINT64_C(5) * 1000000)

/* 0: what was wanted is here, and nobody wants anything now. −ECANCELED: ringd has let go. −EIO,
 * −EBUSY: may pass; other errors do not; each with a sentence. What has come stays. */
int carry_run(const struct carry_setup *setup, struct err *err);

#endif
