/* SPDX-License-Identifier: MIT
 *
 * What ports and cables should have, decided from hand-made facts: two nodes that exchange their
 * attempts as beacons do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/peer/cables_plan.h"

enum { MOST = 16 };

/* A node with up to 8 cables: port i + 1 is plugged into port i + 1 of the other. */
struct node {
    struct cables_facts facts;
    struct cables_plan plan;
    struct port ports[8];
    struct neighbour_view seen[8];
    struct ports_prefix taken[MOST];
};
struct pair {
    struct node a, b;
};

static void make_end(struct node *n, uint8_t id, uint8_t other, size_t cables, const char *pool)
{
    char why[256];

    *n = (struct node){.facts = {.ports = n->ports,
                                 .nports = cables,
                                 .seen = n->seen,
                                 .nseen = cables,
                                 .taken = n->taken,
                                 .is_member = true,
                                 .node = {id},
                                 .cluster = {42}}};
    if (pool)
        assert_int_equal(subnet_pool_parse(&n->facts.pool, pool, why, sizeof why), 0);
    for (unsigned i = 0; i < cables; i++) {
        struct cable *c = &n->seen[i].cable;

        n->ports[i] = (struct port){
            .ifindex = i + 1, .kind = PORT_ETH, .mtu = 1500, .max_mtu = 9000, .port_id = 100u * id + i};
        snprintf(n->ports[i].name, sizeof n->ports[i].name, "eth%u", i);
        n->seen[i].state = NEIGHBOUR_TWO_WAY;
        n->seen[i].known_us = CABLES_SETTLE_US;
        *c = (struct cable){.id = 1000 + i,
                            .ifindex = i + 1,
                            .port_id = 100u * id + i,
                            .peer_port_id = 100u * other + i,
                            .node_id = {other},
                            .kind = PORT_ETH,
                            .mtu = 1500,
                            .max_mtu = 9000,
                            .pool = n->facts.pool};
        strcpy(c->name, "other");
        strcpy(c->port_name, "eth7");
    }
}

static struct pair *make_pair(size_t cables, const char *pool)
{
    struct pair *p = calloc(1, sizeof *p);

    assert_non_null(p);
    make_end(&p->a, 1, 2, cables, pool);
    make_end(&p->b, 2, 1, cables, pool);
    return p;
}

static void free_pair(struct pair *p)
{
    cables_plan_done(&p->a.plan);
    cables_plan_done(&p->b.plan);
    free(p);
}

static void take(struct node *n, unsigned ifindex, bool is_route, const struct prefix *what, uint8_t plen)
{
    struct ports_prefix *p = &n->taken[n->facts.ntaken++];

    *p =
        (struct ports_prefix){.family = what->family, .plen = plen, .is_route = is_route, .ifindex = ifindex};
    memcpy(p->at, what->at, 16);
}

static void hear(struct node *n, const struct node *from)
{
    for (size_t i = 0; i < n->facts.nseen; i++) {
        const struct cable_plan *c = cables_plan_find(&from->plan, n->seen[i].cable.id);

        n->seen[i].cable.attempt = c ? c->told : 0;
    }
    cables_plan_update(&n->plan, &n->facts);
}

/* Until nobody has news. */
static void settle(struct pair *p)
{
    for (int i = 0; i < 20; i++) {
        hear(&p->a, &p->b);
        hear(&p->b, &p->a);
    }
}

static const struct cable_plan *of(const struct node *n, size_t i)
{
    const struct cable_plan *c = cables_plan_find(&n->plan, 1000 + i);

    assert_non_null(c);
    return c;
}

static void assert_agree(const struct pair *p, size_t i)
{
    const struct cable_plan *x = of(&p->a, i), *y = of(&p->b, i);

    assert_int_equal(x->four.mine.family, AF_INET);
    assert_true(prefix_equal(&x->four.mine, &y->four.theirs) && prefix_equal(&x->four.theirs, &y->four.mine));
    assert_true(prefix_equal(&x->six.mine, &y->six.theirs) && prefix_equal(&x->six.theirs, &y->six.mine));
    assert_string_equal(x->why4, "");
}

static void both_ends_agree_and_stay(void **state)
{
    struct pair *p = make_pair(3, "10.98.0.0/16");
    struct prefix first;

    (void)state;
    settle(p);
    for (size_t i = 0; i < 3; i++) {
        assert_agree(p, i);
        assert_int_equal(of(&p->a, i)->told, 0);
    }
    first = of(&p->a, 0)->four.mine;
    /* what is set is then seen on the port, also by a ringd that has just started and has planned
     * nothing yet */
    take(&p->a, 1, false, &first, 31);
    take(&p->a, 1, true, &first, 31);
    take(&p->a, 1, false, &of(&p->a, 0)->six.mine, 127);
    cables_plan_done(&p->a.plan);
    settle(p);
    assert_true(prefix_equal(&of(&p->a, 0)->four.mine, &first));
    assert_true(of(&p->a, 0)->is_six_free);
    free_pair(p);
}

/* What ringd-link set elsewhere is on its way out, wherever it is. */
static void what_is_ours_is_not_in_the_way(void **state)
{
    struct pair *p = make_pair(1, "10.98.0.0/16");
    struct prefix first;

    (void)state;
    settle(p);
    first = of(&p->a, 0)->four.mine;
    take(&p->a, 5, false, &first, 31);
    p->a.taken[0].is_ours = true;
    settle(p);
    assert_true(prefix_equal(&of(&p->a, 0)->four.mine, &first));
    p->a.taken[0].is_ours = false;
    settle(p);
    assert_false(prefix_equal(&of(&p->a, 0)->four.mine, &first));
    free_pair(p);
}

static void what_is_in_the_way_is_gone_round(void **state)
{
    struct pair *p = make_pair(1, "10.98.0.0/16");
    struct prefix first, second;

    (void)state;
    settle(p);
    first = of(&p->a, 0)->four.mine;
    take(&p->a, 9, true, &first, 24); /* a home network that comes later, seen by one end only */
    settle(p);
    assert_agree(p, 0);
    second = of(&p->a, 0)->four.mine;
    assert_false(prefix_bits_equal(first.at, second.at, 24));
    take(&p->b, 1, false, &of(&p->b, 0)->four.mine, 25); /* on our own port, not as we would have set it */
    settle(p);
    assert_agree(p, 0);
    assert_true(of(&p->a, 0)->told == 2 && of(&p->b, 0)->told == 2);
    free_pair(p);
}

static void no_room_is_told_and_withdrawn(void **state)
{
    struct pair *p = make_pair(1, "10.98.0.0/16");

    (void)state;
    settle(p);
    take(&p->a, 9, true, &p->a.facts.pool, 16); /* the home network is the pool */
    settle(p);
    assert_int_equal(of(&p->a, 0)->four.mine.family, 0);
    assert_int_equal(of(&p->b, 0)->four.mine.family, 0);
    assert_non_null(strstr(of(&p->a, 0)->why4, "10.98.0.0/16"));
    assert_non_null(strstr(of(&p->b, 0)->why4, "other has no /31"));
    assert_true(of(&p->a, 0)->is_six_free); /* of another family */
    p->a.facts.ntaken = 0;
    settle(p);
    assert_agree(p, 0);
    free_pair(p);
}

/* Eight cables for four places: the first in order of ids get one, and nothing swings. */
static void a_small_pool(void **state)
{
    struct pair *p = make_pair(8, "10.98.0.0/29");
    size_t n = 0;

    (void)state;
    settle(p);
    for (size_t i = 0; i < 8; i++) {
        const struct cable_plan *c = of(&p->a, i);

        assert_int_equal(c->four.mine.family, of(&p->b, i)->four.mine.family);
        n += c->four.mine.family != 0;
        if (c->four.mine.family) {
            assert_agree(p, i);
            for (size_t k = 0; k < i; k++)
                assert_false(prefix_overlaps(&of(&p->a, k)->four.mine, &c->four.mine) &&
                             of(&p->a, k)->four.mine.family);
        }
    }
    assert_true(n >= 1 && n <= 4);
    struct prefix before = of(&p->a, 0)->four.mine;
    assert_int_equal(before.family, AF_INET);
    settle(p);
    assert_true(prefix_equal(&before, &of(&p->a, 0)->four.mine));
    free_pair(p);
}

/* Two cables for two places, heard in any order and at either end first: in the end both have
 * one. */
static void any_order_of_hearing(void **state)
{
    uint32_t seed = 20261121;

    (void)state;
    for (int world = 0; world < 500; world++) {
        struct pair *p = make_pair(2, "10.98.0.0/30");
        struct node *ends[] = {&p->a, &p->b};

        for (unsigned i = 0; i < 2; i++) {
            uint32_t id = seed = seed * 1664525u + 1013904223u;

            for (size_t k = 0; k < 2; k++) {
                ends[k]->seen[i].cable.id = 1000 + i;
                ends[k]->seen[i].state = NEIGHBOUR_HEARD;
            }
            p->a.seen[i].cable.port_id = p->b.seen[i].cable.peer_port_id = id;
        }
        for (int step = 0; step < 12; step++) {
            seed = seed * 1664525u + 1013904223u;
            struct node *n = ends[seed >> 31];
            n->seen[seed >> 30 & 1].state = NEIGHBOUR_TWO_WAY;
            hear(n, ends[1 - (seed >> 31)]);
        }
        for (size_t i = 0; i < 2; i++)
            p->a.seen[i].state = p->b.seen[i].state = NEIGHBOUR_TWO_WAY;
        settle(p);
        assert_agree(p, 0);
        assert_agree(p, 1);
        assert_false(prefix_overlaps(&of(&p->a, 0)->four.mine, &of(&p->a, 1)->four.mine));
        free_pair(p);
    }
}

static void pools_that_differ_are_named(void **state)
{
    struct pair *p = make_pair(1, "10.98.0.0/16");

    (void)state;
    p->a.seen[0].cable.pool = (struct prefix){AF_INET, 16, {10, 97}};
    p->b.seen[0].cable.pool.family = 0;
    settle(p);
    assert_int_equal(of(&p->a, 0)->four.mine.family, 0);
    assert_non_null(strstr(of(&p->a, 0)->why4, "10.97.0.0/16"));
    assert_non_null(strstr(of(&p->b, 0)->why4, "has no ipv4-pool"));
    p->a.facts.pool.family = 0;
    settle(p);
    assert_string_equal(of(&p->a, 0)->why4, ""); /* not wanted */
    free_pair(p);
}

static void six_says_who_has_it(void **state)
{
    struct pair *p = make_pair(1, NULL);

    (void)state;
    settle(p);
    take(&p->a, 9, true, &(struct prefix){AF_INET6, 8, {0xfd}}, 8);
    settle(p);
    assert_true(of(&p->a, 0)->is_six_free);
    assert_non_null(strstr(of(&p->a, 0)->why6, "fd00::/8"));
    p->a.facts.ntaken = 0;
    take(&p->a, 9, true, &of(&p->a, 0)->six.theirs, 128);
    settle(p);
    assert_false(of(&p->a, 0)->is_six_free);
    assert_non_null(strstr(of(&p->a, 0)->why6, "on interface 9"));
    free_pair(p);
}

static void only_cables_of_two_have_any(void **state)
{
    struct pair *p = make_pair(2, "10.98.0.0/16");
    struct linkctl_want want[MOST];

    (void)state;
    settle(p);
    assert_int_equal(cables_plan_want(&p->a.plan, &p->a.facts, want), 4);
    p->a.seen[0].cable.shared = true;
    p->a.seen[1].state = NEIGHBOUR_ONE_WAY;
    settle(p);
    assert_int_equal(p->a.plan.n, 1);
    assert_true(of(&p->a, 1)->is_out);
    p->a.seen[1].state = NEIGHBOUR_TWO_WAY;
    settle(p);
    assert_false(of(&p->a, 1)->is_out);
    p->a.facts.is_member = false;
    settle(p);
    assert_int_equal(cables_plan_want(&p->a.plan, &p->a.facts, want), 0);
    free_pair(p);
}

/* Both cables are not heard any more: the plan after `us`. */
static void pass(struct pair *p, uint64_t us)
{
    p->a.facts.nseen = 0;
    p->a.facts.now.us += us;
    cables_plan_update(&p->a.plan, &p->a.facts);
}

static void a_cable_that_is_out_keeps_its_lease(void **state)
{
    struct pair *p = make_pair(2, "10.98.0.0/16");
    struct linkctl_want want[MOST];

    (void)state;
    settle(p);
    pass(p, 5000000);
    assert_int_equal(cables_plan_want(&p->a.plan, &p->a.facts, want), 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(want[i].verb == RLINK_ADDR_ADD && want[i].lapses);
    p->a.facts.nseen = 2; /* heard again: as if it had never been away */
    cables_plan_update(&p->a.plan, &p->a.facts);
    assert_int_equal(cables_plan_want(&p->a.plan, &p->a.facts, want), 4);
    assert_false(want[0].lapses || want[3].lapses);
    pass(p, 1000000);
    p->a.facts.now.us += CABLES_LEASE_US - 1;
    assert_int_equal(cables_plan_update(&p->a.plan, &p->a.facts), 1);
    assert_int_equal(p->a.plan.n, 2);
    pass(p, 1);
    assert_int_equal(p->a.plan.n, 0);
    free_pair(p);
}

static void a_cable_that_is_no_more_keeps_nothing(void **state)
{
    struct pair *p = make_pair(2, NULL);
    struct roster roster = {.n = 1, .at = {{.id = {2}, .status = ROSTER_ACTIVE}}};

    (void)state;
    p->a.facts.roster = &roster;
    settle(p);
    p->a.facts.nports = 1; /* the second is unplugged, port and all */
    pass(p, 1);
    assert_int_equal(p->a.plan.n, 1);
    assert_true(of(&p->a, 0)->is_out);
    p->a.facts.nseen = 1; /* another node is on the first now */
    p->a.seen[0].cable.id = 2000;
    cables_plan_update(&p->a.plan, &p->a.facts);
    assert_int_equal(p->a.plan.n, 1);
    assert_int_equal(p->a.plan.at[0].id, 2000);
    roster.at[0].status = ROSTER_REMOVED;
    pass(p, 1);
    assert_int_equal(p->a.plan.n, 0);
    free_pair(p);
}

static void a_new_cable_settles_first(void **state)
{
    struct pair *p = make_pair(2, NULL);

    (void)state;
    p->a.seen[0].known_us = 300000;
    p->a.seen[1].known_us = 400000;
    assert_int_equal(cables_plan_update(&p->a.plan, &p->a.facts), 600000);
    assert_int_equal(p->a.plan.n, 0);
    p->a.seen[1].known_us = CABLES_SETTLE_US;
    assert_int_equal(cables_plan_update(&p->a.plan, &p->a.facts), 700000);
    assert_int_equal(p->a.plan.n, 1);
    p->a.seen[0].cable.shared = true; /* a switch after all */
    assert_int_equal(cables_plan_update(&p->a.plan, &p->a.facts), 0);
    assert_int_equal(p->a.plan.n, 1);
    free_pair(p);
}

static size_t count(const struct linkctl_want *want, size_t n, enum rlink_verb verb, uint32_t mtu)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        found += want[i].verb == verb && want[i].mtu == mtu;
    return found;
}

static void thunderbolt_is_set_up_with_its_largest_mtu(void **state)
{
    struct pair *p = make_pair(3, NULL);
    struct linkctl_want want[MOST];
    size_t n;

    (void)state;
    p->a.ports[0].kind = p->a.seen[0].cable.kind = PORT_TB;
    p->a.ports[0].max_mtu = 65522;
    p->a.seen[0].cable.max_mtu = 65000;
    p->a.ports[1].kind = PORT_TB; /* the other end is something else */
    p->a.ports[2].named = true;
    settle(p);
    n = cables_plan_want(&p->a.plan, &p->a.facts, want);
    assert_int_equal(count(want, n, RLINK_SET_UP, 0), 3);
    assert_int_equal(count(want, n, RLINK_SET_MTU, 65000), 1);
    assert_int_equal(n, 3 + 1 + 3);
    p->a.ports[0].enslaved = true; /* a bridge's, now */
    p->a.ports[2].named = false;
    p->a.seen[0].cable.max_mtu = 0;
    settle(p);
    n = cables_plan_want(&p->a.plan, &p->a.facts, want);
    assert_int_equal(count(want, n, RLINK_SET_UP, 0), 1);
    assert_int_equal(n, 1 + 3);
    free_pair(p);
}

/* A cable that has just been plugged in: the kernel still examines its address, which ringd-link
 * can spare us. */
static void a_new_port_gets_its_address_at_once(void **state)
{
    struct pair *p = make_pair(3, NULL);
    struct linkctl_want want[MOST];
    size_t n;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        p->a.ports[i].up = p->a.ports[i].carrier = true;
    p->a.ports[0].has_link_local = true;
    p->a.ports[1].has_link_local = p->a.ports[2].has_link_local = false;
    p->a.ports[1].has_default_route = true; /* the way to the world is not ours to hurry */
    settle(p);
    n = cables_plan_want(&p->a.plan, &p->a.facts, want);
    assert_int_equal(count(want, n, RLINK_LINK_LOCAL, 0), 1);
    p->a.ports[2].carrier = false;
    settle(p);
    n = cables_plan_want(&p->a.plan, &p->a.facts, want);
    assert_int_equal(count(want, n, RLINK_LINK_LOCAL, 0), 0);
    free_pair(p);
}

static void unlike_mtus_are_named(void **state)
{
    struct pair *p = make_pair(1, NULL);
    char why[CABLES_WHY];

    (void)state;
    cables_mtu_trouble(why, &p->a.ports[0], &p->a.seen[0].cable);
    assert_string_equal(why, "");
    p->a.ports[0].mtu = 9000;
    cables_mtu_trouble(why, &p->a.ports[0], &p->a.seen[0].cable);
    assert_non_null(strstr(why, "ip link set dev eth0 mtu 1500 on this node"));
    p->a.seen[0].cable.mtu = 9500;
    cables_mtu_trouble(why, &p->a.ports[0], &p->a.seen[0].cable);
    assert_non_null(strstr(why, "ip link set dev eth7 mtu 9000 on other"));
    free_pair(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_agree_and_stay),
        cmocka_unit_test(what_is_ours_is_not_in_the_way),
        cmocka_unit_test(what_is_in_the_way_is_gone_round),
        cmocka_unit_test(no_room_is_told_and_withdrawn),
        cmocka_unit_test(a_small_pool),
        cmocka_unit_test(any_order_of_hearing),
        cmocka_unit_test(pools_that_differ_are_named),
        cmocka_unit_test(six_says_who_has_it),
        cmocka_unit_test(a_cable_that_is_out_keeps_its_lease),
        cmocka_unit_test(a_cable_that_is_no_more_keeps_nothing),
        cmocka_unit_test(a_new_cable_settles_first),
        cmocka_unit_test(only_cables_of_two_have_any),
        cmocka_unit_test(thunderbolt_is_set_up_with_its_largest_mtu),
        cmocka_unit_test(a_new_port_gets_its_address_at_once),
        cmocka_unit_test(unlike_mtus_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
