/* SPDX-License-Identifier: MIT
 *
 * A member that would spend an invite itself, for keys of its own, with all that members are told
 * of it. */
#include "tests/unit/daemon/ringd/cluster/trust_world.h"
#include "tests/lib/own_keys.h"

static void ask_for(struct end *member, struct end *authority, const struct token_claim *claim,
                    const uint8_t proof[static AUTH_SIGNATURE])
{
    char token[2 * TOKEN_ID + 1], pub[65], hash[2 * AUTH_HASH + 1], signature[2 * AUTH_SIGNATURE + 1];

    sodium_bin2hex(token, sizeof token, claim->token, TOKEN_ID);
    sodium_bin2hex(pub, sizeof pub, claim->pub, AUTH_KEY);
    sodium_bin2hex(hash, sizeof hash, claim->hash, AUTH_HASH);
    sodium_bin2hex(signature, sizeof signature, proof, AUTH_SIGNATURE);
    end_send(member, authority->node_id,
             json_pack("{s:s s:i s:s s:s s:s s:s s:s}", "kind", "join-ask", "number", 1, "token", token,
                       "pub", pub, "name", claim->name, "hash", hash, "proof", signature));
    settle(member->world);
}

static void test_a_member_lets_nobody_in_with_what_it_was_told(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    const uint8_t hash[AUTH_HASH] = {7};
    uint8_t proof[AUTH_SIGNATURE] = {0};
    char text[TOKEN_TEXT];
    struct token_keys keys;
    struct auth_identity sybil;
    struct token t;

    init(anna);
    admit(anna, bert);
    invite(anna, 60, text);
    assert_int_equal(token_read(text, &t), 0);
    assert_int_equal(own_identity(&sybil), 0);
    struct token_claim claim = {.token = t.id, .pub = sybil.pub, .hash = hash, .name = "sybil"};
    ask_for(bert, anna, &claim, proof);
    /* signed with his own key, and with a pair made of each thing that members are told */
    token_derive(&t, &keys);
    assert_int_equal(bert->id.sign(bert->id.holder, AUTH_JOIN, "", 0, proof), -EPERM);
    assert_int_equal(auth_pair_sign(own_pair(&sybil), AUTH_JOIN, "", 0, proof), 0);
    ask_for(bert, anna, &claim, proof);
    struct token guess = t;
    const uint8_t *const known[] = {keys.psk, keys.question, keys.answer, keys.sign_pub};
    for (size_t i = 0; i < 4; i++) {
        memcpy(guess.secret, known[i], TOKEN_SECRET);
        assert_int_equal(token_prove(&guess, &claim, proof), 0);
        ask_for(bert, anna, &claim, proof);
    }
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 2);
    assert_true(
        token_is_live(token_book_find((struct token_book *)cluster_tokens(anna->cluster), t.id), w->now_s));
    assert_string_equal(join(cleo, text, bert->port), ""); /* and whom it was made for comes in */
    settle(w);
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 3);
}

/* What a joiner has signed, under another key or name. */
static void test_a_proof_is_for_one_node_alone(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1];
    const uint8_t hash[AUTH_HASH] = {7};
    uint8_t proof[AUTH_SIGNATURE];
    char text[TOKEN_TEXT];
    struct auth_identity own, sybil;
    struct token t;

    init(anna);
    admit(anna, bert);
    invite(anna, 60, text);
    assert_int_equal(token_read(text, &t), 0);
    assert_int_equal(own_identity(&own), 0);
    assert_int_equal(own_identity(&sybil), 0);
    struct token_claim claim = {.token = t.id, .pub = own.pub, .hash = hash, .name = "cleo"};
    assert_int_equal(token_prove(&t, &claim, proof), 0);
    claim.pub = sybil.pub;
    ask_for(bert, anna, &claim, proof);
    claim.pub = own.pub;
    claim.name = "cleopatra";
    ask_for(bert, anna, &claim, proof);
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 2);
    claim.name = "cleo";
    ask_for(bert, anna, &claim, proof);
    assert_int_equal(roster_active(cluster_roster(anna->cluster)), 3);
}

/* A member keeps the claim of a newcomer and says it again and again: another serial would shut the
 * newcomer out. */
static void test_a_claim_that_is_repeated_changes_nothing(void **state)
{
    struct world *w = *state;
    struct end *anna = &w->ends[0], *bert = &w->ends[1], *cleo = &w->ends[2];
    const uint8_t hash[AUTH_HASH] = {7};
    uint8_t proof[AUTH_SIGNATURE];
    char text[TOKEN_TEXT];
    struct token t;

    init(anna);
    admit(anna, bert);
    invite(anna, 60, text);
    assert_int_equal(token_read(text, &t), 0);
    struct token_claim claim = {.token = t.id, .pub = cleo->id.pub, .hash = hash, .name = "cleo"};
    assert_int_equal(token_prove(&t, &claim, proof), 0);
    assert_string_equal(join(cleo, text, bert->port), "");
    settle(w);
    const uint64_t version = cluster_roster(anna->cluster)->version;
    const unsigned changes = anna->changes;
    for (int i = 0; i < 3; i++)
        ask_for(bert, anna, &claim, proof);
    assert_int_equal(cluster_roster(anna->cluster)->version, version);
    assert_int_equal(anna->changes, changes);
    assert_int_equal(roster_judge(cluster_roster(anna->cluster), cluster_cert(cleo->cluster)),
                     ROSTER_IS_MEMBER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_member_lets_nobody_in_with_what_it_was_told),
        TEST(test_a_proof_is_for_one_node_alone),
        TEST(test_a_claim_that_is_repeated_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
