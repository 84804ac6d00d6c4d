/* SPDX-License-Identifier: MIT
 *
 * A link against peers played by hand over a socketpair: strangers without the secret, and members
 * that misbehave. */
#include "tests/unit/net/link_world.h"
#include "tests/lib/own_keys.h"

/* --- peers played by hand --------------------------------------------------------------------- */

static int accept_from_hand(struct world *w)
{
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    w->b.on_down = stop;
    assert_int_equal(link_accept(&w->b.link, &w->b.setup, fd[0]), 0);
    return fd[1];
}

static void test_garbage(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", tiny[] = "\x05\x00hello";
    struct world *w = *state;
    uint8_t junk[2 + 64];
    char back;
    int fd = accept_from_hand(w);

    write_all(fd, (const uint8_t *)http, sizeof http);
    run(w);
    expect_end(&w->b, LINK_END_HANDSHAKE, "does not speak ringd's handshake");
    assert_true(read(fd, &back, 1) <= 0); /* silence: closed without a byte */
    close(fd);
    link_free(w->b.link);
    w->b.downs = 0;

    fd = accept_from_hand(w);
    write_all(fd, (const uint8_t *)tiny, sizeof tiny);
    run(w);
    expect_end(&w->b, LINK_END_HANDSHAKE, "does not speak ringd's handshake");
    close(fd);
    link_free(w->b.link);
    w->b.downs = 0;

    fd = accept_from_hand(w);
    memset(junk, 9, sizeof junk);
    junk[0] = 64;
    junk[1] = 0;
    write_all(fd, junk, sizeof junk);
    run(w);
    expect_end(&w->b, LINK_END_BAD_MAC, "a local socket does not know this cluster's secret");
    assert_true(read(fd, &back, 1) <= 0);
    close(fd);
}

static void test_silent_stranger(void **state)
{
    struct world *w = *state;
    int fd;

    w->b.setup.handshake_us = 30000;
    fd = accept_from_hand(w);
    run(w);
    expect_end(&w->b, LINK_END_TIMEOUT, "did not finish the handshake");
    close(fd);
}

static void test_stranger_hangs_up(void **state)
{
    struct world *w = *state;
    int fd = accept_from_hand(w);

    write_all(fd, (const uint8_t *)"\x40", 1);
    close(fd);
    run(w);
    expect_end(&w->b, LINK_END_HANDSHAKE, "closed the connection during the handshake");
}

/* A member of the cluster played by hand over b's socketpair: the whole handshake and hello, then
 * whatever the test likes. */
struct hand {
    int fd;
    struct auth_identity id;
    struct auth *auth;
    struct seal tx, rx;
};

static void hand_say(struct hand *h, const uint8_t *payload, size_t n)
{
    uint8_t msg[2 + AUTH_MAX_MESSAGE];
    int r = auth_write(h->auth, msg + 2, AUTH_MAX_MESSAGE, payload, n);

    assert_true(r > 0);
    msg[0] = (uint8_t)r;
    msg[1] = (uint8_t)(r >> 8);
    write_all(h->fd, msg, 2 + (size_t)r);
}

static void turn(struct world *w)
{
    for (int i = 0; i < 4; i++)
        event_base_loop(w->base, EVLOOP_NONBLOCK);
}

static void hand_shake(struct hand *h, struct world *w, const struct link_hello *hello)
{
    uint8_t payload[AUTH_MAX_PAYLOAD], msg[AUTH_MAX_MESSAGE], prefix[2];
    struct wire_opening o = {LINK_CONTROL, 1, 1};
    struct auth_keys keys;
    size_t n;

    h->fd = accept_from_hand(w);
    assert_int_equal(auth_new(&h->auth, true, &h->id, w->b.psk, WIRE_PROLOGUE, strlen(WIRE_PROLOGUE)), 0);
    hand_say(h, payload, (size_t)wire_opening_encode(&o, payload, sizeof payload));
    turn(w);
    read_all(h->fd, prefix, 2);
    n = prefix[0] | (size_t)prefix[1] << 8;
    read_all(h->fd, msg, n);
    assert_true(auth_read(h->auth, msg, n, payload, sizeof payload) > 0);
    hand_say(h, payload, (size_t)wire_hello_encode(hello, LINK_CONTROL, payload, sizeof payload));
    assert_int_equal(auth_split(h->auth, &keys), 0);
    auth_free(h->auth);
    seal_init(&h->tx, keys.tx, SEAL_CHACHA20_POLY1305);
    seal_init(&h->rx, keys.rx, SEAL_CHACHA20_POLY1305);
}

static void hand_init(struct hand *h, struct link_hello *hello)
{
    memset(h, 0, sizeof *h);
    assert_int_equal(own_identity(&h->id), 0);
    *hello = (struct link_hello){.name = "hand",
                                 .version = "0",
                                 .proto_min = 1,
                                 .proto_max = 1,
                                 .seal = {.suites = 1 << SEAL_CHACHA20_POLY1305}};
    auth_node_id(hello->node_id, h->id.pub);
}

static void hand_record(struct hand *h, uint8_t type, bool last, uint32_t length, const void *body, size_t n)
{
    uint8_t record[SEAL_HEAD + WIRE_FRAME_HEAD + 600 + SEAL_TAG];
    struct wire_frame f = {type, last, length};

    assert_true(n <= 600);
    wire_frame_encode(&f, record + SEAL_HEAD);
    memcpy(record + SEAL_HEAD + WIRE_FRAME_HEAD, body, n);
    assert_int_equal(seal_seal(&h->tx, record, record + SEAL_HEAD, WIRE_FRAME_HEAD + n), 0);
    write_all(h->fd, record, SEAL_HEAD + WIRE_FRAME_HEAD + n + SEAL_TAG);
}

static void test_silence_of_a_member(void **state)
{
    struct world *w = *state;
    struct link_hello hello;
    struct hand h;

    w->b.setup.beat_us = 20000;
    w->b.setup.suspect_us = 30000;
    w->b.setup.dead_us = 100000;
    hand_init(&h, &hello);
    hand_shake(&h, w, &hello);
    hand_record(&h, WIRE_ACCEPT, true, 0, "", 0);
    run(w);
    assert_int_equal(w->b.ups, 1);
    expect_end(&w->b, LINK_END_SILENT, "hand (a local socket) has been silent for");
    close(h.fd);
}

static void stall(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    poll(NULL, 0, 700);
}

/* Our own loop stood still for longer than a peer may be silent: that is not held against the
 * peer. */
static void test_patience_when_late(void **state)
{
    struct world *w = *state;
    struct link_hello hello;
    struct instant begin;
    struct event *event = evtimer_new(w->base, stall, NULL);
    struct hand h;

    w->b.setup.beat_us = 20000;
    w->b.setup.dead_us = 600000;
    hand_init(&h, &hello);
    hand_shake(&h, w, &hello);
    hand_record(&h, WIRE_ACCEPT, true, 0, "", 0);
    evtimer_add(event, &(struct timeval){.tv_usec = 100000});
    begin = clock_now();
    run(w);
    expect_end(&w->b, LINK_END_SILENT, "silent");
    assert_true(clock_since_us(clock_now(), begin) > 1200000); /* not at 0.8 s, when the loop woke */
    event_free(event);
    close(h.fd);
}

static void test_hello_without_verdict(void **state)
{
    struct world *w = *state;
    struct link_hello hello;
    struct hand h;

    w->b.setup.handshake_us = 50000;
    hand_init(&h, &hello);
    hand_shake(&h, w, &hello);
    run(w);
    expect_end(&w->b, LINK_END_TIMEOUT, "did not answer our hello");
    assert_int_equal(w->b.ups, 0);
    close(h.fd);
}

static void test_stolen_node_id(void **state)
{
    struct world *w = *state;
    struct link_hello hello;
    struct hand h;

    hand_init(&h, &hello);
    hello.node_id[0] ^= 1;
    hand_shake(&h, w, &hello);
    run(w);
    expect_end(&w->b, LINK_END_PROTOCOL, "does not belong to its key");
    assert_int_equal(w->b.hellos, 0);
    close(h.fd);
}

static void test_range_changed_midway(void **state)
{
    struct world *w = *state;
    struct link_hello hello;
    struct hand h;

    hand_init(&h, &hello);
    hello.proto_max = 9;
    hand_shake(&h, w, &hello);
    run(w);
    expect_end(&w->b, LINK_END_PROTOCOL, "opened with protocols 1 to 1 and then said 1 to 9");
    close(h.fd);
}

/* What a member that is up may not send. */
static void test_bad_frames(void **state)
{
    static const struct {
        uint8_t type;
        bool last;
        uint32_t length;
        size_t n;
        const char *part;
    } bad[] = {
        {7, true, 0, 0, "unknown message (type 7)"},
        {WIRE_ACCEPT, true, 0, 0, "accept (type 2) in state up"},
        {WIRE_BEAT, true, 5, 5, "heartbeat of 5 bytes (24 to 4120 are allowed)"},
        {WIRE_BEAT, false, 300, 100, "heartbeat of 300 bytes"},
        {LINK_FRAME_USER, true, 9, 8, "is malformed"},
        {LINK_FRAME_USER, true, 7, 8, "is malformed"},
        {LINK_FRAME_USER, false, 8, 8, "is malformed"},
        {LINK_FRAME_USER, false, 8, 0, "is malformed"},
        {LINK_FRAME_USER, false, LINK_FRAME_MAX + 1, 8, "without a proper frame head"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct link_hello hello;
        struct world *w;
        struct hand h;
        uint8_t body[600] = {0};

        if (i > 0)
            world_setup(state);
        w = *state;
        hand_init(&h, &hello);
        hand_shake(&h, w, &hello);
        hand_record(&h, WIRE_ACCEPT, true, 0, "", 0);
        hand_record(&h, bad[i].type, bad[i].last, bad[i].length, body, bad[i].n);
        shutdown(h.fd, SHUT_WR); /* spares the link its wait for our end */
        run(w);
        expect_end(&w->b, LINK_END_PROTOCOL, bad[i].part);
        close(h.fd);
        if (i + 1 < sizeof bad / sizeof bad[0])
            world_teardown(state);
    }
}

/* Fragments of different frames mixed; a fragmented frame; a changed record; a record too long. */
static void test_fragments_and_records(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct link_hello hello;
        struct world *w;
        struct hand h;
        uint8_t raw[SEAL_HEAD + WIRE_FRAME_HEAD + SEAL_TAG] = {0};

        if (i > 0)
            world_setup(state);
        w = *state;
        hand_init(&h, &hello);
        hand_shake(&h, w, &hello);
        hand_record(&h, WIRE_ACCEPT, true, 0, "", 0);
        if (i < 2) {
            hand_record(&h, 40, false, 6, "abc", 3);
            hand_record(&h, i == 0 ? 40 : 41, true, 6, "def", 3);
        } else if (i == 2) {
            raw[0] = WIRE_FRAME_HEAD;
            write_all(h.fd, raw, sizeof raw);
        } else {
            memset(raw, 0xff, sizeof raw);
            write_all(h.fd, raw, sizeof raw);
        }
        w->b.on_frame = stop;
        shutdown(h.fd, SHUT_WR);
        run(w);
        if (i == 0) {
            assert_int_equal(w->b.downs, 0);
            assert_int_equal(w->b.body_len, 6);
            assert_memory_equal(w->b.body, "abcdef", 6);
        } else {
            expect_end(&w->b, i == 2 ? LINK_END_BAD_MAC : LINK_END_PROTOCOL,
                       i == 1   ? "is malformed"
                       : i == 2 ? "changed on its way"
                                : "longer than");
        }
        close(h.fd);
        if (i < 3)
            world_teardown(state);
    }
}

static void test_lost_without_goodbye(void **state)
{
    struct world *w = *state;
    struct link_hello hello;
    struct hand h;

    hand_init(&h, &hello);
    hand_shake(&h, w, &hello);
    hand_record(&h, WIRE_ACCEPT, true, 0, "", 0);
    close(h.fd);
    run(w);
    expect_end(&w->b, LINK_END_LOST, "hand (a local socket)");
}

static uint64_t sent_bytes(const struct world *w)
{
    struct link_stats stats;

    link_stats(w->a.link, &stats);
    return stats.tx_bytes;
}

/* A node that is awake sends the heartbeat that is due next, and none that has time. */
static void beat_early(struct world *w, uint64_t period_us, bool expected)
{
    static struct instant beat;
    uint64_t before;

    beat = clock_now();
    w->a.setup.beat = &beat;
    w->a.setup.beat_us = period_us;
    bring_up(w);
    before = sent_bytes(w);
    link_beat_early(w->a.link);
    event_base_loop(w->base, EVLOOP_NONBLOCK);
    assert_int_equal(sent_bytes(w) > before, expected);
}

static void test_early_heartbeat(void **state)
{
    beat_early(*state, LINK_EARLY_US / 2, true);
}

static void test_heartbeat_with_time(void **state)
{
    beat_early(*state, UINT64_C(3600000000), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_garbage),
        TEST(test_silent_stranger),
        TEST(test_stranger_hangs_up),
        TEST(test_silence_of_a_member),
        TEST(test_patience_when_late),
        TEST(test_hello_without_verdict),
        TEST(test_stolen_node_id),
        TEST(test_range_changed_midway),
        TEST(test_bad_frames),
        TEST(test_fragments_and_records),
        TEST(test_lost_without_goodbye),
        TEST(test_early_heartbeat),
        TEST(test_heartbeat_with_time),
    };

    signal(SIGPIPE, SIG_IGN);
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
