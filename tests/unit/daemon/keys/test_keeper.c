/* SPDX-License-Identifier: MIT
 *
 * What the keeper of a node's keys answers, and what it refuses to somebody who has taken ringd
 * over: signatures in another's name, what is sealed to the node, rosters of before. And no
 * request that is cut short, too long or unknown does anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "net/noise.h"
#include "tests/lib/own_keys.h"

struct side {
    struct keeper keeper;
    struct keys *keys;
    struct auth_identity id;
    uint8_t node_id[CERT_ID];
};
struct world {
    struct side anna, bert;
    uint8_t old[ROSTER_BYTES_MAX]; /* a roster that was replaced */
    size_t old_n;
    uint8_t cluster[CERT_CLUSTER_KEY];
};

static void open_side(struct side *s, uint8_t number)
{
    s->keys = own_keys(&s->keeper, (const uint8_t[AUTH_SEED]){number});
    assert_non_null(s->keys);
    s->id = *keys_identity(s->keys);
    auth_node_id(s->node_id, s->id.pub);
}

/* A cluster of anna's with bert in it; the roster before is kept. */
static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct keys_trust t;
    open_side(&w->anna, 1);
    open_side(&w->bert, 2);
    assert_int_equal(keys_found(w->anna.keys, "home", "anna", 1, &t), 0);
    memcpy(w->cluster, t.cluster, sizeof w->cluster);
    memcpy(w->old, t.roster, t.n);
    w->old_n = t.n;
    assert_int_equal(keys_admit(w->anna.keys, w->bert.id.pub, "bert", 2, &t), 0);
    assert_int_equal(keys_take(w->bert.keys, t.cluster, t.roster, t.n, &t), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    keys_close(w->anna.keys);
    keys_close(w->bert.keys);
    free(w);
    return 0;
}

static int sign(const struct side *s, enum auth_purpose purpose, const void *text, size_t n)
{
    uint8_t signature[AUTH_SIGNATURE];
    int r = s->id.sign(s->id.holder, purpose, text, n, signature);
    if (!r)
        assert_true(auth_verify(s->id.sign_pub, purpose, text, n, signature));
    return r;
}

static void test_signs_its_own_statements_alone(void **state)
{
    struct world *w = *state;
    uint8_t statement[KEYS_STATEMENT] = {0};
    static uint8_t text[KEYS_RECORD_MAX + 1];
    memcpy(statement + KEYS_AUTHOR_AT, w->anna.node_id, CERT_ID);
    assert_int_equal(sign(&w->anna, AUTH_MESSAGE, statement, sizeof statement), 0);
    assert_int_equal(sign(&w->bert, AUTH_MESSAGE, statement, sizeof statement), -EPERM);
    assert_int_equal(sign(&w->anna, AUTH_MESSAGE, statement, sizeof statement - 1), -EPERM);
    assert_int_equal(sign(&w->anna, AUTH_RECORD, text, KEYS_RECORD_MAX), 0);
    assert_int_equal(sign(&w->anna, AUTH_RECORD, text, sizeof text), -EPERM);
    assert_int_equal(sign(&w->anna, AUTH_JOIN, text, 1), -EPERM);
    assert_int_equal(sign(&w->anna, AUTH_PURPOSES, text, 1), -EPERM);
}

/* The step of a handshake is the same as with the secret itself, and is not the secret. */
static void test_mixes_and_does_not_show(void **state)
{
    static const uint8_t nobody[AUTH_KEY];
    struct world *w = *state;
    uint8_t ck[AUTH_HASH] = {1}, ours[AUTH_HASH], theirs[AUTH_HASH], a[AUTH_KEY], b[AUTH_KEY],
            plain[AUTH_KEY];
    assert_int_equal(w->anna.id.mix(w->anna.keys, ck, w->bert.id.pub, ours, a), 0);
    assert_int_equal(noise_mix(ck, w->bert.keeper.own.secret, w->anna.id.pub, theirs, b), 0);
    assert_memory_equal(ours, theirs, sizeof ours);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(crypto_scalarmult(plain, w->bert.keeper.own.secret, w->anna.id.pub), 0);
    assert_memory_not_equal(plain, a, sizeof a);
    assert_int_equal(w->anna.id.mix(w->anna.keys, ck, nobody, ours, a), -EBADMSG);
}

static void test_goes_to_newer_rosters_only(void **state)
{
    struct world *w = *state;
    struct keys_trust t, again;
    assert_int_equal(keys_take(w->bert.keys, w->cluster, w->old, w->old_n, &t), -ESTALE);
    assert_int_equal(keys_remove(w->anna.keys, w->bert.node_id, &t), 0);
    assert_int_equal(t.generation, 2);
    const struct keys_trust removed = t;
    uint8_t *roster = malloc(removed.n);
    memcpy(roster, removed.roster, removed.n);
    assert_int_equal(keys_take(w->anna.keys, w->cluster, w->old, w->old_n, &again), -ESTALE);
    assert_int_equal(keys_take(w->anna.keys, w->cluster, roster, removed.n, &again), 0); /* as it is */
    assert_memory_equal(again.psk, removed.psk, sizeof again.psk);
    assert_int_equal(keys_take(w->bert.keys, w->cluster, roster, removed.n, &t), 0);
    assert_int_equal(t.generation, 0);
    free(roster);
}

static void test_what_only_an_authority_may(void **state)
{
    struct world *w = *state;
    struct keys_trust t;
    assert_int_equal(keys_admit(w->bert.keys, w->bert.id.pub, "x", 1, &t), -EPERM);
    assert_int_equal(keys_remove(w->bert.keys, w->anna.node_id, &t), -EPERM);
    assert_int_equal(keys_promote(w->bert.keys, w->bert.node_id, &t), -EPERM);
    assert_int_equal(keys_remove(w->anna.keys, w->anna.node_id, &t), -EPERM); /* nor itself */
    assert_int_equal(keys_remove(w->anna.keys, (const uint8_t[CERT_ID]){9}, &t), -ENOENT);
    assert_int_equal(keys_certify(w->bert.keys, w->bert.node_id, 1, &t), -EPERM);
    assert_int_equal(keys_certify(w->anna.keys, (const uint8_t[CERT_ID]){9}, 1, &t), -ENOENT);
    assert_int_equal(keys_certify(w->anna.keys, w->bert.node_id, 1, &t), 0);
    struct cert cert;
    assert_int_equal(cert_open(t.cert, sizeof t.cert, w->cluster, &cert), 0);
    assert_string_equal(cert.name, "bert");
    assert_int_equal(roster_judge(&w->anna.keeper.now.roster, &cert), ROSTER_IS_MEMBER);
    assert_int_equal(keys_promote(w->anna.keys, w->bert.node_id, &t), 0);
    assert_int_equal(keys_take(w->bert.keys, t.cluster, t.roster, t.n, &t), 0);
    assert_true(t.authority);
    assert_int_equal(keys_remove(w->bert.keys, w->anna.node_id, &t), 0);
    assert_int_equal(keys_take(w->anna.keys, t.cluster, t.roster, t.n, &t), 0);
    assert_false(t.authority || t.generation); /* a node that was removed has nothing left */
    assert_true(sodium_is_zero(w->anna.keeper.now.seed, CERT_SEED));
    assert_int_equal(keys_promote(w->anna.keys, w->anna.node_id, &t), -EPERM);
}

/* A cluster of the intruder's own, in whose roster the place of the network key holds the real
 * cluster's seed, sealed to this node: what comes back is no key that opens anything. */
static void test_a_seed_is_not_opened_as_another_key(void **state)
{
    struct world *w = *state;
    const struct roster *real = &w->anna.keeper.now.roster;
    struct roster *forged = calloc(1, sizeof *forged);
    const struct roster_entry *e;
    uint8_t seed[CERT_SEED] = {3}, pub[CERT_CLUSTER_KEY], secret[CERT_SECRET];
    static uint8_t bytes[ROSTER_BYTES_MAX];
    struct keys_trust t;
    cert_cluster_keys(pub, secret, seed);
    cert_cluster_id(forged->cluster_id, pub);
    strcpy(forged->name, "mine");
    forged->generation = 1;
    assert_int_equal(roster_admit(forged, w->anna.id.pub, "anna", &e), 0);
    memcpy(forged->at[0].net_key, roster_find(real, w->anna.node_id)->authority_key, ROSTER_SEALED);
    const int n = roster_sign(forged, secret, bytes, sizeof bytes);
    assert_true(n > 0);
    assert_int_equal(keys_take(w->anna.keys, pub, bytes, (size_t)n, &t), -EPERM); /* a member stays */
    uint8_t stolen[CERT_SEED];
    memcpy(stolen, w->anna.keeper.now.seed, sizeof stolen);
    keys_close(w->anna.keys); /* and after a restart, before it is told of its cluster */
    open_side(&w->anna, 1);
    assert_int_equal(keys_take(w->anna.keys, pub, bytes, (size_t)n, &t), 0);
    assert_memory_not_equal(t.psk, stolen, sizeof stolen);
    assert_memory_not_equal(t.beacon, stolen, sizeof stolen);
    free(forged);
}

/* --- bytes that are no request ---------------------------------------------------------------- */

static int raw(struct keeper *k, const uint8_t *request, size_t n, size_t *ret_size)
{
    memcpy(k->request, request, n);
    *ret_size = keeper_answer(k, n);
    assert_true(*ret_size >= KEYS_ERROR && *ret_size <= sizeof k->answer);
    return k->answer[0] | k->answer[1] << 8;
}

static void test_cut_short_too_long_unknown(void **state)
{
    struct world *w = *state;
    static uint8_t request[KEYS_REQUEST_MAX + 1];
    static struct keeper_cluster before;
    struct keeper *k = &w->anna.keeper;
    size_t size;
    /* of each kind: as long as it is, the shortest one that is not refused as malformed */
    static const struct {
        uint8_t kind;
        size_t n;
    } whole[] = {{KEYS_HELLO, 1},
                 {KEYS_MIX, 1 + AUTH_HASH + AUTH_KEY},
                 {KEYS_FOUND, 1 + 8 + 2},
                 {KEYS_ADMIT, 1 + 8 + AUTH_KEY + 1},
                 {KEYS_CERTIFY, 1 + 8 + CERT_ID},
                 {KEYS_REMOVE, 1 + CERT_ID},
                 {KEYS_PROMOTE, 1 + CERT_ID}};
    before = k->now;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        for (size_t n = 0; n <= whole[i].n + 1; n++) {
            memset(request, 0, sizeof request);
            request[0] = whole[i].kind;
            const int error = raw(k, request, n, &size);
            if (n != whole[i].n)
                assert_int_equal(error, EPROTO);
            else
                assert_int_not_equal(error, EPROTO);
        }
    for (unsigned kind = 0; kind < 256; kind++) {
        request[0] = (uint8_t)kind;
        if (kind < KEYS_HELLO || kind > KEYS_PROMOTE)
            assert_int_equal(raw(k, request, 60, &size), EPROTO);
    }
    assert_int_equal(raw(k, request, sizeof request, &size), EMSGSIZE);
    assert_int_equal(size, KEYS_ERROR);
    assert_memory_equal(&before, &k->now, sizeof before);
    assert_true(sodium_is_zero((const uint8_t *)&k->next, sizeof k->next));
}

static void test_trouble_is_all_it_says(void **state)
{
    struct world *w = *state;
    size_t size;
    strcpy(w->anna.keeper.trouble, "the disk is gone");
    for (uint8_t kind = KEYS_HELLO; kind <= KEYS_PROMOTE; kind++) {
        assert_int_equal(raw(&w->anna.keeper, &kind, 1, &size), EIO);
        assert_int_equal(size, KEYS_ERROR + strlen("the disk is gone"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_signs_its_own_statements_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mixes_and_does_not_show, setup, teardown),
        cmocka_unit_test_setup_teardown(test_goes_to_newer_rosters_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_only_an_authority_may, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_seed_is_not_opened_as_another_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_short_too_long_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trouble_is_all_it_says, setup, teardown),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
