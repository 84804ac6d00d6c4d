/* SPDX-License-Identifier: MIT
 *
 * A head that plans, with a socket in place of its daemon: for test_stage_head.c,
 * test_stage_search.c and test_stage_sharing.c. */
#ifndef TESTS_UNIT_PLANNING_H
#define TESTS_UNIT_PLANNING_H

#include <sys/socket.h>
#include <unistd.h>

#include "daemon/stage/plan/stage_head.h"

struct planning {
    struct stage_events events;
    struct head head;
    int sock[2];
};

static inline int planning_open(struct planning *p)
{
    *p = (struct planning){0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p->sock))
        return -1;
    stage_events_init(&p->events, p->sock[0]);
    head_init(&p->head, &p->events);
    return 0;
}

static inline void planning_close(struct planning *p)
{
    head_done(&p->head);
    stage_events_done(&p->events);
    close(p->sock[0]);
    close(p->sock[1]);
}

#endif
