/* SPDX-License-Identifier: MIT
 *
 * ringd's side of ringd-link: holds what cables should have (up, MTU, addresses) and keeps
 * asserting it. Leases are renewed at a quarter of their life; what is found missing is set again,
 * at once the first time and then after 1, 2, 4 ... 30 s, so that no fight with another program
 * gets hot. Works without ringd-link: then everything has the reason why it is not set, and
 * connecting is tried again after 1, 2, 4 ... 30 s. On the daemon's loop; the callback comes from
 * the loop, never from inside a call, and may call anything here.
 */
#ifndef DAEMON_CABLE_CLIENT_H
#define DAEMON_CABLE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/link_proto.h"

struct event_base;
struct linkctl;

struct linkctl_setup {
    struct event_base *base;      /* borrowed */
    const char *path;             /* NULL = RLINK_PATH; copied */
    uint32_t lease_s;             /* 0 = 120 */
    void (*changed)(void *owner); /* what linkctl_at or linkctl_problem tell is new; may be NULL */
    void *owner;
};
/* Does not wait, nor fail for want of ringd-link. −ENAMETOOLONG. */
int linkctl_open(struct linkctl **ret, const struct linkctl_setup *setup);
void linkctl_close(struct linkctl *l); /* addresses stay until their lease ends */

/* Of which networks addresses will be wanted: the cluster's /48, the pool; NULL = unchanged.
 * ringd-link takes the first it is told. */
void linkctl_scope(struct linkctl *l, const struct prefix *ula, const struct prefix *pool);

struct linkctl_want {
    enum rlink_verb verb; /* RLINK_SET_UP, RLINK_LINK_LOCAL, RLINK_SET_MTU or RLINK_ADDR_ADD */
    uint32_t ifindex;
    uint32_t mtu;       /* SET_MTU */
    struct prefix addr; /* ADDR_ADD: address with the subnet's length */
    bool lapses;        /* ADDR_ADD: left alone, if it is there, until its lease ends */
};
/* All that is wanted from now on; addresses that were and no longer are get removed, and so are
 * those of an earlier run that stand in the way of these. Copied. */
void linkctl_want(struct linkctl *l, const struct linkctl_want *list, size_t n);
/* Addresses or ports of the machine have changed (ports_ops.changed): looks whether ours are still
 * there. Cheap to call often. */
void linkctl_recheck(struct linkctl *l);

struct linkctl_state {
    struct linkctl_want want;
    bool is_set;
    const char *reason; /* why not, a sentence, or NULL; good until the loop goes on */
};
size_t linkctl_count(const struct linkctl *l);
void linkctl_at(const struct linkctl *l, size_t i, struct linkctl_state *ret);
/* NULL, or a sentence: ringd-link is not there, does not answer, or works for another cluster. */
const char *linkctl_problem(const struct linkctl *l);

#endif
