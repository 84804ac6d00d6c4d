/* SPDX-License-Identifier: MIT
 *
 * What supply.c (what this node asks for) and supply_hear.c (what other nodes send) share. */
#ifndef DAEMON_SUPPLY_IMPL_H
#define DAEMON_SUPPLY_IMPL_H

#include <sys/queue.h>

#include "daemon/ringd/hub/supply.h"

struct supply {
    struct supply_setup setup;
    uint64_t quota;
    struct fetchers *fetchers; /* owned, as all below */
    struct carriers *carriers;
    struct pulls *pulls;
    struct errands *errands;
    struct model_census *census;
    struct travel_queries *travel;
    struct holders *holders;
    struct name_lookups *names;
    struct pushes *pushes;
    struct push_takes *push_takes;
    json_t *here; /* the exact names of the models that are here, at least their outlines: "content", which
                     files it is, "whole", and "added": a user gave it its name */
    struct bring *bring;     /* owned: what stages lack */
    bool looks, looks_again; /* at the disk, for itself */
    LIST_HEAD(, supply_call) calls;
};

#endif
