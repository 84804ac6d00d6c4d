/* SPDX-License-Identifier: MIT
 *
 * This node taken out of jobs, by its operator or because its daemon ends: its record says so, and
 * heads let their jobs stop after a step and go on without it. Called by node.c, messages.c and the
 * API; loop thread. */
#include "daemon/ringd/node.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/text_clean.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/node_impl.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/service.h"
#include "daemon/ringd/timer.h"

/* Within the service's TimeoutStopSec, with time left to end a stage that did not. */
enum { LEAVE_MS = 20000 };

void node_drain(struct node *n, const uint8_t by[16], const char *reason)
{
    struct member *self = members_self(n->members);
    const struct member *other = members_find(n->members, by);
    char text[sizeof self->drained];
    text_clean(text, sizeof text, reason, true);
    if (!strcmp(self->drained, text))
        return;
    memcpy(self->drained, text, sizeof text);
    if (*text)
        log_info(
            "this node is drained by %s: %s; it takes no part in jobs until `ringctl undrain %s`, or until "
            "its ringd is started again",
            other ? other->name : "another node", text, n->name);
    else
        log_info("this node takes part in jobs again, as %s says", other ? other->name : "another node");
    peers_flood_self(n->peers);
    node_changed(n);
    node_publish(n);
}

/* --- the daemon's own end --------------------------------------------------------------------- */

static void end_now(void *owner)
{
    struct node *n = owner;
    service_stopping(n->service);
    event_base_loopbreak(n->base);
}

void node_end(struct node *n)
{
    if (n->leaving || !n->workers || !workers_are_training(n->workers)) {
        end_now(n);
        return;
    }
    n->leaving = timer_new(n->base, end_now, n);
    timer_set_ms(n->leaving, LEAVE_MS);
    node_drain(n, members_self(n->members)->id, "its ringd is being ended");
}

void node_left_job(struct node *n)
{
    if (n->leaving && workers_are_idle(n->workers))
        timer_set_ms(n->leaving, 0);
}
