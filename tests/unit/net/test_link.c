/* SPDX-License-Identifier: MIT
 *
 * Links against each other: coming up, frames, heartbeats, refusals, and handing a data connection
 * on. How they end: test_link_ends.c. */
#include "tests/unit/net/link_world.h"

/* --- between two links ------------------------------------------------------------------------ */

static void test_comes_up(void **state)
{
    struct world *w = *state;
    struct link_stats stats;
    uint8_t id[16];

    assert_null(w->a.link);
    bring_up(w);
    assert_int_equal(w->a.hellos, 1);
    assert_int_equal(w->b.hellos, 1);
    assert_string_equal(link_peer(w->a.link)->name, "bert");
    assert_string_equal(link_peer(w->b.link)->name, "anna");
    auth_node_id(id, w->b.id.pub);
    assert_memory_equal(link_peer(w->a.link)->node_id, id, 16);
    assert_true(link_dialed(w->a.link) && !link_dialed(w->b.link));
    assert_int_equal(link_kind(w->b.link), LINK_CONTROL);
    assert_int_equal(strncmp(link_address(w->a.link), "127.0.0.1:", 10), 0);
    link_stats(w->a.link, &stats);
    assert_false(stats.suspect);
    assert_int_equal(stats.suite,
                     seal_suites() & 1 << SEAL_AES256_GCM ? SEAL_AES256_GCM : SEAL_CHACHA20_POLY1305);
}

static void send_next(struct side *side);

static const size_t sizes[] = {
    0, 1, 2, 4095, 65536, 262143, 262144, 262145, 524288, 524289, LINK_FRAME_MAX - 1, LINK_FRAME_MAX};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void fill(uint8_t *p, size_t n, size_t seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + seed);
}

static void check_and_go_on(struct side *side)
{
    size_t i = side->frames - 1, n = sizes[i];
    uint8_t *want = malloc(n + 1);

    fill(want, n, i);
    assert_int_equal(side->body_len, n);
    assert_memory_equal(side->body, want, n);
    assert_int_equal(side->type, LINK_FRAME_USER + i);
    free(want);
    if (side->frames < SIZES)
        send_next(side);
    else
        stop(side);
}

static void send_next(struct side *side)
{
    size_t i = side->frames, n = sizes[i];
    struct side *from = side == &side->world->a ? &side->world->b : &side->world->a;
    uint8_t *body = malloc(n + 1);

    fill(body, n, i);
    assert_int_equal(link_send(from->link, (uint8_t)(LINK_FRAME_USER + i), body, n), 0);
    free(body);
}

static void test_frames_of_all_sizes(void **state)
{
    struct world *w = *state;
    struct side *receivers[] = {&w->b, &w->a};
    struct link_stats stats;

    bring_up(w);
    for (int i = 0; i < 2; i++) {
        receivers[i]->on_frame = check_and_go_on;
        send_next(receivers[i]);
        run(w);
        assert_int_equal(receivers[i]->frames, SIZES);
    }
    link_stats(w->a.link, &stats);
    assert_int_equal(stats.tx_frames, SIZES);
    assert_int_equal(stats.rx_frames, SIZES);
}

static void stop_after_twelve(struct side *side)
{
    if (side->frames == 12)
        stop(side);
}

/* Frames sent in one go arrive whole and in order; the queue has an end. */
static void test_send_limits(void **state)
{
    struct world *w = *state;
    uint8_t *body = calloc(1, LINK_FRAME_MAX + 1);

    assert_non_null(body);
    bring_up(w);
    assert_int_equal(link_send(w->a.link, LINK_FRAME_USER, body, LINK_FRAME_MAX + 1), -EMSGSIZE);
    assert_int_equal(link_send(w->a.link, LINK_FRAME_USER - 1, body, 1), -EINVAL);
    for (int i = 0; i < 15; i++)
        assert_int_equal(link_send(w->a.link, LINK_FRAME_USER, body, LINK_FRAME_MAX), 0);
    assert_int_equal(link_send(w->a.link, LINK_FRAME_USER, body, LINK_FRAME_MAX), -ENOBUFS);
    w->b.on_frame = stop_after_twelve;
    run(w);
    assert_int_equal(w->b.body_len, LINK_FRAME_MAX);
    free(body);
}

static void stop_at_rtt(struct side *side)
{
    struct link_stats stats;

    link_stats(side->link, &stats);
    if (stats.rtt_us && side->world->a.beats && side->world->b.beats)
        stop(side);
}

static void test_heartbeats(void **state)
{
    struct world *w = *state;
    struct link_stats stats;

    w->a.setup.beat_us = w->b.setup.beat_us = 20000;
    w->a.on_beaten = stop_at_rtt;
    bring_up(w);
    run(w);
    link_stats(w->a.link, &stats);
    assert_in_range(stats.rtt_us, 1, 1000000);
    assert_string_equal(w->a.beat_text, "b is well");
    assert_string_equal(w->b.beat_text, "a is well");
}

static void test_refusal(void **state)
{
    for (int who = 0; who < 3; who++) { /* the acceptor, the dialer, both */
        struct world *w;

        if (who > 0)
            world_setup(state);
        w = *state;
        w->b.refusal = who != 1 ? "job: fingerprint: here 11, there 22" : NULL;
        w->a.refusal = who != 0 ? "roster: bert is not in it" : NULL;
        w->a.on_down = w->b.on_down = stop_when_both_down;
        dial(w);
        run(w);
        expect_end(&w->a, LINK_END_REFUSED, who == 0 ? "here 11, there 22" : "bert is not in it");
        expect_end(&w->b, LINK_END_REFUSED, who == 1 ? "bert is not in it" : "here 11, there 22");
        assert_int_equal(w->a.ups + w->b.ups, 0);
        if (who < 2)
            world_teardown(state);
    }
}

static void test_version(void **state)
{
    struct world *w = *state;

    w->b.setup.hello.proto_min = 3;
    w->b.setup.hello.proto_max = 4;
    w->a.on_down = w->b.on_down = stop_when_both_down;
    dial(w);
    run(w);
    expect_end(&w->a, LINK_END_VERSION, "speaks protocols 3 to 4, anna (version 0.1.0) speaks 1 to 2");
    assert_int_equal(w->b.end, LINK_END_VERSION);
    assert_non_null(strstr(w->b.text, "3 to 4"));
    assert_non_null(strstr(w->b.text, "1 to 2"));
    assert_int_equal(w->a.hellos + w->b.hellos, 0);
}

/* An acceptor with several secrets: the one that fits is found and named. */
static void test_several_secrets(void **state)
{
    struct world *w = *state;
    static struct link_key keys[LINK_KEYS_MAX];

    for (size_t i = 0; i < LINK_KEYS_MAX; i++) {
        randombytes_buf(keys[i].psk, sizeof keys[i].psk);
        keys[i].tag = 1000 + i;
    }
    memcpy(keys[LINK_KEYS_MAX - 1].psk, w->a.psk, AUTH_PSK);
    w->b.setup.psk = NULL;
    w->b.setup.keys = keys;
    w->b.setup.n_keys = LINK_KEYS_MAX;
    bring_up(w);
    assert_true(link_key_tag(w->b.link) == 1000 + LINK_KEYS_MAX - 1);
    assert_true(link_key_tag(w->a.link) == 0);
    assert_memory_equal(link_peer_key(w->b.link), w->a.id.pub, AUTH_KEY);
    assert_memory_equal(link_peer_key(w->a.link), w->b.id.pub, AUTH_KEY);
}

static void test_none_of_several_secrets(void **state)
{
    struct world *w = *state;
    struct link_key keys[3];

    randombytes_buf(keys, sizeof keys);
    w->b.setup.keys = keys;
    w->b.on_down = w->a.on_down = stop_when_both_down;
    for (int i = 0; i < 2; i++) {
        w->b.setup.n_keys = i == 0 ? 3 : 0; /* three that do not fit, and none at all */
        dial(w);
        run(w);
        expect_end(&w->b, LINK_END_BAD_MAC, "does not know this cluster's secret");
        assert_int_equal(w->b.hellos, 0);
        assert_true(link_key_tag(w->b.link) == 0);
        link_free(w->a.link);
        link_free(w->b.link);
        w->a.link = w->b.link = NULL;
        w->a.downs = w->b.downs = 0;
    }
}

/* The dialer turns away at message 2: the acceptor never learns who it was. */
static void test_vetting(void **state)
{
    struct world *w = *state;

    w->a.turns_away = "bert is not whom I looked for";
    w->a.on_down = w->b.on_down = stop_when_both_down;
    dial(w);
    run(w);
    expect_end(&w->a, LINK_END_REFUSED, "not whom I looked for");
    expect_end(&w->b, LINK_END_HANDSHAKE, "closed the connection during the handshake");
    assert_int_equal(w->a.vets, 1);
    assert_int_equal(w->a.hellos + w->b.hellos, 0);
    assert_null(link_peer(w->b.link));
    assert_null(link_peer_key(w->b.link));
}

static void test_join_links_carry_frames(void **state)
{
    struct world *w = *state;

    w->a.setup.kind = LINK_JOIN;
    memset(w->b.setup.hello.cluster_key, 7, LINK_CLUSTER_KEY);
    memset(w->b.setup.hello.cert, 9, LINK_CERT);
    bring_up(w);
    assert_int_equal(w->a.vets, 1);
    assert_int_equal(link_kind(w->b.link), LINK_JOIN);
    assert_memory_equal(link_peer(w->a.link)->cluster_key, w->b.setup.hello.cluster_key, LINK_CLUSTER_KEY);
    assert_memory_equal(link_peer(w->a.link)->cert, w->b.setup.hello.cert, LINK_CERT);
    w->a.on_frame = stop;
    assert_int_equal(link_send(w->b.link, LINK_FRAME_USER + 1, "in", 2), 0);
    run(w);
    assert_memory_equal(w->a.body, "in", 2);
}

static void test_wrong_secret(void **state)
{
    struct world *w = *state;

    w->a.psk[0] ^= 1;
    w->a.on_down = w->b.on_down = stop_when_both_down;
    dial(w);
    run(w);
    expect_end(&w->b, LINK_END_BAD_MAC, "does not know this cluster's secret");
    expect_end(&w->a, LINK_END_HANDSHAKE, "another cluster");
    assert_int_equal(w->a.hellos + w->b.hellos, 0);
    assert_null(link_peer(w->b.link));
}

static void test_suite_falls_back(void **state)
{
    struct world *w = *state;
    struct link_stats stats;

    w->b.setup.hello.seal.suites = 1 << SEAL_CHACHA20_POLY1305;
    bring_up(w);
    link_stats(w->a.link, &stats);
    assert_int_equal(stats.suite, SEAL_CHACHA20_POLY1305);
    link_stats(w->b.link, &stats);
    assert_int_equal(stats.suite, SEAL_CHACHA20_POLY1305);
}

/* What both ends say together decides, and for both. */
static void test_suite_that_costs_less(void **state)
{
    struct world *w = *state;
    struct link_stats a, b;

    w->a.setup.hello.seal = (struct seal_offer){.chacha_ps = 400, .aes_ps = 300};
    w->b.setup.hello.seal = (struct seal_offer){.chacha_ps = 256, .aes_ps = 357};
    bring_up(w);
    link_stats(w->a.link, &a);
    link_stats(w->b.link, &b);
    assert_int_equal(a.suite, SEAL_CHACHA20_POLY1305);
    assert_int_equal(b.suite, SEAL_CHACHA20_POLY1305);
}

static void test_nobody_listens(void **state)
{
    struct world *w = *state;
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof sin;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof sin),
                     0); /* bound, not listening: a port surely refused */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
    w->a.on_down = stop;
    assert_int_equal(link_dial(&w->a.link, &w->a.setup, "127.0.0.1", ntohs(sin.sin_port)), 0);
    assert_int_equal(link_send(w->a.link, LINK_FRAME_USER, "x", 1), -ENOTCONN);
    run(w);
    expect_end(&w->a, LINK_END_CONNECT, "Connection refused");
    close(fd);
}

static void test_unknown_host(void **state)
{
    struct world *w = *state;

    w->a.on_down = stop;
    assert_int_equal(link_dial(&w->a.link, &w->a.setup, "no such host", 1), 0);
    assert_int_equal(w->a.downs, 0);
    run(w);
    expect_end(&w->a, LINK_END_CONNECT, "cannot resolve \"no such host\"");
}

/* localhost may be ::1 first while the listener is on 127.0.0.1: the next address is tried. */
static void test_name_with_several_addresses(void **state)
{
    struct world *w = *state;

    w->a.on_up = w->b.on_up = stop_when_both_up;
    w->a.on_down = stop;
    assert_int_equal(link_dial(&w->a.link, &w->a.setup, "localhost", w->port), 0);
    run(w);
    assert_int_equal(w->a.ups, 1);
}

/* --- data connections ------------------------------------------------------------------------- */

static void detach_here(struct side *side)
{
    struct link *link = side->link;

    side->link = NULL;
    assert_int_equal(link_detach(link, &side->fd, &side->tx, &side->rx), 0);
}

static void send_record(struct side *side, const char *text)
{
    uint8_t record[SEAL_HEAD + 64 + SEAL_TAG];
    size_t n = strlen(text) + 1;

    assert_int_equal(seal_seal(&side->tx, record, (const uint8_t *)text, n), 0);
    write_all(side->fd, record, SEAL_HEAD + n + SEAL_TAG);
}

static void expect_record(struct side *side, const char *text)
{
    uint8_t head[SEAL_HEAD], body[64 + SEAL_TAG];
    size_t n;

    read_all(side->fd, head, sizeof head);
    assert_int_equal(seal_length(head, &n), 0);
    assert_in_range(n, 1, 64);
    read_all(side->fd, body, n + SEAL_TAG);
    assert_int_equal(seal_open(&side->rx, head, body, n, body + n), 0);
    assert_string_equal((char *)body, text);
}

static void detach_and_send(struct side *side)
{
    detach_here(side);
    send_record(side, "first word");
    send_record(side, "second word");
    stop_when_both_up(side);
}

static void detach_when_told(struct side *side)
{
    stop_when_both_up(side);
}

/* One end detaches inside `up` and sends at once; the other detaches only later. Nothing may be
 * lost between them. */
static void test_detach(void **state)
{
    for (int who = 0; who < 2; who++) {
        struct world *w;
        struct side *eager, *late;

        if (who > 0)
            world_setup(state);
        w = *state;
        eager = who == 0 ? &w->a : &w->b;
        late = who == 0 ? &w->b : &w->a;
        w->a.setup.kind = LINK_DATA;
        w->a.setup.hello.job = 77;
        w->a.setup.hello.dim = 4096;
        snprintf(w->a.setup.hello.fingerprint, sizeof w->a.setup.hello.fingerprint,
                 "0123456789abcdef0123456789abcdef");
        eager->on_up = detach_and_send;
        late->on_up = detach_when_told;
        dial(w);
        run(w);
        assert_int_equal(link_kind(late->link), LINK_DATA);
        if (who == 0) {
            assert_int_equal(link_peer(late->link)->job, 77);
            assert_int_equal(link_peer(late->link)->dim, 4096);
        }
        assert_int_equal(link_send(late->link, LINK_FRAME_USER, "x", 1), -ENOTCONN);
        event_base_loop(w->base, EVLOOP_NONBLOCK); /* the words have arrived; the link must not take them */
        detach_here(late);
        assert_int_equal(fcntl(late->fd, F_GETFL) & O_NONBLOCK, 0);
        assert_int_equal(fcntl(eager->fd, F_GETFL) & O_NONBLOCK, 0);
        expect_record(late, "first word");
        expect_record(late, "second word");
        send_record(late, "an answer");
        expect_record(eager, "an answer");
        assert_int_equal(w->a.downs + w->b.downs, 0);
        if (who == 0)
            world_teardown(state);
    }
}

static void test_control_is_not_detached(void **state)
{
    struct world *w = *state;

    bring_up(w);
    assert_int_equal(link_detach(w->a.link, &w->a.fd, &w->a.tx, &w->a.rx), -ENOTCONN);
    assert_int_equal(link_state(w->a.link), LINK_UP);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(link_end_name(LINK_END_BAD_MAC), "bad-mac");
    assert_string_equal(link_end_name(LINK_END_LOCAL), "local");
    assert_string_equal(link_end_name((enum link_end)99), "unknown");
    assert_string_equal(link_state_name(LINK_HELLO), "hello");
    assert_string_equal(link_state_name((enum link_state)99), "unknown");
    link_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_comes_up),
        TEST(test_frames_of_all_sizes),
        TEST(test_send_limits),
        TEST(test_heartbeats),
        TEST(test_refusal),
        TEST(test_version),
        TEST(test_wrong_secret),
        TEST(test_several_secrets),
        TEST(test_none_of_several_secrets),
        TEST(test_vetting),
        TEST(test_join_links_carry_frames),
        TEST(test_suite_falls_back),
        TEST(test_suite_that_costs_less),
        TEST(test_nobody_listens),
        TEST(test_unknown_host),
        TEST(test_name_with_several_addresses),
        TEST(test_detach),
        TEST(test_control_is_not_detached),
        cmocka_unit_test(test_names),
    };

    signal(SIGPIPE, SIG_IGN);
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
