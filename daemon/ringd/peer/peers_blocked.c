/* SPDX-License-Identifier: MIT
 *
 * Why nothing connects over a cable on which beacons come and go: somebody drops TCP, and at which
 * end. Called by peers.c; loop thread. */
#include <stdio.h>

#include "daemon/ringd/peer/half_open.h"
#include "daemon/ringd/peer/peers_impl.h"

void peers_tell_blocked(const struct dial *d, char *out, size_t size)
{
    const unsigned port = d->p->port;
    if (half_open_from("", d->host, d->p->port))
        snprintf(
            out, size,
            "beacons of %s pass on %s and TCP port %u does not: its calls arrive here, and nothing of ours "
            "arrives there: a firewall on %s drops it; let TCP port %u in on %s",
            d->name, d->on, d->port, d->name, d->port, d->name);
    else
        snprintf(out, size,
                 "beacons of %s pass on %s and TCP port %u does not: %s does not answer, and no call of it "
                 "arrives here: a firewall on this node drops it, or one on %s; let TCP port %u in on both",
                 d->name, d->on, d->port, d->name, d->name, port);
}
