/* SPDX-License-Identifier: MIT
 *
 * Cursors and messages of protocol 1: round trips, every truncation, every bit flip, the document's
 * examples.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/buf.h"
#include "net/wire.h"
#include "tests/lib/protocol_doc.h"

static void test_cursors(void **state)
{
    uint8_t data[15 + 3], back[3];
    struct buf_out out;
    struct buf_in in;

    (void)state;
    buf_out_init(&out, data, sizeof data);
    buf_out_u8(&out, 0x01);
    buf_out_u16(&out, 0x0302);
    buf_out_u32(&out, 0x07060504);
    buf_out_u64(&out, UINT64_C(0x0f0e0d0c0b0a0908));
    buf_out_bytes(&out, "end", 3);
    assert_int_equal(buf_out_size(&out), sizeof data);
    for (size_t i = 0; i < 15; i++)
        assert_int_equal(data[i], i + 1); /* little-endian */
    buf_out_u8(&out, 1);
    assert_int_equal(buf_out_size(&out), -ENOBUFS);
    buf_out_bytes(&out, "", 0);
    assert_int_equal(buf_out_size(&out), -ENOBUFS); /* sticky */

    buf_in_init(&in, data, sizeof data);
    assert_int_equal(buf_in_u8(&in), 0x01);
    assert_int_equal(buf_in_u16(&in), 0x0302);
    assert_int_equal(buf_in_u32(&in), 0x07060504);
    assert_true(buf_in_u64(&in) == UINT64_C(0x0f0e0d0c0b0a0908));
    assert_false(buf_in_is_done(&in));
    buf_in_bytes(&in, back, 3);
    assert_memory_equal(back, "end", 3);
    assert_true(buf_in_is_done(&in));
    assert_int_equal(buf_in_u32(&in), 0);
    assert_false(buf_in_is_done(&in));

    buf_in_init(&in, data, 3); /* too short for a u32: bad, and bad it stays */
    assert_int_equal(buf_in_u32(&in), 0);
    assert_int_equal(buf_in_u8(&in), 0);
    assert_null(buf_in_view(&in, 1));
    buf_in_bytes(&in, back, 3);
    assert_memory_equal(back, "\0\0\0", 3);
    buf_in_init(&in, NULL, 0);
    assert_true(buf_in_is_done(&in));
}

static void test_a_copied_text_is_cut_at_a_character(void **state)
{
    static const struct {
        const char *from, *to;
        size_t size;
    } cases[] = {
        {"plain", "plain", 16},
        {"plain", "pla", 4},
        {"a\xe2\x82\xac", "a\xe2\x82\xac", 5},
        {"a\xe2\x82\xac"
         "b",
         "a", 4},
        {"\x1b[2J", "?[2J", 16},
        {"\xc2\x9b"
         "2J",
         "??2J", 16},
        {"a\xe2\x82", "a??", 16},
        {"\xff\xfe", "??", 16},
        {"x", "", 1},
        {"", "", 1},
    };
    char to[16];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(to, 'z', sizeof to);
        wire_copy_text(to, cases[i].size, cases[i].from);
        assert_string_equal(to, cases[i].to);
        assert_true(wire_is_text(to, strlen(to)));
    }
}

static struct link_hello example(void)
{
    struct link_hello h = {.name = "anna",
                           .version = "0.1.0",
                           .proto_min = 1,
                           .proto_max = 2,
                           .seal = {.suites = 6, .chacha_ps = 256, .aes_ps = 357},
                           .listen_port = 17464,
                           .boot = UINT64_C(0x1122334455667788),
                           .job = 77,
                           .from_rank = 1,
                           .to_rank = 2,
                           .fingerprint = "00112233445566778899aabbccddeeff",
                           .dim = 4096};

    for (size_t i = 0; i < 16; i++) {
        h.node_id[i] = (uint8_t)i;
        h.head_id[i] = (uint8_t)(0xf0 + i);
    }
    return h;
}

static int encode(const struct link_hello *h, enum link_kind kind, uint8_t *out)
{
    int n = wire_hello_encode(h, kind, out, WIRE_HELLO_MAX);

    assert_true(n > 0);
    return n;
}

static void test_hello_round_trip(void **state)
{
    uint8_t data[WIRE_HELLO_MAX];
    struct link_hello h = example(), back;
    const char *what = "";
    int n = encode(&h, LINK_DATA, data);

    (void)state;
    memset(&back, 0xff, sizeof back);
    assert_int_equal(wire_hello_decode(data, (size_t)n, LINK_DATA, &back, &what), 0);
    assert_string_equal(back.name, "anna");
    assert_string_equal(back.fingerprint, h.fingerprint);
    assert_memory_equal(back.head_id, h.head_id, 16);
    assert_true(back.job == 77 && back.dim == 4096 && back.to_rank == 2 && back.boot == h.boot &&
                back.seal.suites == 6 && back.seal.chacha_ps == 256 && back.seal.aes_ps == 357);
    assert_true(protocol_doc_shows("hello-data", data, (size_t)n));

    n = encode(&h, LINK_CONTROL, data);
    assert_true(protocol_doc_shows("hello-control", data, (size_t)n));
    assert_int_equal(wire_hello_decode(data, (size_t)n, LINK_CONTROL, &back, &what), 0);
    assert_int_equal(back.job, 0);
    assert_int_equal(wire_hello_decode(data, (size_t)n, LINK_DATA, &back, &what), -EPROTO);
    assert_string_equal(what, "job");
    for (size_t cap = 0; cap < (size_t)n; cap++)
        assert_int_equal(wire_hello_encode(&h, LINK_CONTROL, data, cap), -ENOBUFS);
}

/* Certificates may be left out, and the cluster's key travels on join links alone. */
static void test_hello_credentials(void **state)
{
    uint8_t data[WIRE_HELLO_MAX];
    struct link_hello h = example(), back;
    const char *what = "";
    int bare = encode(&h, LINK_CONTROL, data), n;

    (void)state;
    memset(h.cert, 0xce, sizeof h.cert);
    memset(h.cluster_key, 0xcc, sizeof h.cluster_key);
    n = encode(&h, LINK_CONTROL, data);
    assert_int_equal(n, bare + 4 + LINK_CERT);
    assert_int_equal(wire_hello_decode(data, (size_t)n, LINK_CONTROL, &back, &what), 0);
    assert_memory_equal(back.cert, h.cert, sizeof h.cert);
    n = encode(&h, LINK_JOIN, data);
    assert_int_equal(n, bare + 4 + LINK_CERT + 4 + LINK_CLUSTER_KEY);
    assert_int_equal(wire_hello_decode(data, (size_t)n, LINK_JOIN, &back, &what), 0);
    assert_memory_equal(back.cluster_key, h.cluster_key, sizeof h.cluster_key);
    for (size_t short_n = 0; short_n < (size_t)n - 4 - LINK_CLUSTER_KEY; short_n++)
        assert_true(wire_hello_decode(data, short_n, LINK_JOIN, &back, &what) < 0 || short_n == (size_t)bare);
}

static void test_hello_damage(void **state)
{
    uint8_t data[WIRE_HELLO_MAX], copy[WIRE_HELLO_MAX];
    struct link_hello h = example(), back, before;
    const char *what;
    int n = encode(&h, LINK_DATA, data);

    (void)state;
    memset(&before, 0x5a, sizeof before);
    for (int len = 0; len < n; len++) {
        uint8_t *exact = malloc((size_t)len + 1); /* so that a sanitizer sees one byte too far */

        memcpy(exact, data, (size_t)len);
        memcpy(&back, &before, sizeof back);
        what = NULL;
        assert_int_equal(wire_hello_decode(exact, (size_t)len, LINK_DATA, &back, &what), -EPROTO);
        assert_memory_equal(&back, &before, sizeof back); /* untouched */
        assert_non_null(what);
        free(exact);
    }
    for (int bit = 0; bit < 8 * n; bit++) {
        memcpy(copy, data, sizeof copy);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        memcpy(&back, &before, sizeof back);
        if (wire_hello_decode(copy, (size_t)n, LINK_DATA, &back, &what) < 0)
            assert_memory_equal(&back, &before, sizeof back);
        else
            assert_memory_not_equal(&back, &h, sizeof h);
    }
}

static int decode_with(const uint8_t *extra, size_t n, const char **what)
{
    uint8_t data[WIRE_HELLO_MAX];
    struct link_hello h = example(), back;
    int len = encode(&h, LINK_CONTROL, data);

    memcpy(data + len, extra, n);
    return wire_hello_decode(data, (size_t)len + n, LINK_CONTROL, &back, what);
}

static void test_hello_tlvs(void **state)
{
    const char *what = "";

    (void)state;
    assert_int_equal(decode_with((const uint8_t *)"\x63\x00\x03\x00xyz", 7, &what), 0); /* unknown: skipped */
    assert_int_equal(decode_with((const uint8_t *)"\x63\x80\x00\x00", 4, &what),
                     -EPROTO); /* unknown and critical */
    assert_string_equal(what, "a field this version does not know");
    assert_int_equal(decode_with((const uint8_t *)"\x06\x00\x01\x00\x06", 5, &what), -EPROTO); /* twice */
    assert_string_equal(what, "seal.suites");
    assert_int_equal(decode_with((const uint8_t *)"\x63\x00\x04\x00xyz", 7, &what),
                     -EPROTO); /* longer than there is */
    assert_string_equal(what, "its length");
    assert_int_equal(decode_with((const uint8_t *)"\x15\x00\x04\x00\x00\x10\x00\x00", 8, &what),
                     0); /* data field: allowed */
}

static void test_hello_texts(void **state)
{
    static const char *const bad[] = {"a\nb",
                                      "a\x1b[31m",
                                      "\x7f",
                                      "\xc2\x85",
                                      "\xff",
                                      "\xc0\x80",
                                      "\xc3",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf0\x80\x80\x80",
                                      "\x80",
                                      "\xe2\x82",
                                      "\xf8\x88\x80\x80\x80"};
    uint8_t data[WIRE_HELLO_MAX];
    struct link_hello h = example(), back;
    const char *what = "";
    int n;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(h.name, sizeof h.name, "%s", bad[i]);
        assert_int_equal(wire_hello_encode(&h, LINK_CONTROL, data, sizeof data), -EINVAL);
        h = example();
        snprintf(h.name, sizeof h.name, "%.*s", (int)strlen(bad[i]), "xxxxxxxx");
        n = encode(&h, LINK_CONTROL, data);
        memcpy(data + 24, bad[i], strlen(bad[i])); /* after node_id's 20 bytes and the name's head */
        assert_int_equal(wire_hello_decode(data, (size_t)n, LINK_CONTROL, &back, &what), -EPROTO);
        assert_string_equal(what, "name");
    }
    snprintf(h.name, sizeof h.name, "%s", "Zürich-\xe2\x82\xac-\xf0\x9f\x92\x8d");
    n = encode(&h, LINK_CONTROL, data);
    assert_int_equal(wire_hello_decode(data, (size_t)n, LINK_CONTROL, &back, &what), 0);
    assert_string_equal(back.name, h.name);
    h.proto_min = 3;
    n = encode(&h, LINK_CONTROL, data);
    assert_int_equal(wire_hello_decode(data, (size_t)n, LINK_CONTROL, &back, &what), -EPROTO);
    assert_string_equal(what, "proto_min above proto_max");
}

static void test_opening(void **state)
{
    struct wire_opening o = {LINK_CONTROL, 1, 2}, back = {0};
    uint8_t data[WIRE_OPENING + 1] = {0};

    (void)state;
    assert_int_equal(wire_opening_encode(&o, data, WIRE_OPENING - 1), -ENOBUFS);
    assert_int_equal(wire_opening_encode(&o, data, sizeof data), WIRE_OPENING);
    assert_true(protocol_doc_shows("opening", data, WIRE_OPENING));
    for (size_t n = 0; n <= sizeof data; n++)
        assert_int_equal(wire_opening_decode(data, n, &back), n == WIRE_OPENING ? 0 : -EPROTO);
    assert_true(back.kind == LINK_CONTROL && back.proto_min == 1 && back.proto_max == 2);
    data[0] = LINK_JOIN;
    assert_int_equal(wire_opening_decode(data, WIRE_OPENING, &back), 0);
    data[0] = 4;
    assert_int_equal(wire_opening_decode(data, WIRE_OPENING, &back), -EPROTO);
    data[0] = 0;
    assert_int_equal(wire_opening_decode(data, WIRE_OPENING, &back), -EPROTO);
    data[0] = LINK_DATA;
    data[1] = 3; /* 3 to 2 */
    assert_int_equal(wire_opening_decode(data, WIRE_OPENING, &back), -EPROTO);
}

static void test_frame_head(void **state)
{
    struct wire_frame f = {LINK_FRAME_USER + 3, true, 70000}, back;
    uint8_t data[WIRE_FRAME_HEAD], copy[WIRE_FRAME_HEAD];

    (void)state;
    wire_frame_encode(&f, data);
    assert_true(protocol_doc_shows("frame-head", data, sizeof data));
    for (size_t n = 0; n < sizeof data; n++)
        assert_int_equal(wire_frame_decode(data, n, &back), -EPROTO);
    assert_int_equal(wire_frame_decode(data, sizeof data, &back), 0);
    assert_true(back.type == f.type && back.last && back.length == f.length);
    for (int bit = 0; bit < 64; bit++) { /* a flip is refused, or gives back exactly what was read */
        uint8_t again[WIRE_FRAME_HEAD];

        memcpy(copy, data, sizeof copy);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (wire_frame_decode(copy, sizeof copy, &back) < 0)
            continue;
        assert_true(bit < 9 ||
                    bit >= 32); /* type, flag or length: never unknown flags or the reserved bytes */
        wire_frame_encode(&back, again);
        assert_memory_equal(again, copy, sizeof copy);
    }
    f.length = LINK_FRAME_MAX + 1;
    wire_frame_encode(&f, data);
    assert_int_equal(wire_frame_decode(data, sizeof data, &back), -EPROTO);
}

static void test_table(void **state)
{
    (void)state;
    assert_null(wire_message_find(0));
    assert_null(wire_message_find(LINK_FRAME_USER - 1));
    assert_string_equal(wire_message_find(WIRE_BYE)->name, "goodbye");
    assert_int_equal(wire_message_find(255)->max, LINK_FRAME_MAX);
    for (int type = 0; type < 256; type++)
        if (wire_message_find((uint8_t)type))
            assert_false(wire_message_find((uint8_t)type)->states & 1 << LINK_HANDSHAKE);
}

static void test_beat(void **state)
{
    static uint8_t big[WIRE_BEAT_HEAD + WIRE_BEAT_MAX + 1];
    struct wire_beat b = {1000000, 2000000, 250, (const uint8_t *)"idle", 4}, back;
    uint8_t data[64];
    int n = wire_beat_encode(&b, data, sizeof data);

    (void)state;
    assert_int_equal(n, WIRE_BEAT_HEAD + 4);
    assert_true(protocol_doc_shows("heartbeat", data, (size_t)n));
    assert_int_equal(wire_beat_decode(data, (size_t)n, &back), 0);
    assert_true(back.sent_us == 1000000 && back.echo_us == 2000000 && back.hold_us == 250 && back.n == 4);
    assert_memory_equal(back.body, "idle", 4);
    for (size_t len = 0; len < WIRE_BEAT_HEAD; len++)
        assert_int_equal(wire_beat_decode(data, len, &back), -EPROTO);
    assert_int_equal(wire_beat_decode(data, WIRE_BEAT_HEAD, &back), 0);
    assert_int_equal(back.n, 0);
    assert_int_equal(wire_beat_decode(big, sizeof big - 1, &back), 0);
    assert_int_equal(wire_beat_decode(big, sizeof big, &back), -EPROTO);
    b.body = big;
    b.n = WIRE_BEAT_MAX + 1;
    assert_int_equal(wire_beat_encode(&b, big, sizeof big), -EMSGSIZE);
    assert_int_equal(wire_beat_encode(&b, data, 10), -EMSGSIZE);
    b.n = 4;
    assert_int_equal(wire_beat_encode(&b, data, WIRE_BEAT_HEAD + 3), -ENOBUFS);
}

static void test_bye(void **state)
{
    char text[2 * WIRE_TEXT_MAX];
    uint8_t data[WIRE_TEXT_MAX + 2];
    struct wire_bye back;
    int n = wire_bye_encode(WIRE_BYE_REFUSED, "not in the roster", data, sizeof data);

    (void)state;
    assert_int_equal(n, 18);
    assert_true(protocol_doc_shows("goodbye", data, (size_t)n));
    assert_int_equal(wire_bye_decode(data, 0, &back), -EPROTO);
    for (size_t len = 1; len <= (size_t)n;
         len++) { /* a text has no end mark: each shorter one is a text too */
        assert_int_equal(wire_bye_decode(data, len, &back), 0);
        assert_int_equal(back.code, WIRE_BYE_REFUSED);
        assert_int_equal(strlen(back.text), len - 1);
    }
    assert_string_equal(back.text, "not in the roster");
    memset(data, 'x', sizeof data);
    assert_int_equal(wire_bye_decode(data, WIRE_TEXT_MAX + 1, &back), 0);
    assert_int_equal(wire_bye_decode(data, WIRE_TEXT_MAX + 2, &back), -EPROTO);
    memcpy(data, "\x01ok\n\x1b[\xffü\0z", 10);
    assert_int_equal(wire_bye_decode(data, 10, &back), 0);
    assert_string_equal(back.text, "ok??[?ü?");

    memset(text, 'a', sizeof text); /* cut before the two bytes of ü, not between them */
    memcpy(text + WIRE_TEXT_MAX - 1, "ü", 2);
    text[sizeof text - 1] = '\0';
    assert_int_equal(wire_bye_encode(WIRE_BYE_LEFT, text, data, sizeof data), WIRE_TEXT_MAX);
    assert_int_equal(wire_bye_encode(WIRE_BYE_LEFT, "text", data, 4), -ENOBUFS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copied_text_is_cut_at_a_character),
        cmocka_unit_test(test_cursors),
        cmocka_unit_test(test_hello_round_trip),
        cmocka_unit_test(test_hello_credentials),
        cmocka_unit_test(test_hello_damage),
        cmocka_unit_test(test_hello_tlvs),
        cmocka_unit_test(test_hello_texts),
        cmocka_unit_test(test_opening),
        cmocka_unit_test(test_frame_head),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_beat),
        cmocka_unit_test(test_bye),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
