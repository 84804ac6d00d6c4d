/* SPDX-License-Identifier: MIT
 *
 * The daemon as a service: tells systemd when it answers, what it is doing, that its loop goes on
 * and that it stops; watches how late the loop is; reads the configuration again; takes samples for
 * the history. Without systemd the telling goes nowhere. Loop thread. */
#ifndef DAEMON_SERVICE_H
#define DAEMON_SERVICE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "net/clock.h"

struct coord;
struct event_base;
struct members;
struct opts;
struct service;
struct store;
struct workers;

struct service_setup {
    /* all borrowed */
    struct event_base *base;
    struct opts *opts; /* read again from argc, argv */
    int argc;
    char **argv;
    struct members *members;
    struct store *store;
    struct coord *coord;
    struct workers *workers;
    void *owner;
    /* The loop is awake whole seconds from then, for heartbeats: ticks go with them. */
    struct instant (*beat)(void *owner);
    /* Adds a sample of each series to rows, for the history: metrics_sample. */
    void (*sample)(void *owner, double seconds, int64_t now, json_t *rows);
    /* The token that the fresh options name counts from now on. */
    int (*reload_token)(void *owner, const struct opts *fresh, struct err *err);
    /* `opts` have changed. */
    void (*applied)(void *owner);
};
struct service *service_new(const struct service_setup *setup);
void service_free(struct service *s);

void service_ready(struct service *s); /* every socket answers */
void service_stopping(struct service *s);
void service_status(
    struct service *s); /* the ring or a job is another: says so, if what there is to say has changed */

/* The longest the loop was late within the last minute, in seconds. */
double service_lateness(const struct service *s);
/* Is the daemon getting on? If not, a sentence for each thing that is in the way. */
bool service_healthy(const struct service *s, char *why, size_t size);

/* Reads file and flags again. ret: {"applied": [option…], "restart": [option…]}, what has changed
 * and whether it counts already. A wrong one leaves everything as it was: −EINVAL and the
 * sentence. */
int service_reload(struct service *s, json_t **ret, struct err *err);

#endif
