/* SPDX-License-Identifier: MIT
 *
 * Nodes out of reach, with a fake clock: an outage shorter than the patience is no loss, a daemon
 * that ended is not waited for, and time in which we stood still is not held against the others. */
#include "daemon/ringd/peer/absence.h"
#include "tests/unit/daemon/ringd/cluster/members_world.h"

enum { S = 1000000, PATIENCE = 10 * S };

/* Node 0 and node 1 on one cable; node 0 watches the other. */
struct pair {
    struct members *m;
    struct absence a;
    struct member other;
    uint64_t now;
};

static void say(struct pair *p) /* node 1 speaks */
{
    p->other.seq++;
    assert_int_equal(learn(p->m, &p->other, p->now), 1);
}

static void begin(struct pair *p)
{
    *p = (struct pair){.m = row_of(2, false), .other = make(1, 1, 1), .now = 100 * S};
    link_to(&p->other, 0);
    say(p);
    const uint8_t ids[1][16] = {{2}};
    absence_watch(&p->a, p->m, ids, 1);
}

static void expect(struct pair *p, enum absence_news news)
{
    size_t which = 9;
    assert_int_equal(absence_next(&p->a, p->m, PATIENCE, (struct instant){p->now}, &which), news);
    if (news != ABSENCE_NOTHING)
        assert_int_equal(which, 0);
}

static void cut_cable(struct pair *p)
{
    members_self(p->m)->nlinks = 0;
}

static void plug_cable(struct pair *p)
{
    link_to(members_self(p->m), 1);
}

static uint64_t due(const struct pair *p)
{
    return absence_due(&p->a, PATIENCE).us;
}

static void short_outage(void **state)
{
    struct pair p;
    (void)state;
    begin(&p);
    expect(&p, ABSENCE_NOTHING);
    assert_true(due(&p) == UINT64_MAX);
    cut_cable(&p);
    expect(&p, ABSENCE_OUT);
    expect(&p, ABSENCE_NOTHING);
    assert_true(due(&p) > p.now + PATIENCE);
    p.now += PATIENCE; /* the whole of it, and the moment it takes to connect */
    expect(&p, ABSENCE_NOTHING);
    plug_cable(&p);
    expect(&p, ABSENCE_BACK);
    expect(&p, ABSENCE_NOTHING);
    assert_true(due(&p) == UINT64_MAX);
    members_free(p.m);
}

static void long_outage(void **state)
{
    struct pair p;
    (void)state;
    begin(&p);
    cut_cable(&p);
    expect(&p, ABSENCE_OUT);
    p.now = due(&p) - 1;
    expect(&p, ABSENCE_NOTHING);
    p.now++;
    expect(&p, ABSENCE_TOO_LONG);
    expect(&p, ABSENCE_TOO_LONG); /* until it is not watched any more */
    members_free(p.m);
}

/* What was silent for four seconds before anybody gave up its connection has been away for four
 * seconds. */
static void silence_counts(void **state)
{
    struct pair p;
    (void)state;
    begin(&p);
    p.now += 4 * S;
    cut_cable(&p);
    expect(&p, ABSENCE_OUT);
    assert_int_equal(due(&p) - p.now, PATIENCE - 4 * S + ABSENCE_RETURN_US);
    members_free(p.m);
}

/* After an hour's sleep every record is old, and the first connection that breaks is no node that
 * was away for an hour. */
static void slept_before(void **state)
{
    struct pair p;
    (void)state;
    begin(&p);
    p.now += UINT64_C(3600) * S;
    cut_cable(&p);
    expect(&p, ABSENCE_OUT);
    expect(&p, ABSENCE_NOTHING);
    assert_true(due(&p) >= p.now + PATIENCE / 2);
    members_free(p.m);
}

static void slept_meanwhile(void **state)
{
    struct pair p;
    (void)state;
    begin(&p);
    cut_cable(&p);
    expect(&p, ABSENCE_OUT);
    p.now = due(&p) + 5 * S; /* nobody looked when it was time */
    expect(&p, ABSENCE_NOTHING);
    assert_true(due(&p) >= p.now + PATIENCE / 2);
    p.now = due(&p);
    expect(&p, ABSENCE_TOO_LONG);
    members_free(p.m);
}

static void ended(void **state)
{
    struct pair p;
    (void)state;
    begin(&p);
    cut_cable(&p);
    members_self(p.m)->nended = 1;
    memcpy(members_self(p.m)->ended[0], p.other.id, 16);
    expect(&p, ABSENCE_ENDED);
    members_free(p.m);
}

/* Behind a neighbour: what that one saw is told in its record. */
static void ended_elsewhere(void **state)
{
    struct members *m = row_of(3, false);
    const uint8_t ids[2][16] = {{2}, {3}};
    struct member b = make(1, 1, 2);
    struct absence a;
    size_t which;
    (void)state;
    absence_watch(&a, m, ids, 2);
    link_to(&b, 0);
    b.nended = 1;
    b.ended[0][0] = 3;
    assert_int_equal(learn(m, &b, 5), 1);
    assert_int_equal(absence_next(&a, m, PATIENCE, (struct instant){6}, &which), ABSENCE_ENDED);
    assert_int_equal(which, 1);
    members_free(m);
}

static void restarted(void **state)
{
    struct pair p;
    (void)state;
    begin(&p);
    p.other.boot = 2;
    say(&p); /* connected all the time, as far as anybody saw */
    expect(&p, ABSENCE_RESTARTED);
    members_free(p.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_outage),    cmocka_unit_test(long_outage),
        cmocka_unit_test(silence_counts),  cmocka_unit_test(slept_before),
        cmocka_unit_test(slept_meanwhile), cmocka_unit_test(ended),
        cmocka_unit_test(ended_elsewhere), cmocka_unit_test(restarted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
