/* SPDX-License-Identifier: MIT
 *
 * Nodes that are in one roster and sign what they say, for test_record.c and test_envelope.c. */
#ifndef TESTS_UNIT_SIGNER_H
#define TESTS_UNIT_SIGNER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/members.h"
#include "net/auth.h"
#include "net/roster.h"
#include "tests/lib/own_keys.h"

struct signer {
    struct auth_identity id;
    struct members *members; /* owned: it knows itself */
    uint8_t node_id[16];
};

/* What node `i`, whose life began at `boot`, says of itself. */
static inline struct member signer_member(const struct signer *s, size_t i, uint64_t boot)
{
    struct member m = {.boot = boot, .seq = 1};
    snprintf(m.name, sizeof m.name, "n%zu", i);
    memcpy(m.id, s->node_id, 16);
    return m;
}

/* Node `i`, called "n0" and so on; its boot number is 100 + i. */
static inline void signer_init(struct signer *s, struct roster *roster, size_t i)
{
    const uint8_t seed[AUTH_SEED] = {(uint8_t)(i + 1)};
    const struct roster_entry *e;
    char name[8];
    snprintf(name, sizeof name, "n%zu", i);
    assert_int_equal(own_identity_from_seed(&s->id, seed), 0);
    assert_int_equal(roster_admit(roster, s->id.pub, name, &e), 0);
    memcpy(s->node_id, e->id, 16);
    const struct member self = signer_member(s, i, 100 + i);
    s->members = members_new(&self);
}

#endif
