/* SPDX-License-Identifier: MIT
 *
 * Members after they have joined: they take each other, are removed and come back, and find the way
 * back when the network key has changed while they were away. */
#include "tests/unit/daemon/ringd/cluster/trust_world.h"

/* --- members afterwards --- */

static void test_members_take_each_other(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    uint8_t psk[AUTH_PSK];

    init(anna);
    admit(anna, bert);
    admit(anna, cleo);
    cluster_psk(cleo->cluster, 0, psk);
    assert_string_equal(dial_member(cleo, bert->port, psk), "");
}

static void test_a_newcomer_is_taken_before_the_roster_is_heard(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    uint8_t psk[AUTH_PSK];

    init(anna);
    admit(anna, bert);
    bert->deaf = true;
    admit(anna, cleo);
    assert_int_equal(roster_active(cluster_roster(bert->cluster)), 2);
    cluster_psk(cleo->cluster, 0, psk);
    assert_string_equal(dial_member(cleo, bert->port, psk), "");
}

static void test_a_removed_member_returns(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    uint8_t psk[AUTH_PSK];
    char token[TOKEN_TEXT];
    struct err err;

    init(anna);
    admit(anna, bert);
    admit(anna, cleo);
    cleo->deaf = true; /* it was switched off when it happened */
    must(cluster_remove(anna->cluster, cleo->node_id, &err), &err);
    spread(anna);
    cluster_psk(cleo->cluster, 0, psk);
    expect_text(dial_member(cleo, bert->port, psk), "cleo was removed from cluster home");
    expect_text(dial_member(cleo, anna->port, psk), "ringctl join");
    cleo->deaf = false;
    spread(anna); /* the signed word reaches it */
    assert_int_equal(cluster_state(cleo->cluster), CLUSTER_REMOVED);
    invite(anna, 60, token);
    assert_string_equal(join(cleo, token, anna->port), ""); /* and with a new token it is let in */
    settle(w);
    cluster_psk(cleo->cluster, 0, psk);
    assert_string_equal(dial_member(cleo, bert->port, psk), "");
}

/* It was away, believes itself a member, and is given a token: no need to tell it first. */
static void test_a_removed_member_that_does_not_know_joins(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    struct cluster_net_key keys[4];
    uint8_t psk[AUTH_PSK];
    char token[TOKEN_TEXT];
    struct err err;

    init(anna);
    admit(anna, bert);
    admit(anna, cleo);
    cleo->deaf = true;
    must(cluster_remove(anna->cluster, cleo->node_id, &err), &err);
    spread(anna);
    cleo->deaf = false;
    assert_int_equal(cluster_state(cleo->cluster), CLUSTER_MEMBER);
    assert_int_equal(cluster_invite(anna->cluster, 60, w->now_s, token, &err), 0);
    enrol_share(anna->enrol);
    settle(w);
    assert_string_equal(join(cleo, token, bert->port), "");
    settle(w);
    assert_int_equal(cluster_net_keys(cleo->cluster, keys, 4), 2);
    cluster_psk(cleo->cluster, 0, psk);
    assert_string_equal(dial_member(cleo, bert->port, psk), "");
}

/* An authority that joins its own cluster again keeps what it holds. */
static void test_an_authority_joins_again(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    char token[TOKEN_TEXT];
    struct err err;

    init(anna);
    admit(anna, bert);
    must(cluster_promote(anna->cluster, bert->node_id, &err), &err);
    spread(anna);
    invite(anna, 60, token);
    assert_string_equal(join(bert, token, anna->port), "");
    settle(w);
    assert_true(cluster_is_authority(bert->cluster));
    admit(bert, &w->ends[2]);
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 3);
}

static void test_a_member_that_was_away_while_keys_changed(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    uint8_t psk[AUTH_PSK];
    struct err err;

    init(anna);
    admit(anna, bert);
    admit(anna, cleo);
    cleo->deaf = true;
    must(cluster_remove(anna->cluster, bert->node_id, &err), &err);
    cluster_psk(cleo->cluster, 0, psk);
    assert_string_equal(dial_member(cleo, anna->port, psk), ""); /* its old secret still opens the door */
    cluster_psk(anna->cluster, 0, psk);
    assert_true(*dial_member(anna, cleo->port, psk)); /* the new one not yet: cleo has not heard of it */
    cluster_psk(anna->cluster, 1, psk);
    assert_string_equal(dial_member(anna, cleo->port, psk), "");
    cleo->deaf = false;
    spread(anna);
    cluster_psk(anna->cluster, 0, psk);
    assert_string_equal(dial_member(anna, cleo->port, psk), "");
}

static void test_certificates_do_not_travel(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *thief = &w->ends[2];
    struct link_setup s;
    uint8_t psk[AUTH_PSK];

    init(anna);
    admit(anna, bert);
    s = setup_of(bert); /* all that bert ever says, and the cluster's secret, under another identity */
    cluster_psk(bert->cluster, 0, psk);
    s.id = &thief->id;
    s.owner = thief;
    s.kind = LINK_CONTROL;
    s.psk = psk;
    s.ops = &dial_ops;
    assert_int_equal(link_dial(&thief->control, &s, "127.0.0.1", anna->port), 0);
    while (!thief->control_up && !thief->control_down)
        run_until(w, NULL);
    expect_text(thief->control_text, "no certificate of cluster home for its key");
}

/* --- away while the key changed, more than once --- */

/* The network key changes `times` times; cleo and whoever else is deaf does not hear of it. */
static void rotate(struct world *w, unsigned times)
{
    struct end *anna = &w->ends[0], *dora = &w->ends[3];
    struct err err;

    for (unsigned i = 0; i < times; i++) {
        admit(anna, dora);
        must(cluster_remove(anna->cluster, dora->node_id, &err), &err);
        spread(anna);
    }
}

static void three_members(struct world *w)
{
    init(&w->ends[0]);
    admit(&w->ends[0], &w->ends[1]);
    admit(&w->ends[0], &w->ends[2]);
}

static bool have_one_key(const struct end *a, const struct end *b)
{
    struct cluster_net_key of_a, of_b;

    assert_int_equal(cluster_net_keys(a->cluster, &of_a, 1), 1);
    assert_int_equal(cluster_net_keys(b->cluster, &of_b, 1), 1);
    return !memcmp(&of_a, &of_b, sizeof of_a);
}

/* As cables.c and finder.c carry it: a beacon that does not open, a question, an answer, a call.
 * False: nobody answered. */
static bool come_back(struct end *who, struct end *to)
{
    uint8_t question[TOKEN_TAG], answer[TOKEN_TAG];
    const unsigned downs = to->downs;

    assert_true(enrol_missed(who->enrol, cluster_roster(to->cluster)->generation, question));
    if (!enrol_answers(to->enrol, question, answer))
        return false;
    assert_true(enrol_is_answer(who->enrol, answer));
    assert_false(enrol_is_answer(who->enrol, question)); /* whoever only heard it */
    enrol_try(who->enrol, "127.0.0.1", to->port);
    run_until_downs(to, downs + 1);
    settle(who->world);
    return true;
}

/* More often than there are generations kept; and the one that lets it in has come after all of
 * them. */
static void test_a_member_comes_back_by_itself(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *cleo = &w->ends[2], *emil = &w->ends[4];
    uint8_t psk[AUTH_PSK];

    three_members(w);
    cleo->deaf = true;
    rotate(w, CLUSTER_KEYS + 1);
    admit(anna, emil);
    cluster_psk(cleo->cluster, 0, psk);
    assert_true(*dial_member(cleo, anna->port, psk)); /* what it has opens nothing any more */
    cleo->deaf = false;
    assert_false(have_one_key(anna, cleo));
    assert_true(come_back(cleo, emil));
    assert_true(have_one_key(anna, cleo));
    assert_int_equal(cleo->changes, 2); /* that it joined, and this */
    cluster_psk(cleo->cluster, 0, psk);
    assert_string_equal(dial_member(cleo, anna->port, psk), "");
}

/* What the one who comes back knows better is told as well: here it is the authority, and the
 * others were away. */
static void test_both_ends_tell_what_they_know(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    struct err err;

    three_members(w);
    bert->deaf = true;
    must(cluster_remove(anna->cluster, cleo->node_id, &err), &err);
    must(cluster_promote(anna->cluster, anna->node_id, &err), &err);
    bert->deaf = false;
    assert_false(have_one_key(anna, bert));
    enrol_return(anna->enrol, "127.0.0.1", bert->port);
    run_until_downs(bert, 1);
    settle(w);
    assert_true(have_one_key(anna, bert));
    assert_int_equal(roster_active(cluster_roster(bert->cluster)), 2);
}

static void test_a_removed_member_does_not_come_back_so(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    const uint64_t version_before = 4;
    struct err err;

    three_members(w);
    cleo->deaf = true;
    must(cluster_remove(anna->cluster, cleo->node_id, &err), &err);
    spread(anna);
    rotate(w, 1);
    assert_true(come_back(cleo, bert));
    expect_text(bert->last_down, "cleo was removed from cluster home");
    assert_false(have_one_key(anna, cleo));
    assert_true(cluster_roster(cleo->cluster)->version < version_before);
}

static void test_others_hear_nothing_of_it(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *emil = &w->ends[4];
    uint8_t question[TOKEN_TAG], again[TOKEN_TAG], answer[TOKEN_TAG];
    unsigned downs;

    init(anna);
    admit(anna, bert);
    init(emil);
    assert_false(come_back(bert, emil)); /* another cluster says nothing to the question, */
    downs = emil->downs;
    enrol_return(bert->enrol, "127.0.0.1", emil->port);
    run_until_downs(emil, downs + 1);
    assert_int_equal(emil->hellos, 0);                 /* nor to the call */
    assert_false(enrol_missed(bert->enrol, 9, again)); /* and is not asked again at once */
    assert_true(enrol_missed(anna->enrol, 9, question));
    assert_true(enrol_answers(bert->enrol, question, answer));
    assert_false(enrol_is_answer(bert->enrol, answer)); /* it has asked something else */
    question[0] ^= 1;
    assert_false(enrol_answers(bert->enrol, question, answer));
    assert_false(
        enrol_missed(w->ends[2].enrol, 9, question)); /* in no cluster: asks nothing, answers nothing */
    assert_false(enrol_answers(w->ends[2].enrol, again, answer));
    rotate(w, 1);
    assert_int_equal(cluster_roster(anna->cluster)->generation, 2);
    assert_false(enrol_missed(anna->enrol, 1, question)); /* an older key is nothing to ask for */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_members_take_each_other),       TEST(test_a_newcomer_is_taken_before_the_roster_is_heard),
        TEST(test_a_removed_member_returns),      TEST(test_a_removed_member_that_does_not_know_joins),
        TEST(test_an_authority_joins_again),      TEST(test_a_member_that_was_away_while_keys_changed),
        TEST(test_certificates_do_not_travel),    TEST(test_a_member_comes_back_by_itself),
        TEST(test_both_ends_tell_what_they_know), TEST(test_a_removed_member_does_not_come_back_so),
        TEST(test_others_hear_nothing_of_it),
    };

    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
