/* SPDX-License-Identifier: MIT
 *
 * Bytes of a file of a model, from the hub: asked for again from where they broke off, until all of
 * them have come. What another length, another range or another commit answers is refused. One
 * thread. */
#ifndef DAEMON_PULL_BYTES_H
#define DAEMON_PULL_BYTES_H

#include <stdint.h>

#include "daemon/fetch/hub_http.h"
#include "daemon/fetch/hub_listing.h"

struct pull_source { /* all borrowed */
    struct hub *hub;
    const char *org, *name, *commit;
};

struct pull_bytes {
    const struct hub_file *file; /* borrowed; its size is known */
    uint64_t at, end;            /* the next byte, and the one after the last */
    /* The hub sends the whole file again: 0, and it begins with its first byte. NULL: that is
     * refused. */
    int (*restart)(void *owner, struct err *err);
    /* The next bytes, no more than are wanted: 0, or what ends it, with a sentence. */
    int (*take)(void *owner, const void *bytes, size_t n, struct err *err);
    /* It is tried again in a moment, because of this; or NULL. */
    void (*waits)(void *owner, const char *why);
    void *owner;
};

/* 0: all have come. −ECANCELED; an error and a sentence. b->at says how far it is. */
int pull_bytes(const struct pull_source *from, struct pull_bytes *b, struct err *err);

/* The path of a file at the hub; the caller frees. */
char *pull_path(const struct pull_source *from, const char *file);

#endif
