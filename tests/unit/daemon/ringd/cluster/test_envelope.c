/* SPDX-License-Identifier: MIT
 *
 * Messages through other nodes: nobody writes in another's name, none is heard twice or in another
 * life, and whoever is no member is not heard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/envelope.h"
#include "tests/lib/protocol_doc.h"
#include "tests/unit/daemon/ringd/cluster/signer.h"

enum { NODES = 3 };
static const char text[] = "{\"kind\":\"job-stop\",\"job\":7,\"cause\":\"\"}";

struct node {
    struct signer as;
    struct envelopes *envelopes;
};
struct world {
    struct node at[NODES];
    struct roster *roster; /* owned */
};

static struct member member_at(const struct world *w, size_t i, uint64_t boot)
{
    return signer_member(&w->at[i].as, i, boot);
}

static void learn(struct node *n, const struct member *who)
{
    json_t *record = member_encode(who);
    assert_true(members_learn(n->as.members, record, (struct instant){1}) >= 0);
    json_decref(record);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->roster = calloc(1, sizeof *w->roster);
    for (size_t i = 0; i < NODES; i++) {
        struct node *n = &w->at[i];
        signer_init(&n->as, w->roster, i);
        n->envelopes = envelopes_new(&n->as.id, n->as.members);
    }
    for (size_t i = 0; i < NODES; i++)
        for (size_t k = 0; k < NODES; k++) {
            struct member other = member_at(w, k, 100 + k);
            if (k != i)
                learn(&w->at[i], &other);
        }
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < NODES; i++) {
        envelopes_free(w->at[i].envelopes);
        members_free(w->at[i].as.members);
    }
    free(w->roster);
    free(w);
    return 0;
}

static size_t write_to(struct world *w, size_t from, size_t to, uint8_t **ret)
{
    size_t n;
    assert_int_equal(
        envelopes_seal(w->at[from].envelopes, w->at[to].as.node_id, text, sizeof text - 1, ret, &n), 0);
    assert_int_equal(n, ENVELOPE_HEAD + sizeof text - 1);
    return n;
}

static enum envelope_verdict take(struct world *w, size_t who, const uint8_t *data, size_t n)
{
    struct envelope v;
    return envelopes_take(w->at[who].envelopes, w->roster, data, n, &v);
}

/* A life of that node that began at `boot`, with all that the old one knew. */
static void restart(struct world *w, size_t who, uint64_t boot)
{
    members_self(w->at[who].as.members)->boot = boot;
    envelopes_free(w->at[who].envelopes);
    w->at[who].envelopes = envelopes_new(&w->at[who].as.id, w->at[who].as.members);
}

static void a_message_arrives_once_through_another(void **state)
{
    struct world *w = *state;
    struct envelope v;
    uint8_t *data;
    const size_t n = write_to(w, 0, 2, &data);
    assert_int_equal(data[0], ENVELOPE_TTL);
    assert_int_equal(take(w, 1, data, n), ENVELOPE_PASSES);
    data[0]--;
    assert_int_equal(envelopes_take(w->at[2].envelopes, w->roster, data, n, &v), ENVELOPE_OURS);
    assert_memory_equal(v.from, w->at[0].as.node_id, 16);
    assert_int_equal(v.n, sizeof text - 1);
    assert_memory_equal(v.text, text, v.n);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_REPEATED);
    assert_int_equal(take(w, 0, data, n), ENVELOPE_BROKEN); /* it has come round */
    data[0] = 0;
    assert_int_equal(take(w, 1, data, n), ENVELOPE_BROKEN);
    assert_int_equal(envelopes_count(w->at[2].envelopes, ENVELOPE_REPEATED), 1);
    free(data);
}

static void every_bit_counts(void **state)
{
    struct world *w = *state;
    uint8_t *data;
    const size_t n = write_to(w, 0, 2, &data);
    for (size_t bit = 8; bit < 8 * n; bit++) { /* the first byte changes on the way */
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(take(w, 2, data, n), ENVELOPE_OURS);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t len = 0; len < n; len++)
        assert_int_not_equal(take(w, 2, data, len), ENVELOPE_OURS);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_OURS);
    free(data);
}

static void nobody_writes_for_another(void **state)
{
    struct world *w = *state;
    uint8_t *data;
    struct member mask = member_at(w, 0, 100), to = member_at(w, 2, 102);
    struct members *members = members_new(&mask);
    struct node forger = {.as.members = members};
    size_t n;
    learn(&forger, &to);
    forger.envelopes = envelopes_new(&w->at[1].as.id, members);
    assert_int_equal(envelopes_seal(forger.envelopes, to.id, text, sizeof text - 1, &data, &n), 0);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_FORGED);
    memcpy(data + 1 + AUTH_SIGNATURE, w->at[0].as.id.sign_pub, AUTH_KEY); /* under the key of the other */
    assert_int_equal(take(w, 2, data, n), ENVELOPE_FORGED);
    assert_int_equal(envelopes_count(w->at[2].envelopes, ENVELOPE_FORGED), 2);
    free(data);
    n = write_to(w, 0, 2, &data); /* and his own word still arrives */
    assert_int_equal(take(w, 2, data, n), ENVELOPE_OURS);
    free(data);
    envelopes_free(forger.envelopes);
    members_free(members);
}

static void a_recording_is_no_news_to_a_later_life(void **state)
{
    struct world *w = *state;
    uint8_t *data, *second;
    size_t n = write_to(w, 0, 2, &data), n_second = write_to(w, 0, 2, &second);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_OURS);
    restart(w, 2, 1000);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_STALE);
    assert_int_equal(take(w, 2, second, n_second), ENVELOPE_STALE);
    free(data);
    free(second);
}

/* What a node between held back until the author began again. */
static void an_author_that_began_again_is_not_heard_of_his_earlier_life(void **state)
{
    struct world *w = *state;
    uint8_t *held, *data;
    const size_t n_held = write_to(w, 0, 2, &held);
    restart(w, 0, 500);
    struct member reborn = member_at(w, 0, 500);
    learn(&w->at[2], &reborn);
    assert_int_equal(take(w, 2, held, n_held), ENVELOPE_STALE);
    const size_t n = write_to(w, 0, 2, &data);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_OURS);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_REPEATED);
    free(held);
    free(data);
}

/* Lives come and go, and nothing of any of them is ever heard twice. */
static void no_life_is_forgotten_into_being_new(void **state)
{
    enum { LIVES = 3 * ENVELOPE_LIVES };
    struct world *w = *state;
    uint8_t *said[LIVES];
    size_t n = 0;
    members_free(w->at[2].as.members); /* a node that knows no records, the author's neither */
    struct member self = member_at(w, 2, 102);
    w->at[2].as.members = members_new(&self);
    restart(w, 2, 102);
    for (size_t i = 0; i < LIVES; i++) {
        restart(w, 0, 1000 + i);
        n = write_to(w, 0, 2, &said[i]);
        assert_int_equal(take(w, 2, said[i], n), ENVELOPE_OURS);
    }
    for (size_t i = 0; i < LIVES; i++) {
        assert_int_equal(take(w, 2, said[i], n), ENVELOPE_REPEATED);
        free(said[i]);
    }
}

static void only_members_are_heard(void **state)
{
    struct world *w = *state;
    uint8_t *data;
    struct envelope v;
    const size_t n = write_to(w, 0, 2, &data);
    assert_int_equal(envelopes_take(w->at[2].envelopes, NULL, data, n, &v), ENVELOPE_STRANGER);
    assert_true(envelopes_admit(w->at[2].envelopes, w->roster, w->at[0].as.node_id));
    assert_int_equal(roster_remove(w->roster, w->at[0].as.node_id), 0);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_STRANGER);
    assert_int_equal(take(w, 1, data, n), ENVELOPE_STRANGER); /* nor is it handed on */
    assert_false(envelopes_admit(w->at[2].envelopes, w->roster, w->at[0].as.node_id));
    assert_false(envelopes_admit(w->at[2].envelopes, w->roster, (const uint8_t[16]){9}));
    assert_int_equal(envelopes_count(w->at[2].envelopes, ENVELOPE_STRANGER), 4);
    free(data);
}

static void what_cannot_be_written_is_told(void **state)
{
    struct world *w = *state;
    uint8_t *data;
    size_t n;
    const uint8_t nobody[16] = {1};
    char *long_text = calloc(1, ENVELOPE_TEXT_MAX + 1);
    assert_int_equal(envelopes_seal(w->at[0].envelopes, nobody, text, 1, &data, &n), -EHOSTUNREACH);
    assert_int_equal(
        envelopes_seal(w->at[0].envelopes, w->at[2].as.node_id, long_text, ENVELOPE_TEXT_MAX + 1, &data, &n),
        -EMSGSIZE);
    assert_int_equal(
        envelopes_seal(w->at[0].envelopes, w->at[2].as.node_id, long_text, ENVELOPE_TEXT_MAX, &data, &n), 0);
    assert_int_equal(n, LINK_FRAME_MAX);
    assert_int_equal(take(w, 2, data, n), ENVELOPE_OURS);
    free(data);
    free(long_text);
}

static void the_document_shows_one(void **state)
{
    struct world *w = *state;
    uint8_t *data;
    const size_t n = write_to(w, 0, 2, &data);
    assert_true(protocol_doc_shows("envelope", data, n));
    free(data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_message_arrives_once_through_another),
        TEST(every_bit_counts),
        TEST(nobody_writes_for_another),
        TEST(a_recording_is_no_news_to_a_later_life),
        TEST(an_author_that_began_again_is_not_heard_of_his_earlier_life),
        TEST(no_life_is_forgotten_into_being_new),
        TEST(only_members_are_heard),
        TEST(what_cannot_be_written_is_told),
        TEST(the_document_shows_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
