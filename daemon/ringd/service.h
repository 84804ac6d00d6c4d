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

#include "engine/err.h"

struct node;
struct service;

struct service *service_new(struct node *node);
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
