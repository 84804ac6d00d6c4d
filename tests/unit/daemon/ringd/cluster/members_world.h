/* SPDX-License-Identifier: MIT
 *
 * Records of nodes made up by tests, and what one node knows of them: for test_members.c and
 * test_members_ring.c. */
#ifndef TESTS_UNIT_MEMBERS_WORLD_H
#define TESTS_UNIT_MEMBERS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/members.h"

static inline struct member make(unsigned id, uint64_t boot, uint64_t seq)
{
    struct member m = {
        .boot = boot, .seq = seq, .cores = 4, .threads = 2, .memory_total = 8000, .memory_available = 500};
    m.id[0] = (uint8_t)(id + 1);
    snprintf(m.name, sizeof m.name, "n%u", id);
    snprintf(m.version, sizeof m.version, "1.2");
    return m;
}

static inline void link_to(struct member *m, unsigned id)
{
    memset(&m->links[m->nlinks], 0, sizeof *m->links);
    m->links[m->nlinks++].id[0] = (uint8_t)(id + 1);
}

static inline int learn(struct members *m, const struct member *news, uint64_t now)
{
    json_t *record = member_encode(news);
    assert_non_null(record);
    int r = members_learn(m, record, (struct instant){now});
    json_decref(record);
    return r;
}

static inline struct members *alone(unsigned id)
{
    struct member self = make(id, 1, 1);
    return members_new(&self);
}

/* Node 0's view of a line or ring of n nodes, in order of their ids. */
static inline struct members *row_of(unsigned n, bool closed)
{
    struct members *m = alone(0);
    for (unsigned i = 0; i < n; i++) {
        struct member a = make(i, 1, 1), *who = i ? &a : members_self(m);
        if (i || closed)
            link_to(who, (i + n - 1) % n);
        if (i + 1 < n || closed)
            link_to(who, (i + 1) % n);
        if (i)
            assert_int_equal(learn(m, &a, i), 1);
    }
    return m;
}

#endif
