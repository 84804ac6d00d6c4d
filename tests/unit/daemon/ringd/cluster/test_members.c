/* SPDX-License-Identifier: MIT
 *
 * Records of nodes: which are news, and that flooding them ends, in whatever order they arrive. */
#include "tests/unit/daemon/ringd/cluster/members_world.h"

#include "num/rng.h"

/* --- records ---------------------------------------------------------------------------------- */

static void every_field_travels(void **state)
{
    (void)state;
    struct members *m = alone(0);
    struct member a = make(7, 1, 9);
    a.nstages = 2;
    a.stages[1] = (struct member_stage){
        .job = 12, .rank = 3, .head = {[5] = 0xfe}, .class = JOB_CLASS_TRAIN, .bytes = 77, .seconds = 0.1};
    a.stages[1].weights = UINT64_C(0xfedcba9876543210);
    a.stages[1].nruns = 2;
    a.stages[1].runs[0] = (struct member_run){0, 1};
    a.stages[1].runs[1] = (struct member_run){7, 4098};
    a.stages[0] = (struct member_stage){.job = 1, .class = JOB_CLASS_SERVE};
    link_to(&a, 0);
    link_to(&a, 9);
    a.links[1].class_mbps = 40000;
    a.links[1].shared = true;
    a.ncables = 2;
    snprintf(a.cables[0].port, sizeof a.cables[0].port, "thunderbolt0");
    assert_int_equal(prefix_parse(&a.cables[0].six, "fd00::1/127"), 0);
    assert_int_equal(prefix_parse(&a.cables[0].four, "10.98.0.1/31"), 0);
    snprintf(a.cables[1].port, sizeof a.cables[1].port, "enp0s31f6");
    snprintf(a.ring, sizeof a.ring, "n7,n0");
    snprintf(a.kernels, sizeof a.kernels, "neon");
    snprintf(a.stages[1].doing, sizeof a.stages[1].doing, "waiting for \"rank 1\"");
    assert_int_equal(learn(m, &a, 77), 1);
    const struct member *b = members_find(m, a.id);
    assert_non_null(b);
    assert_int_equal(b->heard.us, 77);
    a.heard = b->heard;
    assert_memory_equal(b, &a, sizeof a);
    assert_int_equal(members_count(m), 2);
    assert_ptr_equal(members_at(m, 1), b);
    assert_ptr_equal(member_trains(b), &b->stages[1]);
    assert_ptr_equal(member_stage_of(b, a.stages[1].head, 12), &b->stages[1]);
    assert_null(member_stage_of(b, a.stages[0].head, 12)); /* a number is its head's */
    members_free(m);
}

/* A record that says the same is not sent again at once: whatever others decide by must count. */
/* What is too long is cut between two characters, and what a terminal would obey is none of it:
 * such a node is shown like any other. */
static void text_of_others_can_be_shown(void **state)
{
    (void)state;
    struct member a = make(7, 1, 9), b;
    a.nstages = 1;
    a.stages[0].job = 1;
    json_t *record = member_encode(&a), *again, *stage = json_array_get(json_object_get(record, "stages"), 0);
    char longer[4 * sizeof a.stages[0].doing];
    for (size_t shift = 0; shift < 3; shift++) { /* of three-byte characters, wherever the end is */
        snprintf(longer, sizeof longer, "%.*s\x1B[2J", (int)shift, "abc");
        while (strlen(longer) + 4 < sizeof longer)
            strcat(longer, "\xE2\x82\xAC");
        json_object_set_new(stage, "doing", json_string(longer));
        assert_int_equal(member_decode(&b, record), 0);
        assert_null(strchr(b.stages[0].doing, '\x1B'));
        assert_non_null(again = member_encode(&b)); /* NULL if it is no UTF-8 */
        json_decref(again);
    }
    json_decref(record);
}

static void units_that_cannot_be_are_nonsense(void **state)
{
    (void)state;
    struct member a = make(7, 1, 9), b;
    a.nstages = 1;
    a.stages[0].job = 1;
    json_t *record = member_encode(&a), *stage = json_array_get(json_object_get(record, "stages"), 0), *many;
    assert_int_equal(member_decode(&b, record), 0);
    static const char *const bad[] = {"{}",     "[1]",       "[1,1]",          "[2,1]",
                                      "[-1,2]", "[0,2,1,3]", "[0,4294967296]", "[0,\"1\"]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_object_set_new(stage, "units", json_loads(bad[i], 0, NULL));
        if (member_decode(&b, record) != -EBADMSG)
            fail_msg("taken: %s", bad[i]);
    }
    json_object_set_new(stage, "units", many = json_array());
    for (size_t i = 0; i < 2 * MEMBER_RUNS; i++)
        json_array_append_new(many, json_integer((json_int_t)i));
    assert_int_equal(member_decode(&b, record), 0);
    json_array_append_new(many, json_integer(2 * MEMBER_RUNS));
    json_array_append_new(many, json_integer(2 * MEMBER_RUNS + 1));
    assert_int_equal(member_decode(&b, record), -EBADMSG);
    json_object_set_new(stage, "units", json_array());
    json_object_set_new(stage, "weights", json_string("xyz"));
    assert_int_equal(member_decode(&b, record), -EBADMSG);
    json_decref(record);
}

static void what_others_decide_by_is_new(void **state)
{
    (void)state;
    enum { GIB = 1 << 30 };
    struct member was = make(7, 1, 9), is;
    was.memory_total = 16 * (uint64_t)GIB;
    was.memory_available = 8 * (uint64_t)GIB;
    link_to(&was, 0);
    was.ncables = was.nstages = 1;
    was.stages[0].job = 7;
    is = was;
    is.seq++;
    is.heard.us = 5;
    is.memory_available -= GIB / 32;
    assert_true(member_says_the_same(&is, &was));
    struct member news[20];
    for (size_t i = 0; i < 20; i++)
        news[i] = is;
    news[0].memory_available = 7 * (uint64_t)GIB;
    news[1].links[0].class_mbps++;
    news[2].nlinks = 0;
    news[3].links[0].shared = true;
    news[4].cables[0].port[0] = 'x';
    news[5].ncables = 0;
    news[6].ring[0] = 'x';
    news[7].stages[0].job++;
    news[8].stages[0].head[3]++;
    news[9].stages[0].rank++;
    news[10].stages[0].doing[0] = 'x';
    news[11].stages[0].seconds += 1;
    news[12].threads++;
    news[13].jobs++;
    news[14].nended = 1;
    news[15].nstages = 0;
    news[16].stages[0].class = JOB_CLASS_TRAIN;
    news[17].stages[0].bytes++;
    news[18].stages[0].weights++;
    news[19].stages[0].nruns++;
    for (size_t i = 0; i < 20; i++)
        assert_false(member_says_the_same(&news[i], &was));
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
    json_object_foreach (good, key, value) {
        json_t *bad = json_deep_copy(good);
        json_object_del(bad, key);
        if (strcmp(key, "cables") && strcmp(key, "kernels")) /* an earlier version does not say those */
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
    static const char *const ends[][3] = {
        {"eth0", "fd00::1/127", "10.0.0.1/33"},
        {"eth0", "10.0.0.1/31", ""},
        {"eth0", "", "fd00::1/127"},
        {"eth0", "here", ""},
        {"a-port-of-sixteen", "", ""},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        json_array_append_new(
            json_object_get(good, "cables"),
            json_pack("{s:s s:s s:s}", "port", ends[i][0], "ipv6", ends[i][1], "ipv4", ends[i][2]));
        assert_int_equal(members_learn(m, good, (struct instant){1}), -EBADMSG);
        json_array_clear(json_object_get(good, "cables"));
    }
    for (size_t i = 0; i <= MEMBER_CABLES; i++)
        json_array_append_new(json_object_get(good, "cables"),
                              json_pack("{s:s s:s s:s}", "port", "eth0", "ipv6", "", "ipv4", ""));
    assert_int_equal(members_learn(m, good, (struct instant){1}), -EBADMSG);
    json_array_clear(json_object_get(good, "cables"));
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

/* --- flooding --------------------------------------------------------------------------------- */

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

/* A node is gone, and those that are left remember different lives of it: that must not go round
 * for ever, and must not hide the node when it comes back, with whichever clock. */
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
        cmocka_unit_test(text_of_others_can_be_shown),
        cmocka_unit_test(units_that_cannot_be_are_nonsense),
        cmocka_unit_test(what_others_decide_by_is_new),
        cmocka_unit_test(only_later_words_are_news),
        cmocka_unit_test(a_former_life_is_believed_only_while_it_talks),
        cmocka_unit_test(a_copied_identity_is_told),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(a_full_table_forgets_who_is_gone_longest),
        cmocka_unit_test(nobody_reachable_is_forgotten),
        cmocka_unit_test(flooding_ends),
    };
    return cmocka_run_group_tests_name("members", tests, NULL, NULL);
}
