/* SPDX-License-Identifier: MIT
 *
 * What follows from the records of nodes: who is reachable, the ring and when it changes, an order
 * set by hand. */
#include "tests/unit/daemon/ringd/cluster/members_world.h"

/* --- what follows ----------------------------------------------------------------------------- */

static void describes(const struct members *m, const char *want)
{
    char text[700];
    members_describe(m, text, sizeof text);
    assert_string_equal(text, want);
}

static void shapes_are_named(void **state)
{
    (void)state;
    struct members *m = alone(0);
    describes(m, "n0 is alone");
    members_free(m);
    m = row_of(3, true);
    describes(m, "a ring of 3: n0, n1, n2");
    members_free(m);
    m = row_of(4, false);
    describes(m, "a chain of 4: n0, n1, n2, n3; a connection between n0 and n3 would close the ring");
    struct member star = make(9, 1, 1), *self = members_self(m);
    link_to(&star, 1);
    struct member n1 = *members_at(m, 1);
    link_to(&n1, 9);
    n1.seq++;
    assert_int_equal(learn(m, &star, 1) + learn(m, &n1, 1), 2);
    describes(
        m, "no path visits all nodes; connections between n3 and n9 and between n9 and n0 would make a ring");
    self->nlinks = 0;
    describes(m, "n0 is alone");
    members_free(m);
}

/* Who is gone, and who is merely behind it. */
static void the_one_that_was_cut_off_is_told(void **state)
{
    (void)state;
    struct members *m = row_of(4, false);
    assert_null(members_cut_off(m));
    members_self(m)->nlinks = 0;
    assert_ptr_equal(members_cut_off(m), members_find(m, members_at(m, 1)->id));
    link_to(members_self(m), 1);
    struct member n1 = *members_at(m, 1);
    n1.nlinks = 1; /* n1 no longer has n2 */
    n1.seq++;
    assert_int_equal(learn(m, &n1, 1), 1);
    assert_ptr_equal(members_cut_off(m), members_at(m, 2));
    members_free(m);
    m = row_of(4, true);
    n1 = *members_at(m, 1); /* nor n0: it is behind n2 and n3 now */
    n1.nlinks = 0;
    link_to(&n1, 2);
    n1.seq++;
    assert_int_equal(learn(m, &n1, 1), 1);
    members_self(m)->nlinks = 0;
    assert_ptr_equal(members_cut_off(m), members_at(m, 3));
    members_free(m);
}

static void a_link_needs_both_ends(void **state)
{
    (void)state;
    struct members *m = alone(0);
    struct member a = make(1, 1, 1);
    link_to(&a, 0);
    assert_int_equal(learn(m, &a, 1), 1);
    assert_false(members_reachable(m, a.id));
    assert_null(members_next_hop(m, a.id));
    link_to(members_self(m), 1);
    assert_true(members_reachable(m, a.id));
    assert_ptr_equal(members_next_hop(m, a.id), members_at(m, 1));
    assert_true(members_reachable(m, members_self(m)->id));
    assert_null(members_next_hop(m, members_self(m)->id));
    uint8_t stranger[16] = {99};
    assert_false(members_reachable(m, stranger));
    assert_null(members_next_hop(m, stranger));
    members_free(m);
}

/* The ring is computed once for each graph: another graph must give another. */
static void the_ring_follows_every_change(void **state)
{
    struct members *m = alone(1);
    (void)state;
    link_to(members_self(m), 2);
    for (uint64_t seq = 1; seq <= 6; seq++) {
        struct member b = make(2, 1, seq);
        if (seq % 2)
            link_to(&b, 1);
        learn(m, &b, seq);
        for (int again = 0; again < 2; again++) {
            struct members_ring ring;
            members_ring(m, NULL, &ring);
            assert_int_equal(ring.n, seq % 2 ? 2 : 1);
            assert_int_equal(ring.shape, seq % 2 ? RING_CLOSED : RING_ALONE);
        }
        assert_int_equal(members_linked(m, members_self(m)->id, b.id), seq % 2);
    }
    assert_false(members_linked(m, members_self(m)->id, make(3, 1, 1).id));
    members_free(m);
}

static void messages_take_the_short_way(void **state)
{
    (void)state;
    struct members *ring = row_of(6, true), *line = row_of(6, false);
    for (unsigned to = 1; to < 6; to++) {
        struct member who = make(to, 0, 0);
        assert_string_equal(members_next_hop(line, who.id)->name, "n1");
        if (to != 3)
            assert_string_equal(members_next_hop(ring, who.id)->name, to < 3 ? "n1" : "n5");
    }
    members_free(ring);
    members_free(line);
}

static void the_ring_turns_to_its_head(void **state)
{
    (void)state;
    struct members *m = row_of(5, true);
    struct members_ring r;
    for (unsigned head = 0; head < 5; head++) {
        struct member who = make(head, 0, 0);
        members_ring(m, who.id, &r);
        assert_int_equal(r.shape, RING_CLOSED);
        assert_int_equal(r.n, 5);
        assert_memory_equal(r.at[0]->id, who.id, 16);
        for (unsigned i = 0; i < 5; i++) /* neighbours stay neighbours */
            assert_true(members_next_hop(m, r.at[i]->id) || r.at[i] == members_at(m, 0));
    }
    members_free(m);
    m = row_of(3, false);
    struct member middle = make(1, 0, 0), end = make(2, 0, 0);
    members_ring(m, middle.id, &r);
    assert_string_equal(r.at[0]->name, "n0");
    members_ring(m, end.id, &r);
    assert_string_equal(r.at[0]->name, "n2");
    members_free(m);
}

/* --- the ring that stands --------------------------------------------------------------------- */

/* n nodes, all linked to all, every way of one class. */
static struct members *mesh_of(unsigned n)
{
    struct members *m = alone(0);
    for (unsigned i = 0; i < n; i++) {
        struct member a = make(i, 1, 1), *who = i ? &a : members_self(m);
        for (unsigned k = 0; k < n; k++)
            if (k != i) {
                link_to(who, k);
                who->links[who->nlinks - 1].class_mbps = 1000;
            }
        if (i)
            assert_int_equal(learn(m, &a, i), 1);
    }
    return m;
}

static struct member_link *way(struct member *from, unsigned to)
{
    for (size_t i = 0; i < from->nlinks; i++)
        if (from->links[i].id[0] == to + 1)
            return &from->links[i];
    return NULL;
}

/* The way between 0 and `to` has become another, which both ends say. */
static void set_way(struct members *m, unsigned to, uint32_t class_mbps, bool shared)
{
    struct member other = make(to, 0, 0), news = *members_find(m, other.id);
    struct member_link *ends[2] = {way(members_self(m), to), way(&news, 0)};
    for (size_t i = 0; i < 2; i++) {
        ends[i]->class_mbps = class_mbps;
        ends[i]->shared = shared;
    }
    news.seq++;
    assert_int_equal(learn(m, &news, 1), 1);
}

static void ring_is(const struct members *m, const char *want)
{
    struct members_ring r;
    char text[200] = "";
    members_ring(m, NULL, &r);
    for (size_t i = 0; i < r.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", r.at[i]->name);
    assert_string_equal(text, want);
}

enum { SECOND = 1000000 };

static uint64_t settle(struct members *m, uint64_t us)
{
    return members_settle(m, (struct instant){us}).us;
}

static void faster_and_unshared_ways_are_preferred(void **state)
{
    (void)state;
    struct members *m = mesh_of(4);
    struct members_ring r;
    ring_is(m, "n0 n1 n2 n3");
    set_way(m, 1, 100, false);
    ring_is(m, "n0 n2 n1 n3");
    set_way(m, 1, 1000, true);
    ring_is(m, "n0 n2 n1 n3");
    members_ring(m, NULL, &r);
    assert_int_equal(r.class_mbps, 1000);
    assert_int_equal(r.shared, 0);
    set_way(m, 2, 1000, true);
    members_ring(m, NULL, &r);
    assert_int_equal(r.shared, 1);
    members_free(m);
}

static void a_better_ring_waits_for_quiet(void **state)
{
    (void)state;
    struct members *m = mesh_of(4);
    assert_true(settle(m, 0) == UINT64_MAX); /* a ring where none was stands at once */
    set_way(m, 1, 100, false);
    ring_is(m, "n0 n1 n2 n3");
    assert_true(settle(m, 1 * SECOND) == 1 * SECOND + MEMBERS_SETTLE_US);
    set_way(m, 1, 1000, false); /* a wobble */
    assert_true(settle(m, 2 * SECOND) == UINT64_MAX);
    set_way(m, 1, 100, false);
    assert_true(settle(m, 3 * SECOND) == 3 * SECOND + MEMBERS_SETTLE_US);
    set_way(m, 3, 100, false); /* another is better now: it waits anew */
    assert_true(settle(m, 4 * SECOND) == 4 * SECOND + MEMBERS_SETTLE_US);
    set_way(m, 3, 1000, false);
    assert_true(settle(m, 5 * SECOND) == 5 * SECOND + MEMBERS_SETTLE_US);
    ring_is(m, "n0 n1 n2 n3");
    assert_true(settle(m, 5 * SECOND + MEMBERS_SETTLE_US) == UINT64_MAX);
    ring_is(m, "n0 n2 n1 n3");
    members_free(m);
}

static void nothing_is_reordered_under_a_job(void **state)
{
    (void)state;
    struct members *m = mesh_of(4);
    settle(m, 0);
    struct member busy = *members_at(m, 2);
    busy.nstages = 1;
    busy.stages[0].job = 5;
    busy.seq++;
    assert_int_equal(learn(m, &busy, 1), 1);
    set_way(m, 1, 100, false);
    assert_true(settle(m, 1 * SECOND) == UINT64_MAX);
    assert_true(settle(m, 100 * SECOND) == UINT64_MAX);
    ring_is(m, "n0 n1 n2 n3");
    busy.nstages = 0;
    busy.seq++;
    assert_int_equal(learn(m, &busy, 1), 1);
    assert_true(settle(m, 101 * SECOND) == 101 * SECOND + MEMBERS_SETTLE_US);
    settle(m, 103 * SECOND);
    ring_is(m, "n0 n2 n1 n3");
    members_free(m);
}

static void what_cannot_go_on_is_replaced_at_once(void **state)
{
    (void)state;
    struct members *m = mesh_of(4);
    settle(m, 0);
    way(members_self(m), 1)->id[1] = 77; /* the connection is gone */
    ring_is(m, "n0 n2 n1 n3");
    assert_true(settle(m, SECOND) == UINT64_MAX);
    members_self(m)->links[0].id[1] = 0; /* it comes back, and its ring waits */
    assert_true(settle(m, 2 * SECOND) == 2 * SECOND + MEMBERS_SETTLE_US);
    ring_is(m, "n0 n2 n1 n3");
    members_free(m);
}

/* --- an order set by hand --------------------------------------------------------------------- */

static void orders(struct members *m, unsigned who, const char *ring)
{
    struct member probe = make(who, 0, 0), news = *members_find(m, probe.id);
    snprintf(news.ring, sizeof news.ring, "%s", ring);
    news.seq++;
    if (who == 0)
        *members_self(m) = news;
    else
        assert_int_equal(learn(m, &news, 1), 1);
}

static void trouble_is(const struct members *m, const char *want)
{
    char ring[MEMBER_RING_TEXT], trouble[400];
    members_override(m, ring, trouble, sizeof trouble);
    assert_string_equal(trouble, want);
}

static void an_order_by_hand_is_followed(void **state)
{
    (void)state;
    struct members *m = mesh_of(4);
    struct members_ring r;
    orders(m, 2, "n3,n1,n0,n2");
    ring_is(m, "n3 n1 n0 n2");
    trouble_is(m, "");
    members_ring(m, NULL, &r);
    assert_true(r.by_hand);
    orders(m, 3, "n0,n2,n1,n3");
    ring_is(m, "n3 n1 n0 n2");
    trouble_is(m, "n2 and n3 have different --ring: ringd follows that of n2, which has the smaller id");
    orders(m, 0, "n1,n0,n3,n2");
    ring_is(m, "n1 n0 n3 n2");
    members_free(m);
}

/* Wherever one stands: here the smaller id is the other. */
static void the_smaller_id_orders(void **state)
{
    (void)state;
    struct members *m = alone(2);
    struct member other = make(0, 1, 1);
    link_to(&other, 2);
    link_to(members_self(m), 0);
    snprintf(other.ring, sizeof other.ring, "n0,n2");
    snprintf(members_self(m)->ring, sizeof other.ring, "n2,n0");
    assert_int_equal(learn(m, &other, 1), 1);
    ring_is(m, "n0 n2");
    trouble_is(m, "n0 and n2 have different --ring: ringd follows that of n0, which has the smaller id");
    members_free(m);
}

static void a_wrong_order_is_told_and_not_followed(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"n0,n1,n2,nix", "no node called nix can be reached"},
                                           {"n0,n1,n2", "n3 is not in it"},
                                           {"n0,n1,n0,n2", "n0 is in it twice"},
                                           {"", NULL},
                                           {"n0,n2,n1,n3", "there is no connection between n0 and n2"}};
    char want[300];
    struct members *m = row_of(4, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        orders(m, 1, cases[i][0]);
        snprintf(want, sizeof want,
                 "--ring of n1 cannot be followed: %s; the computed ring is used meanwhile", cases[i][1]);
        trouble_is(m, cases[i][1] ? want : "");
        ring_is(m, "n0 n1 n2 n3");
    }
    orders(m, 1, "n0,n1,n2,n3");
    describes(m, "a ring of 4: n0, n1, n2, n3");
    members_free(m);
}

/* --- age -------------------------------------------------------------------------------------- */

static void silent_nodes_are_out_of_reach(void **state)
{
    (void)state;
    struct members *m = row_of(3, true); /* n1 spoke at 1, n2 at 2 */
    struct member n1 = *members_at(m, 1);
    assert_true(members_due(m).us == UINT64_MAX);
    assert_false(members_expire(m, (struct instant){1000 * (uint64_t)SECOND}));
    members_set_patience(m, 30);
    assert_true(members_due(m).us == 31);
    assert_false(members_expire(m, (struct instant){30}));
    assert_true(members_expire(m, (struct instant){31}));
    assert_false(members_reachable(m, n1.id));
    describes(m, "a ring of 2: n0, n2");
    assert_true(members_due(m).us == 32);
    assert_false(members_expire(m, (struct instant){31}));
    n1.seq++;
    assert_int_equal(learn(m, &n1, 31), 1);
    assert_true(members_reachable(m, n1.id));
    members_free(m);
}

/* Who stood still could not hear anybody, and gives everybody time for two heartbeats. */
static void our_own_standstill_is_nobodys_silence(void **state)
{
    (void)state;
    struct members *m = row_of(3, true);
    struct member n2 = *members_at(m, 2);
    members_set_patience(m, 30 * (uint64_t)SECOND);
    const uint64_t wakes = members_due(m).us + 3600 * (uint64_t)SECOND;
    assert_false(members_expire(m, (struct instant){wakes}));
    assert_true(members_due(m).us > wakes + SECOND);
    n2.seq++;
    assert_int_equal(learn(m, &n2, wakes + SECOND), 1);
    assert_true(members_expire(m, (struct instant){members_due(m).us}));
    assert_false(members_reachable(m, members_at(m, 1)->id));
    assert_true(members_reachable(m, n2.id));
    members_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_named),
        cmocka_unit_test(the_one_that_was_cut_off_is_told),
        cmocka_unit_test(a_link_needs_both_ends),
        cmocka_unit_test(the_ring_follows_every_change),
        cmocka_unit_test(messages_take_the_short_way),
        cmocka_unit_test(the_ring_turns_to_its_head),
        cmocka_unit_test(faster_and_unshared_ways_are_preferred),
        cmocka_unit_test(a_better_ring_waits_for_quiet),
        cmocka_unit_test(nothing_is_reordered_under_a_job),
        cmocka_unit_test(what_cannot_go_on_is_replaced_at_once),
        cmocka_unit_test(an_order_by_hand_is_followed),
        cmocka_unit_test(the_smaller_id_orders),
        cmocka_unit_test(a_wrong_order_is_told_and_not_followed),
        cmocka_unit_test(silent_nodes_are_out_of_reach),
        cmocka_unit_test(our_own_standstill_is_nobodys_silence),
    };
    return cmocka_run_group_tests_name("members ring", tests, NULL, NULL);
}
