/* SPDX-License-Identifier: MIT
 *
 * Records of nodes: which are news, what follows from them, and that flooding them ends, in whatever order they arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/members.h"
#include "num/rng.h"

static struct member make(unsigned id, uint64_t boot, uint64_t seq)
{
    struct member m = {
        .boot = boot, .seq = seq, .cores = 4, .threads = 2, .memory_total = 8000, .memory_available = 500};
    m.id[0] = (uint8_t)(id + 1);
    snprintf(m.name, sizeof m.name, "n%u", id);
    snprintf(m.version, sizeof m.version, "1.2");
    snprintf(m.doing, sizeof m.doing, "idle");
    return m;
}

static void link_to(struct member *m, unsigned id)
{
    memset(&m->links[m->nlinks], 0, sizeof *m->links);
    m->links[m->nlinks++].id[0] = (uint8_t)(id + 1);
}

static int learn(struct members *m, const struct member *news, uint64_t now)
{
    json_t *record = member_encode(news);
    assert_non_null(record);
    int r = members_learn(m, record, (struct instant){now});
    json_decref(record);
    return r;
}

static struct members *alone(unsigned id)
{
    struct member self = make(id, 1, 1);
    return members_new(&self);
}

/* --- records ---------------------------------------------------------------------------------- */

static void every_field_travels(void **state)
{
    (void)state;
    struct members *m = alone(0);
    struct member a = make(7, 1, 9);
    a.job = 12;
    a.rank = 3;
    a.seconds = 0.1;
    a.head[5] = 0xfe;
    link_to(&a, 0);
    link_to(&a, 9);
    a.links[1].class_mbps = 40000;
    a.links[1].shared = true;
    snprintf(a.ring, sizeof a.ring, "n7,n0");
    snprintf(a.doing, sizeof a.doing, "waiting for \"rank 1\"");
    assert_int_equal(learn(m, &a, 77), 1);
    const struct member *b = members_find(m, a.id);
    assert_non_null(b);
    assert_int_equal(b->heard.us, 77);
    a.heard = b->heard;
    assert_memory_equal(b, &a, sizeof a);
    assert_int_equal(members_count(m), 2);
    assert_ptr_equal(members_at(m, 1), b);
    members_free(m);
}

static void only_later_words_are_news(void **state)
{
    (void)state;
    struct members *m = alone(0);
    struct member a = make(1, 5, 10);
    assert_int_equal(learn(m, &a, 1), 1);
    assert_int_equal(learn(m, &a, 2), 0);
    a.seq = 9;
    assert_int_equal(learn(m, &a, 3), 0);
    a.seq = 11;
    assert_int_equal(learn(m, &a, 4), 1);
    struct member again = make(1, 6, 1); /* a new life, though it counts anew */
    assert_int_equal(learn(m, &again, 5), 1);
    assert_int_equal(members_find(m, a.id)->boot, 6);
    members_free(m);
}

static void a_former_life_is_believed_only_while_it_talks(void **state)
{
    (void)state;
    struct members *m = alone(0);
    struct member later = make(1, 6, 3), former = make(1, 5, 90);
    assert_int_equal(learn(m, &former, 1), 1);
    assert_int_equal(learn(m, &later, 2), 1);
    assert_int_equal(learn(m, &former, 3), 0); /* an echo */
    former.seq++; /* a clock that was set back, and nobody reachable under the later boot */
    assert_int_equal(learn(m, &former, 4), 1);
    assert_int_equal(learn(m, &later, 5), 0);
    later.seq++;
    assert_int_equal(learn(m, &later, 6), 1);
    members_free(m);
}

static void a_copied_identity_is_told(void **state)
{
    (void)state;
    struct members *m = alone(4);
    struct member twin = make(4, 2, 50);
    assert_int_equal(learn(m, &twin, 1), 0); /* perhaps ourselves, before we were restarted */
    assert_int_equal(learn(m, &twin, 2), 0);
    twin.seq++;
    assert_int_equal(learn(m, &twin, 3), -EEXIST);
    twin = *members_self(m);
    assert_int_equal(learn(m, &twin, 4), 0);
    members_touch(m);
    assert_int_equal(members_self(m)->seq, 2);
    assert_int_equal(members_count(m), 1);
    members_free(m);
}

/* What a peer of another version, or a liar, may send. */
static void nonsense_is_refused(void **state)
{
    (void)state;
    struct members *m = alone(0);
    struct member a = make(1, 1, 1);
    json_t *good = member_encode(&a);
    const char *key;
    json_t *value;
    json_object_foreach(good, key, value)
    {
        json_t *bad = json_deep_copy(good);
        json_object_del(bad, key);
        assert_int_equal(members_learn(m, bad, (struct instant){1}), -EBADMSG);
        json_object_set_new(bad, key, json_null());
        assert_int_equal(members_learn(m, bad, (struct instant){1}), -EBADMSG);
        json_decref(bad);
    }
    static const char *const ids[] = {"", "00", "0000000000000000000000000000000g",
                                      "000000000000000000000000000000000"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        json_t *bad = json_deep_copy(good);
        json_object_set_new(bad, "id", json_string(ids[i]));
        assert_int_equal(members_learn(m, bad, (struct instant){1}), -EBADMSG);
        json_array_append_new(json_object_get(good, "links"),
                              json_pack("{s:s s:i s:b}", "id", ids[i], "class_mbps", 0, "shared", 0));
        assert_int_equal(members_learn(m, good, (struct instant){1}), -EBADMSG);
        json_array_clear(json_object_get(good, "links"));
        json_decref(bad);
    }
    for (size_t i = 0; i <= RING_MAX_NODES; i++)
        json_array_append_new(json_object_get(good, "links"),
                              json_pack("{s:s s:i s:b}", "id", "00000000000000000000000000000000",
                                        "class_mbps", 0, "shared", 0));
    assert_int_equal(members_learn(m, good, (struct instant){1}), -EBADMSG);
    json_t *list = json_array();
    assert_int_equal(members_learn(m, list, (struct instant){1}), -EBADMSG);
    assert_int_equal(members_count(m), 1);
    json_decref(list);
    json_decref(good);
    members_free(m);
}

static void a_full_table_forgets_who_is_gone_longest(void **state)
{
    (void)state;
    struct members *m = alone(0);
    for (unsigned i = 1; i < RING_MAX_NODES; i++) {
        struct member a = make(i, 1, 1);
        assert_int_equal(learn(m, &a, 100 - i), 1);
    }
    struct member one_more = make(40, 1, 1);
    assert_int_equal(learn(m, &one_more, 200), 1);
    struct member gone = make(RING_MAX_NODES - 1, 1, 1);
    assert_null(members_find(m, gone.id)); /* heard at 85, before all others */
    assert_int_equal(members_count(m), RING_MAX_NODES);
    members_free(m);
}

static void nobody_reachable_is_forgotten(void **state)
{
    (void)state;
    struct members *m = alone(0);
    for (unsigned i = 1; i < RING_MAX_NODES; i++) {
        struct member a = make(i, 1, 1);
        link_to(&a, 0);
        link_to(members_self(m), i);
        assert_int_equal(learn(m, &a, i), 1);
    }
    struct member one_more = make(40, 1, 1);
    assert_int_equal(learn(m, &one_more, 200), -ENOSPC);
    members_free(m);
}

/* --- what follows ------------------------------------------------------------------------------- */

/* Node 0's view of a line or ring of n nodes, in order of their ids. */
static struct members *row_of(unsigned n, bool closed)
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

/* --- the ring that stands ----------------------------------------------------------------------------- */

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
    busy.job = 5;
    busy.seq++;
    assert_int_equal(learn(m, &busy, 1), 1);
    set_way(m, 1, 100, false);
    assert_true(settle(m, 1 * SECOND) == UINT64_MAX);
    assert_true(settle(m, 100 * SECOND) == UINT64_MAX);
    ring_is(m, "n0 n1 n2 n3");
    busy.job = 0;
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

/* --- an order set by hand ------------------------------------------------------------------------------ */

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
    trouble_is(m, "n2 and n3 have different --ring: that of n2 counts, for its id is smaller");
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
    trouble_is(m, "n0 and n2 have different --ring: that of n0 counts, for its id is smaller");
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

/* --- age ---------------------------------------------------------------------------------------------- */

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

/* --- flooding -------------------------------------------------------------------------------------- */

enum { FLOOD_NODES = 4, MAX_FLIGHT = 4096 };

struct flight {
    unsigned to, from;
    struct member record;
};
struct world {
    struct members *node[FLOOD_NODES];
    struct flight flight[MAX_FLIGHT];
    size_t n;
    struct rng rng;
};

static void send(struct world *w, unsigned from, unsigned to, const struct member *record)
{
    assert_true(w->n < MAX_FLIGHT);
    w->flight[w->n++] = (struct flight){to, from, *record};
}

static void flood(struct world *w, unsigned from, unsigned except, const struct member *record)
{
    for (unsigned to = 0; to < FLOOD_NODES; to++)
        if (to != from && to != except)
            send(w, from, to, record);
}

/* The oldest word of a random cable arrives; what is news there is passed on. */
static void deliver_one(struct world *w)
{
    size_t pick = rng_below(&w->rng, w->n);
    for (size_t i = 0; i < pick; i++)
        if (w->flight[i].to == w->flight[pick].to && w->flight[i].from == w->flight[pick].from)
            pick = i;
    struct flight f = w->flight[pick];
    memmove(&w->flight[pick], &w->flight[pick + 1], (--w->n - pick) * sizeof *w->flight);
    if (learn(w->node[f.to], &f.record, 1) == 1)
        flood(w, f.to, f.from, &f.record);
}

static void until_quiet(struct world *w, uint64_t seed)
{
    for (size_t steps = 0; w->n; steps++) {
        if (steps > 5000)
            fail_msg("seed %llu: records still go round", (unsigned long long)seed);
        deliver_one(w);
    }
}

/* A node is gone, and those that are left remember different lives of it: that must not go round for ever, and must not hide the node
 * when it comes back, with whichever clock. */
static void flooding_ends(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct world *w = calloc(1, sizeof *w);
        assert_non_null(w);
        w->rng = rng_for(seed, "flood");
        for (unsigned i = 0; i < FLOOD_NODES; i++) {
            struct member old = make(30, 1 + rng_below(&w->rng, 3), 1 + rng_below(&w->rng, 5));
            w->node[i] = alone(i);
            assert_int_equal(learn(w->node[i], &old, 1), 1);
        }
        for (unsigned i = 0; i < FLOOD_NODES; i++)
            flood(w, i, i, members_at(w->node[i], 1));
        until_quiet(w, seed);
        struct member back = make(30, rng_below(&w->rng, 5), 1);
        for (; back.seq < 9; back.seq++) {
            send(w, 30, (unsigned)rng_below(&w->rng, FLOOD_NODES), &back);
            until_quiet(w, seed);
        }
        for (unsigned i = 0; i < FLOOD_NODES; i++) {
            const struct member *known = members_find(w->node[i], back.id);
            if (known->boot != back.boot || known->seq != 8)
                fail_msg("seed %llu: node %u believes in boot %llu, %llu talks", (unsigned long long)seed, i,
                         (unsigned long long)known->boot, (unsigned long long)back.boot);
            members_free(w->node[i]);
        }
        free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_travels),
        cmocka_unit_test(only_later_words_are_news),
        cmocka_unit_test(a_former_life_is_believed_only_while_it_talks),
        cmocka_unit_test(a_copied_identity_is_told),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(a_full_table_forgets_who_is_gone_longest),
        cmocka_unit_test(nobody_reachable_is_forgotten),
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
        cmocka_unit_test(flooding_ends),
    };
    return cmocka_run_group_tests_name("members", tests, NULL, NULL);
}
