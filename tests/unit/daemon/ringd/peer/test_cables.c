/* SPDX-License-Identifier: MIT
 *
 * What the finder tells of cables, carried to peers, enrol and the measurements: ports, finder and
 * those who are told are the test's own, so nothing is sent and nothing waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/conf.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/peer/measure.h"
#include "daemon/ringd/peer/peers.h"
#include "net/finder.h"
#include "net/port.h"
#include "tests/lib/own_keys.h"

enum { PORT = 7, MTU = 9000, LISTEN = 4711 };

/* --- ports ------------------------------------------------------------------------------------ */

static struct port the_port;
static const struct ports_ops *port_news;
static void *cables_of_test;
static int ports_error;

int ports_open(struct ports **ret, struct event_base *base, const struct ports_policy *policy,
               const struct ports_ops *ops, void *owner)
{
    (void)base, (void)policy;
    *ret = NULL;
    port_news = ops;
    cables_of_test = owner;
    *ret = ports_error ? NULL : (struct ports *)&the_port;
    return ports_error;
}

void ports_close(struct ports *ports)
{
    (void)ports;
}

size_t ports_count(const struct ports *ports)
{
    return ports ? 1 : 0;
}

const struct port *ports_at(const struct ports *ports, size_t i)
{
    (void)ports, (void)i;
    return &the_port;
}

const struct port *ports_find(const struct ports *ports, unsigned ifindex)
{
    (void)ports;
    return ifindex == PORT ? &the_port : NULL;
}

const struct ports_prefix *ports_addresses(const struct ports *ports, size_t *ret_n, bool *ret_is_partial)
{
    (void)ports;
    *ret_n = 0;
    *ret_is_partial = false;
    return NULL;
}

bool ports_counters(const struct ports *ports, const struct port *port, uint64_t *tx, uint64_t *rx)
{
    (void)ports, (void)port, (void)tx, (void)rx;
    return false;
}

void ports_thunderbolt(const struct ports *ports, struct ports_thunderbolt *ret)
{
    (void)ports;
    *ret = (struct ports_thunderbolt){.domains = 1, .peers = 1};
}

bool port_is_usable(const struct port *port)
{
    return port->up && port->carrier;
}

const char *port_kind_name(enum port_kind kind)
{
    (void)kind;
    return "ethernet";
}

/* --- the finder ------------------------------------------------------------------------------- */

static struct {
    const struct finder_ops *ops;
    unsigned expired, heard, asked, probed;
    unsigned asked_port;
    enum beacon_type asked_type;
    uint8_t asked_body[64];
    uint64_t probe;
    uint32_t probe_size;
    struct neighbour_view seen[2];
    size_t nseen;
} finder;

int finder_open(struct finder **ret, const struct finder_setup *setup)
{
    assert_int_equal(setup->self.tcp_port, LISTEN);
    assert_null(setup->key); /* in no cluster: it is silent */
    finder.ops = setup->ops;
    *ret = (struct finder *)&finder;
    return 0;
}

void finder_close(struct finder *f)
{
    (void)f;
}

void finder_update(struct finder *f)
{
    (void)f;
}

void finder_set_key(struct finder *f, const struct beacon_key *key)
{
    (void)f, (void)key;
}

int finder_set_attempt(struct finder *f, unsigned ifindex, uint8_t attempt)
{
    (void)f, (void)ifindex, (void)attempt;
    return 0;
}

int finder_ask(struct finder *f, unsigned ifindex, enum beacon_type type, const void *body, size_t n)
{
    (void)f;
    finder.asked++;
    finder.asked_port = ifindex;
    finder.asked_type = type;
    memcpy(finder.asked_body, body, n);
    return 1;
}

int finder_probe(struct finder *f, unsigned ifindex, const struct in6_addr *to, uint64_t number,
                 uint32_t packet)
{
    (void)f, (void)to;
    assert_int_equal(ifindex, PORT);
    finder.probed++;
    finder.probe = number;
    finder.probe_size = packet;
    return 0;
}

int finder_port_error(const struct finder *f, unsigned ifindex)
{
    (void)f, (void)ifindex;
    return 0;
}

void finder_heard(struct finder *f, uint64_t cable)
{
    (void)f, (void)cable;
    finder.heard++;
}

void finder_connection_ended(struct finder *f)
{
    (void)f;
    finder.expired++;
}

void finder_keep_step(struct finder *f, struct instant beat)
{
    (void)f, (void)beat;
}

size_t finder_neighbours(const struct finder *f, struct neighbour_view *out, size_t cap)
{
    (void)f;
    for (size_t i = 0; i < finder.nseen && i < cap; i++)
        out[i] = finder.seen[i];
    return finder.nseen;
}

void finder_stats(const struct finder *f, struct finder_stats *ret)
{
    (void)f;
    *ret = (struct finder_stats){.dropped = 3};
}

/* --- who is told ------------------------------------------------------------------------------ */

static struct {
    unsigned up, down, sized, ports;
    uint64_t cable;
    enum cable_end end;
    char why[100];
    uint32_t size;
    unsigned measured, gone;
    char tried[80];
    uint16_t tried_port;
} told;

void peers_cable_up(struct peers *p, const struct cable *cable)
{
    (void)p;
    told.up++;
    told.cable = cable->id;
}

void peers_cable_down(struct peers *p, uint64_t cable, const char *why, enum cable_end end)
{
    (void)p;
    told.down++;
    told.cable = cable;
    told.end = end;
    snprintf(told.why, sizeof told.why, "%s", why);
}

void peers_cable_size(struct peers *p, uint64_t cable, uint32_t packet)
{
    (void)p, (void)cable;
    told.sized++;
    told.size = packet;
}

void peers_ports_changed(struct peers *p)
{
    (void)p;
    told.ports++;
}

uint64_t peers_boot_of(const struct peers *p, const uint8_t id[16])
{
    (void)p;
    return id[0];
}

uint16_t peers_port(const struct peers *p)
{
    (void)p;
    return LISTEN;
}

struct instant peers_beat(const struct peers *p)
{
    (void)p;
    return (struct instant){0};
}

void measure_cable(struct measure *m, const struct cable *cable)
{
    (void)m, (void)cable;
    told.measured++;
}

void measure_cable_gone(struct measure *m, uint64_t cable)
{
    (void)m, (void)cable;
    told.gone++;
}

void measure_ports_changed(struct measure *m)
{
    (void)m;
}

bool enrol_question(const struct enrol *e, uint8_t ret[static TOKEN_TAG])
{
    (void)e, (void)ret;
    return false;
}

bool enrol_is_answer(const struct enrol *e, const uint8_t answer[static TOKEN_TAG])
{
    (void)e;
    return answer[0] == 'a';
}

bool enrol_answers(const struct enrol *e, const uint8_t question[static TOKEN_TAG],
                   uint8_t ret[static TOKEN_TAG])
{
    (void)e;
    memset(ret, 'a', TOKEN_TAG);
    return question[0] == 'q';
}

void enrol_try(struct enrol *e, const char *host, uint16_t port)
{
    (void)e;
    snprintf(told.tried, sizeof told.tried, "%s", host);
    told.tried_port = port;
}

bool enrol_missed(struct enrol *e, unsigned generation, uint8_t ret[static TOKEN_TAG])
{
    (void)e;
    memset(ret, 'm', TOKEN_TAG);
    return generation == 2;
}

/* --- a node with one port --------------------------------------------------------------------- */

struct world {
    struct event_base *base;
    struct opts *opts;
    struct keeper keeper;
    struct keys *keys;
    struct cluster *cluster;
    struct members *members;
    struct cables *cables;
};

static int opens(struct world *w, struct err *err)
{
    return cables_open(
        &w->cables,
        &(struct cables_setup){
            .base = w->base, .opts = w->opts, .name = "anna", .cluster = w->cluster, .members = w->members},
        err);
}

static int set_up(void **state)
{
    static const struct member self = {.id = {1}, .name = "anna", .boot = 1, .seq = 1};
    struct world *w = calloc(1, sizeof *w);
    struct err err = {""};
    memset(&finder, 0, sizeof finder);
    memset(&told, 0, sizeof told);
    ports_error = 0;
    the_port = (struct port){.ifindex = PORT, .name = "eth0", .up = true, .carrier = true, .mtu = MTU};
    log_set_level("error");
    w->base = event_base_new();
    w->opts = opts_new(conf_table);
    assert_int_equal(opts_set(w->opts, "link-socket", "/nonexistent/link.sock", &err), 0);
    w->keys = own_keys(&w->keeper, (const uint8_t[AUTH_SEED]){1});
    assert_non_null(w->keys);
    assert_int_equal(cluster_open(&w->cluster, "/nonexistent", w->keys, &err), 0);
    w->members = members_new(&self);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    cables_close(w->cables);
    members_free(w->members);
    cluster_close(w->cluster);
    keys_close(w->keys);
    opts_free(w->opts);
    event_base_free(w->base);
    free(w);
    return 0;
}

static void starts(struct world *w)
{
    struct err err = {""};
    if (opens(w, &err))
        fail_msg("%s", err.text);
}

static struct cable the_cable(void)
{
    return (struct cable){.id = 42,
                          .ifindex = PORT,
                          .port = "eth0",
                          .node_id = {2},
                          .boot = 5,
                          .name = "bert",
                          .port_name = "eth9",
                          .mtu = MTU,
                          .tcp_port = LISTEN};
}

/* Probes of packets up to so many bytes come back, and the search comes to its end. */
static void pass_up_to(struct world *w, uint32_t most)
{
    for (unsigned probes = finder.probed, idle = 0; idle < 40; idle++) {
        event_base_loop(w->base, EVLOOP_ONCE);
        if (finder.probed == probes)
            continue;
        probes = finder.probed;
        idle = 0;
        if (finder.probe_size <= most)
            finder.ops->sized(cables_of_test, PORT, finder.probe, finder.probe_size);
        if (told.size == most)
            return;
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

static void a_cable_is_told_to_who_uses_it(void **state)
{
    struct world *w = *state;
    const struct cable c = the_cable();
    starts(w);
    finder.ops->beacons.cable_up(cables_of_test, &c);
    assert_int_equal(told.up, 1);
    assert_int_equal(told.cable, 42);
    assert_int_equal(told.measured, 1);
    finder.ops->beacons.cable_changed(cables_of_test, &c);
    assert_int_equal(told.up, 2);
    assert_int_equal(told.measured, 2);
    cables_heard(w->cables, 42);
    assert_int_equal(finder.heard, 1);
    port_news->changed(cables_of_test);
    assert_int_equal(told.ports, 1);
}

static void the_end_of_a_cable_has_a_sentence(void **state)
{
    static const char *const sentences[] = {[CABLE_END_SILENT] = "nothing was heard any more",
                                            [CABLE_END_ONE_WAY] = "the other end does not hear us any more",
                                            [CABLE_END_LEFT] = "the other end said goodbye",
                                            [CABLE_END_RESTARTED] = "the other end was restarted",
                                            [CABLE_END_PORT] = "unplugged, or the port was taken down",
                                            [CABLE_END_CLONED] =
                                                "two machines have the identity of the other end",
                                            [CABLE_END_VERSION] = "the other end speaks another version"};
    struct world *w = *state;
    const struct cable c = the_cable();
    starts(w);
    for (unsigned end = 0; end < sizeof sentences / sizeof *sentences; end++) {
        finder.ops->beacons.cable_up(cables_of_test, &c);
        finder.ops->beacons.cable_down(cables_of_test, &c, (enum cable_end)end);
        assert_int_equal(told.down, end + 1);
        assert_int_equal(told.end, end);
        assert_string_equal(told.why, sentences[end]);
        assert_int_equal(told.gone, end + 1);
    }
}

/* Beacons have a key that every member has; a connection that stands is that node's own. */
static void a_connection_proves_which_life_it_is(void **state)
{
    static const uint8_t connected[16] = {9}, not_connected[16] = {0};
    starts(*state);
    assert_int_equal(finder.ops->beacons.proved_boot(cables_of_test, connected), 9);
    assert_int_equal(finder.ops->beacons.proved_boot(cables_of_test, not_connected), 0);
}

/* The finder may be what ended the connection, so it hears of it from the loop. */
static void a_connection_that_ended_is_told_from_the_loop(void **state)
{
    struct world *w = *state;
    starts(w);
    cables_connection_ended(w->cables);
    assert_int_equal(finder.expired, 0);
    event_base_loop(w->base, EVLOOP_ONCE);
    assert_int_equal(finder.expired, 1);
}

static void packets_that_pass_are_measured(void **state)
{
    struct world *w = *state;
    const struct cable c = the_cable();
    char trouble[CABLES_TROUBLE];
    starts(w);
    finder.ops->beacons.cable_up(cables_of_test, &c);
    pass_up_to(w, MTU);
    assert_int_equal(told.size, MTU);
    cables_trouble(w->cables, 42, trouble);
    assert_string_equal(trouble, "");
    finder.ops->sized(cables_of_test, PORT, finder.probe + 1, 1280); /* nobody asked for that */
    assert_int_equal(told.size, MTU);
    cables_trouble(w->cables, 43, trouble); /* no such cable */
    assert_string_equal(trouble, "");
}

static void who_asks_for_a_member_is_answered_where_he_asked(void **state)
{
    static const struct in6_addr from = {.s6_addr = {0xfe, 0x80, [15] = 3}};
    uint8_t body[TOKEN_TAG + 2];
    starts(*state);
    memset(body, 'x', sizeof body);
    finder.ops->ask(cables_of_test, PORT, &from, BEACON_JOINQ, body, TOKEN_TAG);
    assert_int_equal(finder.asked, 0); /* no token of ours */
    memset(body, 'q', sizeof body);
    finder.ops->ask(cables_of_test, PORT, &from, BEACON_JOINQ, body, TOKEN_TAG - 1);
    assert_int_equal(finder.asked, 0);
    finder.ops->ask(cables_of_test, PORT, &from, BEACON_JOINQ, body, TOKEN_TAG);
    assert_int_equal(finder.asked, 1);
    assert_int_equal(finder.asked_port, PORT);
    assert_int_equal(finder.asked_type, BEACON_JOINA);
    assert_int_equal(finder.asked_body[TOKEN_TAG] | finder.asked_body[TOKEN_TAG + 1] << 8, LISTEN);
    memcpy(body, finder.asked_body, sizeof body);
    finder.ops->ask(cables_of_test, PORT, &from, BEACON_JOINA, body, sizeof body - 1);
    assert_string_equal(told.tried, "");
    finder.ops->ask(cables_of_test, PORT, &from, BEACON_JOINA, body, sizeof body);
    assert_string_equal(told.tried, "fe80::3%7");
    assert_int_equal(told.tried_port, LISTEN);
    finder.ops->sealed(cables_of_test, PORT, 1);
    assert_int_equal(finder.asked, 1);
    finder.ops->sealed(cables_of_test, PORT, 2); /* a newer key than ours */
    assert_int_equal(finder.asked, 2);
    assert_int_equal(finder.asked_type, BEACON_JOINQ);
}

static const char *text_at(const json_t *of, const char *key)
{
    return json_string_value(json_object_get(of, key));
}

static void a_port_shows_who_is_heard_and_what_is_wrong(void **state)
{
    struct world *w = *state;
    starts(w);
    finder.nseen = 1;
    finder.seen[0] = (struct neighbour_view){.cable = the_cable(), .state = NEIGHBOUR_TWO_WAY};
    json_t *all = cables_encode(w->cables), *port = json_array_get(all, 0);
    assert_int_equal(json_array_size(all), 1);
    assert_string_equal(text_at(port, "name"), "eth0");
    assert_string_equal(text_at(port, "why"), "");
    assert_string_equal(text_at(json_array_get(json_object_get(port, "heard"), 0), "cable"),
                        "000000000000002a");
    json_decref(all);
    the_port.carrier = false;
    all = cables_encode(w->cables);
    assert_string_equal(text_at(json_array_get(all, 0), "why"), "nothing is plugged in at the other end");
    json_decref(all);
    the_port.up = false;
    all = cables_encode(w->cables);
    assert_non_null(strstr(text_at(json_array_get(all, 0), "why"), "it is down: ip link set"));
    json_decref(all);
    json_t *thunderbolt = cables_thunderbolt_encode(w->cables), *health = cables_health(w->cables);
    assert_non_null(strstr(text_at(thunderbolt, "trouble"), "modprobe thunderbolt-net"));
    assert_int_equal(json_integer_value(json_object_get(health, "routed")), 3);
    json_decref(thunderbolt);
    json_decref(health);
    assert_ptr_equal(cables_port(w->cables, PORT), &the_port);
    assert_null(cables_port(w->cables, PORT + 1));
}

static void without_discovery_nothing_is_looked_for(void **state)
{
    struct world *w = *state;
    struct err err = {""};
    char trouble[CABLES_TROUBLE];
    assert_int_equal(opts_set(w->opts, "discover", "off", &err), 0);
    starts(w);
    assert_null(finder.ops);
    assert_null(cables_port(w->cables, PORT));
    cables_heard(w->cables, 42);
    cables_search(w->cables);
    cables_keys_changed(w->cables);
    cables_trouble(w->cables, 42, trouble);
    assert_string_equal(trouble, "");
    json_t *all = cables_encode(w->cables), *health = cables_health(w->cables);
    assert_int_equal(json_array_size(all), 0);
    assert_true(json_is_false(json_object_get(health, "discover")));
    json_decref(all);
    json_decref(health);
}

static void what_cannot_be_watched_is_named(void **state)
{
    struct world *w = *state;
    struct err err = {""};
    ports_error = -EMFILE;
    assert_int_equal(opens(w, &err), -EMFILE);
    assert_non_null(strstr(err.text, "with --discover off it needs not"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cable_is_told_to_who_uses_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_a_cable_has_a_sentence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_connection_proves_which_life_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_connection_that_ended_is_told_from_the_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(packets_that_pass_are_measured, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_asks_for_a_member_is_answered_where_he_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_port_shows_who_is_heard_and_what_is_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_discovery_nothing_is_looked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_watched_is_named, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
