/* SPDX-License-Identifier: MIT
 *
 * Adapters that trainings offer to deployments of this node (offers.h): each is fetched into a
 * folder of its own, STATE/results/.served-…, and put in place. What a deployment reads no more
 * goes. Loop thread; disks are written beside it. */
#ifndef DAEMON_ARRIVALS_H
#define DAEMON_ARRIVALS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"

struct aside;
struct arrivals;
struct event_base;
struct parts;

struct arrivals_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct aside *aside;
    const char *state_dir;
    /* To a member, perhaps this node. Takes the reference. Not 0: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* That deployment serves the adapter in this folder under this name from now on. −EAGAIN: not
     * now, until arrivals_again; other errors with a sentence. */
    int (*place)(void *owner, uint64_t job, const char *name, const char *folder, struct err *err);
    void *owner;
};
struct arrivals *arrivals_new(const struct arrivals_setup *setup);
void arrivals_free(struct arrivals *a); /* before parts_free and aside_free */

/* A message, whose fields have been checked. */
void arrivals_take_offer(struct arrivals *a, struct parts *parts, const uint8_t from[16], const json_t *body);
/* A deployment may take a change again. */
void arrivals_again(struct arrivals *a);
/* Was it fetched here? Then nobody else changes it. */
bool arrivals_own(const struct arrivals *a, const char *folder);
/* A deployment reads these folders no more: {name: folder}, but for those of `still` and `or`,
 * which may be NULL. Only those that were fetched here go. */
void arrivals_leave(struct arrivals *a, const json_t *had, const json_t *still, const json_t * or);

#endif
