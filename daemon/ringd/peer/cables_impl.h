/* SPDX-License-Identifier: MIT
 *
 * Inside cables: shared by cables.c (what happens), cables_size.c (what packets pass) and
 * cables_show.c (what is shown), and by nobody else. Loop thread. */
#ifndef DAEMON_CABLES_IMPL_H
#define DAEMON_CABLES_IMPL_H

#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/peer/cables_plan.h"
#include "daemon/ringd/peer/cable_client.h"
#include "net/finder.h"

struct cables {
    struct cables_setup s;
    struct ports *ports;        /* owned */
    struct finder *finder;      /* owned */
    struct timer *asking;       /* owned: while this node looks for a member that knows its token */
    struct timer *settling;     /* owned: a cable is too new to be planned for */
    struct timer *ended;        /* owned: a connection is no more */
    struct linkctl *link;       /* owned: sets up what is planned, through ringd-link */
    struct prefix pool;         /* --ipv4-pool; family 0: none */
    struct cables_plan plan;    /* owned */
    char problem[RLINK_TEXT];   /* of ringd-link, as last logged */
    struct cables_sizes *sizes; /* owned: what packets each cable passes */
};

enum { CABLES_SEEN = 256 };

/* cables_size.c: looks for the largest packet that gets over each cable, and hands it to peers. */
struct cables_sizes *cables_sizes_new(struct cables *c);
void cables_sizes_free(struct cables_sizes *s);
void cables_sizes_take(struct cables_sizes *s,
                       const struct cable *cable); /* a cable is there, or is another */
void cables_sizes_drop(struct cables_sizes *s, uint64_t cable);
void cables_sizes_review(struct cables_sizes *s); /* our ports have changed */
void cables_sizes_answered(struct cables_sizes *s, unsigned ifindex, uint64_t number, uint32_t packet);
uint32_t cables_sizes_of(const struct cables_sizes *s, uint64_t cable); /* bytes, 0 = not known */

#endif
