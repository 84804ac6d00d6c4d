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
    memset(m->links[m->nlinks], 0, 16);
    m->links[m->nlinks++][0] = (uint8_t)(id + 1);
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
        json_array_append_new(json_object_get(good, "links"), json_string(ids[i]));
        assert_int_equal(members_learn(m, good, (struct instant){1}), -EBADMSG);
        json_array_clear(json_object_get(good, "links"));
        json_decref(bad);
    }
    for (size_t i = 0; i <= RING_MAX_NODES; i++)
        json_array_append_new(json_object_get(good, "links"),
                              json_string("00000000000000000000000000000000"));
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
    describes(m, "no path visits all nodes: every node needs two neighbours");
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
        struct world w = {.rng = rng_for(seed, "flood")};
        for (unsigned i = 0; i < FLOOD_NODES; i++) {
            struct member old = make(30, 1 + rng_below(&w.rng, 3), 1 + rng_below(&w.rng, 5));
            w.node[i] = alone(i);
            assert_int_equal(learn(w.node[i], &old, 1), 1);
        }
        for (unsigned i = 0; i < FLOOD_NODES; i++)
            flood(&w, i, i, members_at(w.node[i], 1));
        until_quiet(&w, seed);
        struct member back = make(30, rng_below(&w.rng, 5), 1);
        for (; back.seq < 9; back.seq++) {
            send(&w, 30, (unsigned)rng_below(&w.rng, FLOOD_NODES), &back);
            until_quiet(&w, seed);
        }
        for (unsigned i = 0; i < FLOOD_NODES; i++) {
            const struct member *known = members_find(w.node[i], back.id);
            if (known->boot != back.boot || known->seq != 8)
                fail_msg("seed %llu: node %u believes in boot %llu, %llu talks", (unsigned long long)seed, i,
                         (unsigned long long)known->boot, (unsigned long long)back.boot);
            members_free(w.node[i]);
        }
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
        cmocka_unit_test(flooding_ends),
    };
    return cmocka_run_group_tests_name("members", tests, NULL, NULL);
}
