/* SPDX-License-Identifier: MIT
 *
 * The end of what brings a model, or the outline of one: its list of blocks, its record, and its
 * name, in this order. From the name on it is there for everybody at once. One thread. */
#ifndef DAEMON_FETCH_SETTLE_H
#define DAEMON_FETCH_SETTLE_H

#include <stdbool.h>

#include "daemon/fetch/manifest.h"

/* .part/MODEL, made if need be, and held against other processes until the descriptor is closed.
 * −EBUSY: another one brings this model; −errno; with a sentence. */
int settle_open_part(int dir, const char *model, struct err *err);

/* A model that is here in part goes back below .part, to be made whole there. 0, −ENOENT: it has no
 * name; −EBUSY: another process brings it; −errno; with a sentence. */
int settle_take_name(int dir, const char *model, struct err *err);

struct settle_setup { /* all borrowed */
    int dir;          /* the folder of models */
    const char *model;
    const char *source;   /* of its bytes, as users read it; NULL */
    const char *in_place; /* where its files lie in another folder; NULL */
    bool is_added;        /* a user gave that folder this name: no hub is asked what it means */
    const struct manifest *manifest;
};

/* Of a model that has its name: the hashes of all its blocks are known now. 0, or an error and a
 * sentence. */
int settle_list(int dir, const char *model, const struct manifest *m, struct err *err);

/* What is at .part/MODEL gets the model's name. 0, or an error and a sentence. */
int settle_model(const struct settle_setup *s, struct err *err);

#endif
