/* SPDX-License-Identifier: MIT
 *
 * A hostile member against every kind of message: in another's name, repeated, cut short, with a
 * bit turned over, from an earlier life. No handler hears of any. The handlers here only
 * count. And the table of messages: fields, senders, and the document. */
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
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/hub/supply.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/deputy/deputy.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/job/plan/cost_server.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/message_table.h"
#include "daemon/ringd/messages.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/ringd/store/metrics.h"
#include "tests/lib/own_keys.h"

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

static void count_author(void)
{
    count(roster.at[AUTHOR].id);
}

/* Handlers that hear from whom, and those that need not. */
#define HANDLER(name, type)                                                                                  \
    void name(struct type *t, const uint8_t from[16], const json_t *body)                                    \
    {                                                                                                        \
        (void)t, (void)body;                                                                                 \
        count(from);                                                                                         \
    }
#define HANDLER_OF_BODY(name, type)                                                                          \
    void name(struct type *t, const json_t *body)                                                            \
    {                                                                                                        \
        (void)t, (void)body;                                                                                 \
        count_author();                                                                                      \
    }
#define HANDLER_OF_NOTHING(name, type)                                                                       \
    void name(struct type *t)                                                                                \
    {                                                                                                        \
        (void)t;                                                                                             \
        count_author();                                                                                      \
    }
HANDLER(enrol_take_tokens, enrol)
HANDLER(enrol_take_join_ask, enrol)
HANDLER_OF_BODY(enrol_take_join_answer, enrol)
HANDLER(doctor_take_ask, doctor)
HANDLER(doctor_take_facts, doctor)
HANDLER(doctor_take_reading, doctor)
HANDLER(elsewhere_take_jobs_ask, elsewhere)
HANDLER(elsewhere_take_jobs_told, elsewhere)
HANDLER(elsewhere_take_api_ask, elsewhere)
HANDLER(elsewhere_take_api_more, elsewhere)
HANDLER(elsewhere_take_api_told, elsewhere)
HANDLER_OF_NOTHING(coord_take_wanted, coord)
HANDLER(coord_send_away, coord)
HANDLER(coord_take_noted, coord)
HANDLER(coord_take_held, coord)
HANDLER(deputy_take_news, deputy)
HANDLER(deputy_take_recall, deputy)
HANDLER(deputy_take_claim_ask, deputy)
HANDLER(coord_take_head_ask, coord)
HANDLER(workers_take_head_answer, workers)
HANDLER(deputy_take_claim_answer, deputy)
HANDLER(deputy_take_claim_release, deputy)
HANDLER(parts_take_ask, parts)
HANDLER(parts_take_told, parts)
HANDLER(workers_take_open, workers)
HANDLER_OF_NOTHING(worker_take_connect, worker)
HANDLER_OF_BODY(worker_take_run, worker)
HANDLER_OF_BODY(worker_take_turn, worker)
HANDLER_OF_BODY(worker_take_leave, worker)
HANDLER_OF_BODY(worker_take_kept, worker)
HANDLER_OF_BODY(worker_take_stop, worker)
HANDLER(workers_say_stopped, workers)
HANDLER(workers_take_lane_turn, workers)
HANDLER(cost_server_take_ask, cost_server)
HANDLER(supply_take_want, supply)
HANDLER(supply_take_told, supply)
HANDLER(supply_take_push, supply)
HANDLER(supply_take_pushed, supply)
HANDLER(supply_take_give, supply)
HANDLER(supply_take_denied, supply)
HANDLER(supply_take_census, supply)
HANDLER(supply_take_counted, supply)
HANDLER(cost_query_take_heard, cost_query)
HANDLER(cost_query_take_told, cost_query)
HANDLER(relay_take_open, relay)
HANDLER(relay_take_ready, relay)
HANDLER(relay_take_refused, relay)

void node_take_keys(struct node *n, const uint8_t from[16], const json_t *keys)
{
    (void)n, (void)keys;
    count(from);
}

void node_drain(struct node *n, const uint8_t by[16], const char *reason)
{
    (void)n, (void)reason;
    count(by);
}

void coord_take_adopted(struct coord *c, struct parts *parts, const uint8_t from[16], const json_t *body)
{
    (void)c, (void)parts, (void)body;
    count(from);
}

void coord_take_offered(struct coord *c, struct parts *parts, const uint8_t from[16], const json_t *body)
{
    (void)c, (void)parts, (void)body;
    count(from);
}

void coord_take_offer_answer(struct coord *c, const uint8_t from[16], const json_t *body)
{
    (void)c, (void)body;
    count(from);
}

bool deputy_take_landed(struct deputy *d, const uint8_t from[16], const json_t *body, uint64_t *ret_as)
{
    (void)d, (void)body, (void)ret_as;
    count(from);
    return false;
}

int coord_cancel(struct coord *c, uint64_t id)
{
    (void)c, (void)id;
    return 0;
}

void coord_take_word(struct coord *c, enum job_word word, const json_t *body)
{
    (void)c, (void)word, (void)body;
    count_author();
}

static bool is_of_the_job; /* the sender is the head, or the rank that it names */

bool coord_is_rank(const struct coord *c, const uint8_t from[16], const json_t *body)
{
    (void)c, (void)from, (void)body;
    return is_of_the_job;
}

struct worker *workers_of_head(const struct workers *ws, const uint8_t from[16], const json_t *body)
{
    static int one;
    (void)ws, (void)from, (void)body;
    return is_of_the_job ? (struct worker *)&one : NULL;
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
    is_of_the_job = true;
    for (size_t i = 0; i < NODES; i++) {
        const struct roster_entry *e;
        uint8_t seed[AUTH_SEED] = {(uint8_t)(i + 1)};
        char name[8];
        snprintf(name, sizeof name, "n%zu", i);
        assert_int_equal(own_identity_from_seed(&w->at[i].id, seed), 0);
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
    w->node.members = w->at[SELF].members;
    w->node.metrics = metrics_new();
    log_set_level("error");
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    metrics_free(w->node.metrics);
    for (size_t i = 0; i < NODES; i++) {
        envelopes_free(w->at[i].envelopes);
        members_free(w->at[i].members);
    }
    free(w);
    return 0;
}

/* A value that the field may have. */
static json_t *value_of(const struct field *f)
{
    switch (f->type) {
    case FIELD_WHOLE: return json_integer((json_int_t)f->min);
    case FIELD_FLAG: return json_true();
    case FIELD_LIST: return json_array();
    case FIELD_OBJECT: return json_object();
    default: return json_string("01020304");
    }
}

/* With all fields that its row names. */
static json_t *body_of(enum message_kind kind)
{
    json_t *body = json_pack("{s:s}", "kind", message_row(kind)->name);
    for (const struct field *f = message_row(kind)->fields; f->name; f++)
        json_object_set_new(body, f->name, value_of(f));
    return body;
}

/* One of that kind. */
static size_t seal(struct envelopes *e, const struct world *w, enum message_kind kind, uint8_t **ret)
{
    json_t *body = body_of(kind);
    char *text = json_dumps(body, JSON_COMPACT);
    size_t n;
    assert_int_equal(envelopes_seal(e, w->at[SELF].node_id, text, strlen(text), ret, &n), 0);
    free(text);
    json_decref(body);
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
static void forge(struct world *w, enum message_kind kind, const struct member *as, size_t signer,
                  size_t shows)
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
        fail_msg("%s was handled, signed by %zu with the key of %zu", message_row(kind)->name, signer, shows);
    free(data);
    envelopes_free(e);
    members_free(mask);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void every_kind_is_heard_once_from_its_author(void **state)
{
    struct world *w = *state;
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
        uint8_t *data;
        const size_t n = seal(w->at[AUTHOR].envelopes, w, kind, &data);
        assert_int_equal(come_of(w, data, n), 1);
        assert_memory_equal(heard_from, w->at[AUTHOR].node_id, 16);
        assert_int_equal(come_of(w, data, n), 0);
        free(data);
    }
}

static void nobody_writes_any_kind_for_another(void **state)
{
    struct world *w = *state;
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
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
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
        uint8_t *data;
        const size_t n = seal(w->at[AUTHOR].envelopes, w, kind, &data);
        for (size_t len = 0; len < n; len++)
            if (come_of(w, data, len))
                fail_msg("%s was handled, cut to %zu of %zu bytes", message_row(kind)->name, len, n);
        for (size_t at = 1; at < n; at++) { /* of the first byte nodes between take one off */
            data[at] ^= (uint8_t)(1 << (at + kind) % 8);
            if (come_of(w, data, n))
                fail_msg("%s was handled, with a bit of byte %zu turned over", message_row(kind)->name, at);
            data[at] ^= (uint8_t)(1 << (at + kind) % 8);
        }
        assert_int_equal(come_of(w, data, n), 1); /* none of this has touched what it says itself */
        free(data);
    }
}

static void no_kind_is_heard_of_another_life(void **state)
{
    struct world *w = *state;
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
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
    static const enum message_kind kinds[] = {MESSAGE_TOKENS, MESSAGE_JOIN_ANSWER};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint8_t *data;
        const size_t n = seal(w->at[FORGER].envelopes, w, kinds[i], &data);
        assert_int_equal(come_of(w, data, n), 0);
        free(data);
    }
}

/* How many handlers hear that body of AUTHOR; takes it over. */
static size_t heard(struct world *w, json_t *body)
{
    handled = 0;
    messages_receive(&w->node, w->at[AUTHOR].node_id, body);
    json_decref(body);
    return handled;
}

static uint64_t dropped(const struct world *w)
{
    return metrics_counts(w->node.metrics)->messages_dropped;
}

/* Without one of its fields, or with one of another type or out of range, it is dropped and
 * counted. */
static void fields_are_checked_before_a_handler_runs(void **state)
{
    struct world *w = *state;
    uint64_t n = 0;
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++)
        for (const struct field *f = message_row(kind)->fields; f->name; f++) {
            json_t *without = body_of(kind), *other = body_of(kind), *beyond = body_of(kind);
            json_object_del(without, f->name);
            assert_int_equal(heard(w, without), !f->missing);
            n += f->missing != NULL;
            json_object_set_new(other, f->name, f->type == FIELD_OBJECT ? json_array() : json_object());
            assert_int_equal(heard(w, other), 0);
            n++;
            if (f->type == FIELD_WHOLE && f->max < FIELD_ANY)
                json_object_set_new(beyond, f->name, json_integer((json_int_t)f->max + 1));
            else if (f->type == FIELD_WHOLE)
                json_object_set_new(beyond, f->name, json_integer(-1));
            else if (f->type == FIELD_TEXT)
                json_object_set_new(beyond, f->name, json_sprintf("%*s", (int)f->max + 1, ""));
            const bool is_ranged = f->type == FIELD_WHOLE || f->type == FIELD_TEXT;
            assert_int_equal(heard(w, beyond), !is_ranged);
            n += is_ranged;
            assert_int_equal(dropped(w), n);
        }
    assert_int_equal(heard(w, json_pack("{s:s}", "kind", "of-tomorrow")), 0);
    assert_int_equal(heard(w, json_object()), 0);
    assert_int_equal(dropped(w), n + 2);
}

/* Of a node that is no rank, or not the head, a word counts for nothing; some are answered. */
static void only_the_job_itself_speaks_of_a_job(void **state)
{
    struct world *w = *state;
    size_t answered = 0, of_jobs = 0;
    is_of_the_job = false;
    for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
        const enum message_sender sender = message_row(kind)->sender;
        const size_t n = heard(w, body_of(kind));
        if (sender != MESSAGE_FROM_HEAD && sender != MESSAGE_FROM_RANK)
            continue;
        of_jobs++;
        answered += n;
        if (n) /* as who sent it, not as the job */
            assert_true(kind == MESSAGE_JOB_READY || kind == MESSAGE_JOB_CONNECTED ||
                        kind == MESSAGE_JOB_STOP);
    }
    assert_int_equal(of_jobs, 15);
    assert_int_equal(answered, 3);
    assert_int_equal(dropped(w), 0);
}

static char *read_protocol(void)
{
    char *document = NULL;
    size_t size = 0;
    FILE *f = fopen("docs/PROTOCOL.md", "re");
    if (!f)
        fail_msg("docs/PROTOCOL.md is not to be found from here: run in the project's folder");
    assert_true(getdelim(&document, &size, '\0', f) > 0);
    fclose(f);
    return document;
}

/* A row for each kind, with its fields; otherwise all of them are printed as they should be. */
static void the_protocol_has_every_message(void **state)
{
    char *document = read_protocol(), range[RANGE_TEXT], row[400];
    bool level = true;
    (void)state;
    for (int print = 0; print < 2 && print == !level; print++) {
        for (enum message_kind kind = 0; kind < MESSAGE_KINDS; kind++) {
            char *text = message_row_text(kind);
            level = level && strstr(document, text);
            if (print)
                fputs(text, stderr);
            free(text);
        }
        for (const struct field *f = message_common_fields(); f->name; f++) {
            field_range(range, f);
            snprintf(row, sizeof row, "| `%s` | %s | %s |\n", f->name, range, f->doc);
            level = level && strstr(document, row);
            if (print)
                fputs(row, stderr);
        }
    }
    free(document);
    if (!level)
        fail_msg("docs/PROTOCOL.md has other rows for messages than those above: write them there");
}

/* No row of these tables is of a message that is not there any more. */
static void the_protocol_has_no_other_message(void **state)
{
    static const char head[] = "| Kind | From | Fields | Meaning |\n|---|---|---|---|\n";
    char *document = read_protocol();
    size_t rows = 0;
    (void)state;
    for (const char *at = strstr(document, head); at; at = strstr(at, head))
        for (at += sizeof head - 1; *at == '|'; at = strchr(at, '\n') + 1)
            rows++;
    free(document);
    assert_int_equal(rows, MESSAGE_KINDS);
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
        TEST(fields_are_checked_before_a_handler_runs),
        TEST(only_the_job_itself_speaks_of_a_job),
        TEST(the_protocol_has_every_message),
        TEST(the_protocol_has_no_other_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
