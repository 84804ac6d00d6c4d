/* SPDX-License-Identifier: MIT
 *
 * Inside cables: shared by cables.c (what happens) and cables_show.c (what is shown), and by nobody else. Loop thread. */
#ifndef DAEMON_CABLES_IMPL_H
#define DAEMON_CABLES_IMPL_H

#include "daemon/cables_plan.h"
#include "daemon/linkctl.h"
#include "net/finder.h"

struct cables {
    struct node *node;        /* borrowed: owner */
    struct ports *ports;      /* owned */
    struct finder *finder;    /* owned */
    struct event *asking;     /* owned: while this node looks for a member that knows its token */
    struct event *settling;   /* owned: a cable is too new to be planned for */
    struct linkctl *link;     /* owned: sets up what is planned, through ringd-link */
    struct prefix pool;       /* --ipv4-pool; family 0: none */
    struct cables_plan plan;  /* owned */
    char problem[RLINK_TEXT]; /* of ringd-link, as last logged */
};

enum { CABLES_SEEN = 256 };

const char *cables_port_name(const struct cables *c, unsigned ifindex);

#endif
