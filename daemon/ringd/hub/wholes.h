/* SPDX-License-Identifier: MIT
 *
 * Adapters by their names: a job reads one on its head alone, and needs all of it. It comes from
 * the nearest nodes that have it, or from the hub where none has. For supply.c; loop thread. */
#ifndef DAEMON_WHOLES_H
#define DAEMON_WHOLES_H

#include <stdbool.h>
#include <stddef.h>

struct errands;
struct members;
struct pulls;

struct wholes_setup { /* the pointers are borrowed */
    struct members *members;
    struct pulls *pulls;
    struct errands *errands;
    /* As of errands.h. */
    const char *(*content)(void *owner, const char *model);
    bool (*is_whole)(void *owner, const char *model);
    void *owner;
};

/* Is all of it on this node? If not it is brought, and `why` says how far that is: who asks again
 * goes on waiting. model: exact. */
bool wholes_are_here(const struct wholes_setup *w, const char *model, char *why, size_t size);

#endif
