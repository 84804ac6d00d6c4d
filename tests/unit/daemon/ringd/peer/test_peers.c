/* SPDX-License-Identifier: MIT
 *
 * Control connections between two nodes: who is added and who is not, which messages arrive, what
 * is said of what does not, and what is known of ways over cables. */
#include "tests/unit/daemon/ringd/peer/peers_world.h"

/* --- connections ------------------------------------------------------------------------------ */

static void a_named_peer_is_connected_once(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A], *b = &w->at[B];
    struct path path[PEERS_MAX_PATHS];
    struct path_name name;
    come_together(w);
    assert_int_equal(peers_paths(a->peers, b->node_id, path), 1);
    assert_int_equal(path[0].cable, 0);
    assert_string_equal(path[0].host, "127.0.0.1");
    assert_int_equal(path[0].port, peers_port(b->peers)); /* where b listens, not where it called from */
    assert_true(peers_path_name(a->peers, path[0].id, &name));
    assert_string_equal(name.peer, "bert");
    assert_string_equal(name.cable, "");
    assert_false(peers_path_name(a->peers, path[0].id + 1, &name));
    assert_int_equal(peers_boot_of(a->peers, b->node_id), 101);
    assert_int_equal(peers_boot_of(a->peers, a->node_id), 0);
    assert_int_equal(count_shown(a), 1);
    expect_shown(a, 0, "peer", "bert");
    expect_shown(a, 0, "state", "up");
    assert_int_equal(count_shown(b), 1); /* its way is the connection */
    expect_shown(b, 0, "direction", "dialed");
}

/* Only the end that dials a path's lanes may change, and both ends agree who it is. */
static void the_other_end_dials_where_we_cannot(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A], *b = &w->at[B];
    struct path path[PEERS_MAX_PATHS];
    come_together(w);
    assert_int_equal(peers_paths(a->peers, b->node_id, path), 1);
    assert_false(path[0].ours);
    peers_path_turned(a->peers, b->node_id, 7); /* no such cable */
    assert_int_equal(peers_paths(a->peers, b->node_id, path), 1);
    assert_false(path[0].ours);
    peers_path_turned(a->peers, b->node_id, 0);
    assert_int_equal(peers_paths(a->peers, b->node_id, path), 1);
    assert_true(path[0].ours && path[0].peer_unanswered);
    assert_int_equal(peers_paths(b->peers, a->node_id, path), 1);
    assert_true(path[0].ours);
    const unsigned before = a->messages;
    peers_turn_path(b->peers, path[0].id);
    assert_int_equal(peers_paths(b->peers, a->node_id, path), 1);
    assert_false(path[0].ours);
    AWAIT(w, a->messages > before); /* "lane-turn" */
}

static void why_a_connection_ended_is_kept(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A], *b = &w->at[B];
    come_together(w);
    assert_string_equal(peers_last_words(a->peers, b->node_id), "");
    peers_close(b->peers);
    b->peers = NULL;
    AWAIT(w, a->ended == 1);
    assert_false(has_path(a, b));
    assert_true(*peers_last_words(a->peers, b->node_id));
    assert_int_equal(count_shown(a), 0);
    assert_int_equal(peers_boot_of(a->peers, b->node_id), 0);
    assert_false(members_reachable(a->members, b->node_id));
}

static void who_is_removed_is_let_go(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A], *b = &w->at[B];
    struct err err = {""};
    come_together(w);
    assert_int_equal(cluster_remove(a->cluster, b->node_id, &err), 0);
    peers_membership_changed(a->peers);
    AWAIT(w, !has_path(a, b) && !has_path(b, a));
    assert_int_equal(cluster_state(b->cluster), CLUSTER_REMOVED);
    assert_int_equal(peers_send(a->peers, b->node_id, letter("hello")), -EHOSTUNREACH);
}

static void a_node_in_no_cluster_answers_nobody(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A], *b = &w->at[B];
    struct err err = {""};
    char peer[40];
    starts(a, NULL); /* in none */
    assert_int_equal(cluster_init(b->cluster, "elsewhere", b->name, 1000000, &err), 0);
    snprintf(peer, sizeof peer, "127.0.0.1:%u", peers_port(a->peers));
    starts(b, peer);
    AWAIT(w, ({
              json_t *one = shown(b, 0);
              const bool tried = *json_string_value(json_object_get(one, "last_words"));
              json_decref(one);
              tried;
          }));
    assert_int_equal(count_shown(b), 1);
    expect_shown(b, 0, "state", "backing-off");
    expect_shown(b, 0, "address", peer);
    assert_int_equal(count_shown(a), 0);
}

static void what_cannot_be_opened_is_named(void **state)
{
    struct world *w = *state;
    static const char *const peers[] = {"anna", "anna:", ":17464", "anna:port"};
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        struct node *a = &w->at[A];
        struct err err = {""};
        assert_true(node_start(a, peers[i], &err) < 0);
        assert_non_null(strstr(err.text, "is not HOST:PORT"));
        assert_non_null(strstr(err.text, peers[i]));
        peers_close(a->peers);
        a->peers = NULL;
        node_close(a);
        node_open(a);
    }
}

/* --- messages --------------------------------------------------------------------------------- */

static void a_message_arrives_with_its_author(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A], *b = &w->at[B];
    come_together(w);
    a->messages = b->messages = 0;
    assert_int_equal(peers_send(a->peers, b->node_id, letter("to bert")), 0);
    AWAIT(w, b->messages == 1);
    assert_memory_equal(b->from, a->node_id, 16);
    assert_string_equal(b->text, "to bert");
    assert_int_equal(peers_send(a->peers, a->node_id, letter("to myself")), 0);
    assert_int_equal(a->messages, 0); /* from the loop, never from inside */
    AWAIT(w, a->messages == 1);
    assert_memory_equal(a->from, a->node_id, 16);
    peers_broadcast(b->peers, letter("to all others"));
    AWAIT(w, a->messages == 2);
    assert_memory_equal(a->from, b->node_id, 16);
    assert_int_equal(b->messages, 1);
    assert_int_equal(peers_forged(a->peers) + peers_forged(b->peers), 0);
}

static void what_cannot_be_sent_is_told(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A], *b = &w->at[B];
    static const uint8_t nobody[16] = {9};
    const size_t large = LINK_FRAME_MAX - 100;
    int sent = 0, r;
    come_together(w);
    b->messages = 0;
    assert_int_equal(peers_send(a->peers, nobody, letter("hello")), -EHOSTUNREACH);
    assert_int_equal(peers_send_measure(a->peers, 0, nobody, sizeof nobody), -ENOTCONN);
    char *text = calloc(1, LINK_FRAME_MAX + 1);
    memset(text, 'x', LINK_FRAME_MAX);
    assert_int_equal(peers_send(a->peers, b->node_id, letter(text)), -EMSGSIZE);
    text[large] = '\0';
    do /* nothing leaves without the loop */
        r = peers_send(a->peers, b->node_id, letter(text));
    while (!r && ++sent < 100);
    free(text);
    assert_int_equal(r, -ENOBUFS);
    assert_true(sent >= 15);
    AWAIT(w, b->messages == (unsigned)sent);
    assert_int_equal(peers_send(a->peers, b->node_id, letter("again")), 0);
    AWAIT(w, b->messages == (unsigned)sent + 1);
}

/* --- cables ----------------------------------------------------------------------------------- */

/* To a node that is not there, on a port of its own. */
static struct cable cable_to(uint8_t node, unsigned port)
{
    struct cable c = {.id = 1000 + 100 * port + node,
                      .ifindex = 1000 + port,
                      .boot = 1,
                      .tcp_port = 9,
                      .kind = PORT_ETH,
                      .name = "cleo"};
    memset(c.node_id, node, 16);
    c.address.s6_addr[0] = 0xfe;
    c.address.s6_addr[1] = 0x80;
    c.address.s6_addr[15] = node;
    snprintf(c.port, sizeof c.port, "eth%u", port);
    return c;
}

static void a_cable_that_is_out_says_why(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A];
    struct err err = {""};
    struct cable c = cable_to(0, 3); /* ours is the larger id: the other end calls */
    assert_int_equal(cluster_init(a->cluster, "home", a->name, 1000000, &err), 0);
    starts(a, NULL);
    peers_cable_up(a->peers, &c);
    assert_int_equal(count_shown(a), 1);
    expect_shown(a, 0, "peer", "cleo");
    expect_shown(a, 0, "port", "eth3");
    expect_shown(a, 0, "direction", "accepting");
    expect_shown(a, 0, "state", "waiting");
    peers_cable_up(a->peers, &c); /* news of the same is no second way */
    assert_int_equal(count_shown(a), 1);
    peers_cable_down(a->peers, c.id, "nothing was heard any more", CABLE_END_SILENT);
    assert_int_equal(count_shown(a), 1);
    expect_shown(a, 0, "state", "out");
    expect_shown(a, 0, "why", "the cable on eth3 is out: nothing was heard any more");
    peers_cable_down(a->peers, 77, "no such cable", CABLE_END_SILENT);
    assert_int_equal(count_shown(a), 1);
    c.id++; /* plugged in again: what was on that port to that node is forgotten */
    peers_cable_up(a->peers, &c);
    assert_int_equal(count_shown(a), 1);
    expect_shown(a, 0, "state", "waiting");
}

static void so_many_cables_that_are_out_are_remembered(void **state)
{
    enum { MOST_OUT = 64 };
    struct world *w = *state;
    struct node *a = &w->at[A];
    struct err err = {""};
    assert_int_equal(cluster_init(a->cluster, "home", a->name, 1000000, &err), 0);
    starts(a, NULL);
    for (unsigned i = 0; i < MOST_OUT + 20; i++) {
        const struct cable c = cable_to(0, i);
        peers_cable_up(a->peers, &c);
        peers_cable_down(a->peers, c.id, "unplugged", CABLE_END_PORT);
        assert_true(count_shown(a) <= MOST_OUT + 1);
    }
    assert_true(count_shown(a) >= MOST_OUT);
}

/* The connection is here before the first beacon: its boot outranks what a beacon says. */
static void a_standing_link_outranks_a_beacon(void **state)
{
    struct world *w = *state;
    struct node *a = &w->at[A], *b = &w->at[B];
    struct cable c = cable_to(0, 3);
    come_together(w);
    memcpy(c.node_id, b->node_id, 16);
    c.boot = 7; /* another life than that which is connected */
    peers_cable_up(a->peers, &c);
    assert_int_equal(peers_boot_of(a->peers, b->node_id), 101);
    peers_cable_down(a->peers, c.id, "the other end was restarted", CABLE_END_RESTARTED);
    assert_true(has_path(a, b));
    assert_int_equal(a->ended, 0);
    assert_true(members_reachable(a->members, b->node_id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_named_peer_is_connected_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_other_end_dials_where_we_cannot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(why_a_connection_ended_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_removed_is_let_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_in_no_cluster_answers_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_opened_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_message_arrives_with_its_author, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_sent_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cable_that_is_out_says_why, set_up, tear_down),
        cmocka_unit_test_setup_teardown(so_many_cables_that_are_out_are_remembered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_standing_link_outranks_a_beacon, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
