/* SPDX-License-Identifier: MIT
 *
 * Processes of ringd-fetch, each of which brings one model from a hub, looks one up, or reads one
 * again: started, told what to do, heard, and reaped. Nothing here waits, but fetchers_free does
 * for a moment. Loop thread. */
#ifndef DAEMON_HUB_FETCH_H
#define DAEMON_HUB_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"

struct event_base;
struct hub_fetch;
struct fetchers;

struct fetchers_setup { /* all borrowed */
    struct event_base *base;
    const char *program; /* ringd-fetch */
    const char *dir;     /* the folder of models */
};
struct fetchers *fetchers_new(const struct fetchers_setup *setup);
void fetchers_free(struct fetchers *f); /* ends those that run */

struct hub_fetch_ops {
    void (*resolved)(void *owner, const char *model); /* its exact name, checked */
    /* So many bytes are to come: hub_fetch_say_room is expected. NULL, as the next: never asked. */
    void (*room)(void *owner, uint64_t bytes);
    void (*progress)(void *owner, uint64_t done, uint64_t total, const char *file);
    /* Once, and last. why: NULL, it is done; or a sentence. passing: it may succeed later. */
    void (*over)(void *owner, const char *why, bool passing);
};
/* what: "pull", "resolve" or "verify". The process lives until it is over, or hub_fetch_stop. */
int hub_fetch_start(struct hub_fetch **ret, struct fetchers *f, const char *what, const char *model,
                    const struct hub_fetch_ops *ops, void *owner, struct err *err);
/* There is room; why: a sentence, there is none. */
void hub_fetch_say_room(struct hub_fetch *f, const char *why);
/* The owner hears nothing more; what has come stays on the disk. NULL is fine. Not to be called
 * once it is over. */
void hub_fetch_stop(struct hub_fetch *f);

#endif
