/* SPDX-License-Identifier: MIT
 *
 * A hostile member against every kind of message: in another's name, repeated, cut short, with a
 * bit turned over, from an earlier life. No handler hears of any. The handlers here only count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/cluster/envelope.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/http/elsewhere.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/cost_query.h"
#include "daemon/ringd/job/cost_server.h"
#include "daemon/ringd/job/worker.h"
#include "daemon/ringd/messages.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/relay.h"

enum { AUTHOR, FORGER, REMOVED, SELF, NODES };

struct mate {
    struct auth_identity id;
    struct members *members;
    struct envelopes *envelopes;
    uint8_t node_id[16];
};
struct world {
    struct mate at[NODES];
    struct node node; /* of SELF: what the handlers below get */
};

/* --- what the node would do ------------------------------------------------------------------- */

static size_t handled;
static uint8_t heard_from[16];
static struct roster roster;

static void count(const uint8_t from[16])
{
    handled++;
    memcpy(heard_from, from, 16);
}

const struct roster *cluster_roster(const struct cluster *c)
{
    (void)c;
    return &roster;
}

#define HANDLER(name, type)                                                                                  \
    void name(struct type *t, const uint8_t from[16], const char *kind, const json_t *body)                  \
    {                                                                                                        \
        (void)t, (void)kind, (void)body;                                                                     \
        count(from);                                                                                         \
    }
HANDLER(enrol_message, enrol)
HANDLER(elsewhere_message, elsewhere)
HANDLER(coord_message, coord)
HANDLER(worker_message, worker)
HANDLER(cost_query_message, cost_query)
HANDLER(cost_server_message, cost_server)
HANDLER(relay_message, relay)

void doctor_take_ask(struct doctor *d, const uint8_t from[16], const json_t *body)
{
    (void)d, (void)body;
    count(from);
}

void doctor_take_facts(struct doctor *d, const uint8_t from[16], const json_t *body)
{
    (void)d, (void)body;
    count(from);
}

void doctor_take_reading(struct doctor *d, const json_t *body)
{
    (void)d, (void)body;
    count(roster.at[AUTHOR].id);
}

/* --- the world -------------------------------------------------------------------------------- */

static struct member record_of(const struct world *w, size_t i)
{
    struct member m = {.boot = 100 + i, .seq = 1};
    memcpy(m.id, w->at[i].node_id, 16);
    return m;
}

static void learn(struct members *m, const struct member *who)
{
    json_t *record = member_encode(who);
    assert_int_equal(members_learn(m, record, (struct instant){1}), 1);
    json_decref(record);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    memset(&roster, 0, sizeof roster);
    for (size_t i = 0; i < NODES; i++) {
        const struct roster_entry *e;
        uint8_t seed[AUTH_SEED] = {(uint8_t)(i + 1)};
        char name[8];
        snprintf(name, sizeof name, "n%zu", i);
        assert_int_equal(auth_identity_from_seed(&w->at[i].id, seed), 0);
        assert_int_equal(roster_admit(&roster, w->at[i].id.pub, name, &e), 0);
        memcpy(w->at[i].node_id, e->id, 16);
    }
    roster.at[AUTHOR].authority = true;
    assert_int_equal(roster_remove(&roster, w->at[REMOVED].node_id), 0);
    for (size_t i = 0; i < NODES; i++) {
        struct member self = record_of(w, i), other = record_of(w, SELF);
        w->at[i].members = members_new(&self);
        w->at[i].envelopes = envelopes_new(&w->at[i].id, w->at[i].members);
        if (i != SELF)
            learn(w->at[i].members, &other);
    }
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < NODES; i++) {
        envelopes_free(w->at[i].envelopes);
        members_free(w->at[i].members);
    }
    free(w);
    return 0;
}

/* One of that kind, with all that its handlers look for. */
static size_t seal(struct envelopes *e, const struct world *w, const char *kind, uint8_t **ret)
{
    char text[256];
    size_t n;
    snprintf(text, sizeof text,
             "{\"kind\":\"%s\",\"job\":7,\"rank\":1,\"round\":1,\"token\":\"01020304\",\"number\":1}", kind);
    assert_int_equal(envelopes_seal(e, w->at[SELF].node_id, text, strlen(text), ret, &n), 0);
    return n;
}

/* What comes of it: how many handlers heard. */
static size_t come_of(struct world *w, const uint8_t *data, size_t n)
{
    struct envelope v;
    handled = 0;
    if (envelopes_take(w->at[SELF].envelopes, &roster, data, n, &v) == ENVELOPE_OURS) {
        json_t *body = json_loadb((const char *)v.text, v.n, 0, NULL);
        if (json_is_object(body))
            messages_receive(&w->node, v.from, body);
        json_decref(body);
    }
    return handled;
}

/* Sealed by one, in the name of another; `shows`: whose key stands in it. */
static void forge(struct world *w, const char *kind, const struct member *as, size_t signer, size_t shows)
{
    const struct member to = record_of(w, SELF);
    struct members *mask = members_new(as);
    uint8_t *data;
    if (memcmp(as->id, to.id, 16))
        learn(mask, &to);
    struct envelopes *e = envelopes_new(&w->at[signer].id, mask);
    const size_t n = seal(e, w, kind, &data);
    memcpy(data + 1 + AUTH_SIGNATURE, w->at[shows].id.sign_pub, AUTH_KEY);
    if (come_of(w, data, n))
        fail_msg("%s was handled, signed by %zu with the key of %zu", kind, signer, shows);
    free(data);
    envelopes_free(e);
    members_free(mask);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void every_kind_is_heard_once_from_its_author(void **state)
{
    struct world *w = *state;
    size_t kinds = 0;
    for (const char *kind; (kind = messages_kind(kinds)); kinds++) {
        uint8_t *data;
        const size_t n = seal(w->at[AUTHOR].envelopes, w, kind, &data);
        assert_int_equal(come_of(w, data, n), 1);
        assert_memory_equal(heard_from, w->at[AUTHOR].node_id, 16);
        assert_int_equal(come_of(w, data, n), 0);
        free(data);
    }
    assert_true(kinds >= 25);
}

static void nobody_writes_any_kind_for_another(void **state)
{
    struct world *w = *state;
    const char *kind;
    for (size_t i = 0; (kind = messages_kind(i)); i++) {
        const struct member author = record_of(w, AUTHOR), removed = record_of(w, REMOVED);
        const struct member stranger = {.id = {1}, .boot = 100}, self = record_of(w, SELF);
        forge(w, kind, &author, FORGER, FORGER);
        forge(w, kind, &author, FORGER, AUTHOR);
        forge(w, kind, &removed, REMOVED, REMOVED);
        forge(w, kind, &author, REMOVED, REMOVED);
        forge(w, kind, &stranger, FORGER, FORGER);
        forge(w, kind, &self, FORGER, FORGER);
        forge(w, kind, &self, FORGER, SELF);
    }
}

static void no_kind_is_heard_that_was_changed(void **state)
{
    struct world *w = *state;
    const char *kind;
    for (size_t i = 0; (kind = messages_kind(i)); i++) {
        uint8_t *data;
        const size_t n = seal(w->at[AUTHOR].envelopes, w, kind, &data);
        for (size_t len = 0; len < n; len++)
            if (come_of(w, data, len))
                fail_msg("%s was handled, cut to %zu of %zu bytes", kind, len, n);
        for (size_t at = 1; at < n; at++) { /* of the first byte nodes between take one off */
            data[at] ^= (uint8_t)(1 << (at + i) % 8);
            if (come_of(w, data, n))
                fail_msg("%s was handled, with a bit of byte %zu turned over", kind, at);
            data[at] ^= (uint8_t)(1 << (at + i) % 8);
        }
        assert_int_equal(come_of(w, data, n), 1); /* none of this has touched what it says itself */
        free(data);
    }
}

static void no_kind_is_heard_of_another_life(void **state)
{
    struct world *w = *state;
    const char *kind;
    for (size_t i = 0; (kind = messages_kind(i)); i++) {
        uint8_t *data;
        const size_t n = seal(w->at[AUTHOR].envelopes, w, kind, &data);
        members_self(w->at[SELF].members)->boot++;
        assert_int_equal(come_of(w, data, n), 0);
        members_self(w->at[SELF].members)->boot--;
        free(data);
    }
}

static void a_plain_member_does_not_speak_as_an_authority(void **state)
{
    struct world *w = *state;
    static const char *const kinds[] = {"tokens", "join-answer"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint8_t *data;
        const size_t n = seal(w->at[FORGER].envelopes, w, kinds[i], &data);
        assert_int_equal(come_of(w, data, n), 0);
        free(data);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind_is_heard_once_from_its_author),
        TEST(nobody_writes_any_kind_for_another),
        TEST(no_kind_is_heard_that_was_changed),
        TEST(no_kind_is_heard_of_another_life),
        TEST(a_plain_member_does_not_speak_as_an_authority),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
