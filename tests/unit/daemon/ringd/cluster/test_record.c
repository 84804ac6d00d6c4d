/* SPDX-License-Identifier: MIT
 *
 * Records as they travel: nobody speaks in another's name, ages add up on the way, what is known
 * costs no signature. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/record.h"
#include "tests/unit/daemon/ringd/cluster/signer.h"

enum { NODES = 4, SECOND = 1000000 };

struct node {
    struct signer as;
    struct records *records;
};
struct world {
    struct node at[NODES];
    struct roster *roster; /* owned */
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->roster = calloc(1, sizeof *w->roster);
    for (size_t i = 0; i < NODES; i++) {
        struct node *n = &w->at[i];
        signer_init(&n->as, w->roster, i);
        n->records = records_new(&n->as.id, n->as.members);
    }
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < NODES; i++) {
        records_free(w->at[i].records);
        members_free(w->at[i].as.members);
    }
    free(w->roster);
    free(w);
    return 0;
}

static size_t say(struct world *w, size_t who, uint64_t us, uint8_t *out)
{
    struct node *n = &w->at[who];
    members_touch(n->as.members);
    assert_int_equal(records_sign_self(n->records, (struct instant){us}), 0);
    size_t len = records_write(n->records, n->as.node_id, (struct instant){us}, out, RECORD_MAX);
    assert_true(len > RECORD_HEAD);
    return len;
}

static enum record_verdict hear(struct world *w, size_t who, const uint8_t *body, size_t n, uint64_t us)
{
    uint8_t id[16];
    return records_take(w->at[who].records, w->roster, body, n, (struct instant){us}, id);
}

static void a_record_is_handed_on_as_it_was_signed(void **state)
{
    struct world *w = *state;
    uint8_t first[RECORD_MAX], second[RECORD_MAX];
    size_t n = say(w, 0, 5 * SECOND, first);
    assert_int_equal(hear(w, 1, first, n, 100 * SECOND), RECORD_NEWS);
    assert_int_equal(hear(w, 1, first, n, 100 * SECOND), RECORD_KNOWN);
    /* each node's clock is its own; node 1 keeps it for 2 s, node 2 for 3 */
    assert_int_equal(records_write(w->at[1].records, w->at[0].as.node_id, (struct instant){102 * SECOND},
                                   second, sizeof second),
                     n);
    assert_int_equal(hear(w, 2, second, n, 50 * SECOND), RECORD_NEWS);
    assert_true(members_find(w->at[2].as.members, w->at[0].as.node_id)->heard.us == 48 * SECOND);
    assert_int_equal(records_write(w->at[2].records, w->at[0].as.node_id, (struct instant){53 * SECOND},
                                   second, sizeof second),
                     n);
    assert_int_equal(hear(w, 3, second, n, 7 * SECOND), RECORD_NEWS);
    assert_true(members_find(w->at[3].as.members, w->at[0].as.node_id)->heard.us == 2 * SECOND);
    assert_int_equal(
        records_write(w->at[3].records, w->at[1].as.node_id, (struct instant){0}, second, sizeof second), 0);
    assert_int_equal(records_write(w->at[3].records, w->at[0].as.node_id, (struct instant){0}, second, n - 1),
                     n);
}

static void every_bit_counts(void **state)
{
    struct world *w = *state;
    uint8_t body[RECORD_MAX];
    size_t n = say(w, 0, 1, body);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        if (bit / 8 >= RECORD_HEAD - 4 && bit / 8 < RECORD_HEAD)
            continue; /* the age changes on the way */
        body[bit / 8] ^= (uint8_t)(1 << bit % 8);
        enum record_verdict v = hear(w, 1, body, n, 1);
        assert_true(v == RECORD_FORGED || v == RECORD_BROKEN);
        body[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t len = 0; len < n; len++)
        assert_true(hear(w, 1, body, len, 1) > RECORD_KNOWN);
    assert_int_equal(members_count(w->at[1].as.members), 1);
    assert_true(records_forged(w->at[1].records) > 8 * 96);
    assert_int_equal(hear(w, 1, body, n, 1), RECORD_NEWS);
}

/* A member that says its neighbour is busy, or linked to nobody. */
static void nobody_speaks_for_another(void **state)
{
    struct world *w = *state;
    uint8_t body[RECORD_MAX], true_word[RECORD_MAX];
    size_t n_true = say(w, 0, 1, true_word);
    struct member lie = *members_self(w->at[0].as.members);
    lie.seq += 10;
    struct members *mask = members_new(&lie);
    struct records *forger = records_new(&w->at[1].as.id, mask);
    assert_int_equal(records_sign_self(forger, (struct instant){1}), 0);
    size_t n = records_write(forger, lie.id, (struct instant){1}, body, sizeof body);
    assert_int_equal(hear(w, 2, body, n, 1), RECORD_FORGED);
    memcpy(body + AUTH_SIGNATURE, w->at[0].as.id.sign_pub,
           AUTH_KEY); /* under the key of the one it speaks of */
    assert_int_equal(hear(w, 2, body, n, 1), RECORD_FORGED);
    assert_int_equal(hear(w, 2, true_word, n_true, 1), RECORD_NEWS);
    assert_int_equal(hear(w, 2, body, n, 1), RECORD_FORGED); /* also once the key is remembered */
    assert_int_equal(hear(w, 0, body, n, 1), RECORD_FORGED); /* nor is it a twin */
    assert_int_equal(records_forged(w->at[2].records), 3);
    records_free(forger);
    members_free(mask);
}

static void only_members_are_heard(void **state)
{
    struct world *w = *state;
    uint8_t body[RECORD_MAX];
    size_t n = say(w, 0, 1, body);
    uint8_t id[16];
    assert_int_equal(records_take(w->at[1].records, NULL, body, n, (struct instant){1}, id), RECORD_FORGED);
    assert_int_equal(roster_remove(w->roster, w->at[0].as.node_id), 0);
    assert_int_equal(hear(w, 1, body, n, 1), RECORD_FORGED);
    assert_int_equal(members_count(w->at[1].as.members), 1);
}

static void a_copied_identity_is_a_twin(void **state)
{
    struct world *w = *state;
    uint8_t body[RECORD_MAX];
    struct member other = *members_self(w->at[0].as.members);
    other.boot = 7;
    struct members *mask = members_new(&other);
    struct records *twin = records_new(&w->at[0].as.id, mask);
    for (int i = 0; i < 2; i++) {
        members_touch(mask);
        assert_int_equal(records_sign_self(twin, (struct instant){1}), 0);
        size_t n = records_write(twin, other.id, (struct instant){1}, body, sizeof body);
        assert_int_equal(hear(w, 0, body, n, 1), i ? RECORD_TWIN : RECORD_KNOWN);
    }
    records_free(twin);
    members_free(mask);
}

/* The longest record there can be still travels. */
static void a_full_record_fits(void **state)
{
    struct world *w = *state;
    uint8_t body[RECORD_MAX];
    struct member *self = members_self(w->at[0].as.members);
    memset(self->ring, '"', sizeof self->ring - 1); /* two bytes each in JSON */
    self->nstages = MEMBER_STAGES;
    for (size_t i = 0; i < MEMBER_STAGES; i++) {
        self->stages[i].job = INT64_MAX;
        self->stages[i].class = JOB_CLASS_INTERACTIVE;
        self->stages[i].bytes = INT64_MAX;
        memset(self->stages[i].doing, '"', sizeof self->stages[i].doing - 1);
    }
    self->nlinks = RING_MAX_NODES;
    for (size_t i = 0; i < RING_MAX_NODES; i++)
        self->links[i] = (struct member_link){.class_mbps = UINT32_MAX};
    size_t n = say(w, 0, 1, body);
    assert_int_equal(hear(w, 1, body, n, 1), RECORD_NEWS);
}

/* A member may call itself what it likes: it is known by the roster's name, which is unlike all
 * others. */
static void a_node_is_called_what_the_roster_says(void **state)
{
    struct world *w = *state;
    uint8_t body[RECORD_MAX];
    snprintf(members_self(w->at[0].as.members)->name, sizeof(struct member){0}.name, "n2");
    size_t n = say(w, 0, 1, body);
    assert_int_equal(hear(w, 1, body, n, 1), RECORD_NEWS);
    assert_string_equal(members_find(w->at[1].as.members, w->at[0].as.node_id)->name, "n0");
}

/* What others say is printable, however it was cut. */
static void texts_steer_no_terminal(void **state)
{
    struct world *w = *state;
    uint8_t body[RECORD_MAX];
    struct member *self = members_self(w->at[0].as.members);
    const struct member *known;
    json_t *again;
    struct member_stage *stage = &self->stages[self->nstages++];
    stage->job = 1;
    memset(stage->doing, 'x', sizeof stage->doing - 1);
    memcpy(stage->doing + sizeof stage->doing - 3, "\xe2\x82", 2); /* the third byte had no room */
    snprintf(self->version, sizeof self->version,
             "1\x1b[2J\xc2\x9b"
             "2");
    size_t n = say(w, 0, 1, body);
    assert_int_equal(hear(w, 1, body, n, 1), RECORD_NEWS);
    known = members_find(w->at[1].as.members, w->at[0].as.node_id);
    assert_string_equal(known->version, "1?[2J??2");
    assert_string_equal(known->stages[0].doing + sizeof stage->doing - 4, "x??");
    assert_non_null(again = member_encode(known));
    json_decref(again);
    snprintf(self->ring, sizeof self->ring, "n0,\x1b[2J");
    n = say(w, 0, 1, body);
    assert_int_equal(hear(w, 1, body, n, 1), RECORD_BROKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_record_is_handed_on_as_it_was_signed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_bit_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nobody_speaks_for_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_members_are_heard, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_is_called_what_the_roster_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_steer_no_terminal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copied_identity_is_a_twin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_record_fits, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
