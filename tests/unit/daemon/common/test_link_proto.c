/* SPDX-License-Identifier: MIT
 *
 * Packets between ringd and ringd-link: there and back, cut, damaged, and held against written-out
 * bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/common/link_proto.h"

static struct prefix parsed(const char *text)
{
    struct prefix p;

    assert_int_equal(prefix_parse(&p, text), 0);
    return p;
}

static const struct {
    enum rlink_verb verb;
    uint32_t ifindex, value;
    const char *addr;
} good[] = {
    {RLINK_SCOPE, 0, 0, "fd12:3456:789a::/48"},
    {RLINK_SCOPE, 0, 0, "10.98.0.0/16"},
    {RLINK_SET_UP, 7, 0, NULL},
    {RLINK_SET_MTU, 7, 65520, NULL},
    {RLINK_LINK_LOCAL, 7, 0, NULL},
    {RLINK_ADDR_ADD, 7, 120, "fd12:3456:789a:7262:1:2:3:4/127"},
    {RLINK_ADDR_ADD, INT32_MAX, 1, "10.98.255.255/31"},
    {RLINK_ADDR_DEL, 7, 0, "fd12:3456:789a:7262:1:2:3:5/127"},
    {RLINK_LIST, 0, 0, NULL},
};
enum { GOOD = sizeof good / sizeof *good };

static struct rlink_request good_request(size_t i)
{
    struct rlink_request r = {
        .verb = good[i].verb, .seq = 0x01020304, .ifindex = good[i].ifindex, .value = good[i].value};

    if (good[i].addr)
        r.addr = parsed(good[i].addr);
    return r;
}

static void test_request_bytes(void **state)
{
    static const uint8_t want[RLINK_REQUEST] = {1,    4,    6, 127, 4, 3,    2,    1,    7,    0,    0,
                                                0,    120,  0, 0,   0, 0xfd, 0x12, 0x34, 0x56, 0x78, 0x9a,
                                                0x72, 0x62, 0, 1,   0, 2,    0,    3,    0,    4};
    struct rlink_request r = good_request(5);
    uint8_t out[RLINK_REQUEST];

    (void)state;
    rlink_request_encode(&r, out);
    assert_memory_equal(out, want, sizeof want);
}

static void test_request_round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOOD; i++) {
        struct rlink_request r = good_request(i), back;
        uint8_t out[RLINK_REQUEST + 1] = {0};
        const char *what = NULL;

        rlink_request_encode(&r, out);
        assert_int_equal(rlink_request_decode(out, RLINK_REQUEST, &back, &what), 0);
        assert_int_equal(back.verb, r.verb);
        assert_int_equal(back.seq, r.seq);
        assert_int_equal(back.ifindex, r.ifindex);
        assert_int_equal(back.value, r.value);
        assert_true(prefix_equal(&back.addr, &r.addr));
        for (size_t n = 0; n <= RLINK_REQUEST + 1; n++)
            assert_int_equal(rlink_request_decode(out, n, &back, &what), n == RLINK_REQUEST ? 0 : -EPROTO);
    }
}

/* Every value of every byte: what is taken means itself again, what is refused leaves the output
 * alone. */
static void test_request_damage(void **state)
{
    (void)state;
    for (size_t i = 0; i < GOOD; i++)
        for (size_t at = 0; at < RLINK_REQUEST; at++)
            for (unsigned v = 0; v < 256; v++) {
                struct rlink_request r = good_request(i), back = {.seq = 99};
                uint8_t out[RLINK_REQUEST], again[RLINK_REQUEST];
                const char *what = NULL;

                rlink_request_encode(&r, out);
                out[at] = (uint8_t)v;
                if (rlink_request_decode(out, sizeof out, &back, &what) == 0) {
                    rlink_request_encode(&back, again);
                    assert_memory_equal(out, again, sizeof out);
                } else {
                    assert_int_equal(back.seq, 99);
                    assert_non_null(what);
                }
            }
}

static void test_request_ranges(void **state)
{
    static const struct {
        enum rlink_verb verb;
        uint32_t ifindex, value;
        const char *addr;
    } bad[] = {
        {0, 0, 0, NULL},
        {7, 0, 0, NULL},
        {RLINK_SCOPE, 0, 0, NULL},
        {RLINK_SCOPE, 1, 0, "10.98.0.0/16"},
        {RLINK_SCOPE, 0, 0, "10.98.0.1/16"},
        {RLINK_SCOPE, 0, 0, "8.8.8.0/24"},
        {RLINK_SCOPE, 0, 0, "10.0.0.0/7"},
        {RLINK_SCOPE, 0, 0, "0.0.0.0/0"},
        {RLINK_SCOPE, 0, 0, "::/0"},
        {RLINK_SCOPE, 0, 0, "fd00::/8"},
        {RLINK_SCOPE, 0, 0, "2001:db8::/48"},
        {RLINK_SCOPE, 0, 0, "fc00::/48"},
        {RLINK_SET_UP, 0, 0, NULL},
        {RLINK_SET_UP, 7, 1, NULL},
        {RLINK_SET_UP, 0x80000000, 0, NULL},
        {RLINK_SET_UP, 7, 0, "10.98.0.1/31"},
        {RLINK_SET_MTU, 7, 1279, NULL},
        {RLINK_SET_MTU, 7, 65536, NULL},
        {RLINK_ADDR_ADD, 7, 0, "10.98.0.1/31"},
        {RLINK_ADDR_ADD, 7, UINT32_MAX, "10.98.0.1/31"}, /* for good */
        {RLINK_ADDR_ADD, 7, 120, "10.98.0.1/30"},
        {RLINK_ADDR_ADD, 7, 120, "fd00::1/64"},
        {RLINK_ADDR_ADD, 7, 120, NULL},
        {RLINK_ADDR_ADD, 0, 120, "10.98.0.1/31"},
        {RLINK_ADDR_DEL, 7, 3, "10.98.0.1/31"},
        {RLINK_LIST, 7, 0, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rlink_request r = {.verb = bad[i].verb, .ifindex = bad[i].ifindex, .value = bad[i].value},
                             back;
        uint8_t out[RLINK_REQUEST];
        const char *what = NULL;

        if (bad[i].addr)
            r.addr = parsed(bad[i].addr);
        rlink_request_encode(&r, out);
        if (rlink_request_decode(out, sizeof out, &back, &what) != -EPROTO)
            fail_msg("case %zu was taken", i);
        assert_non_null(what);
    }
}

static void test_reply(void **state)
{
    struct rlink_reply r = {.to = good_request(4), .code = RLINK_NOT_OURS, .text = "it stays: déjà là"}, back;
    uint8_t out[RLINK_REPLY + 1] = {0};

    (void)state;
    rlink_reply_encode(&r, out);
    for (size_t n = 0; n <= sizeof out; n++)
        assert_int_equal(rlink_reply_decode(out, n, &back), n == RLINK_REPLY ? 0 : -EPROTO);
    assert_int_equal(back.code, RLINK_NOT_OURS);
    assert_int_equal(back.to.seq, r.to.seq);
    assert_string_equal(back.text, r.text);
    for (size_t at = 0; at < RLINK_REPLY; at++)
        for (unsigned v = 0; v < 256; v++) {
            uint8_t damaged[RLINK_REPLY], again[RLINK_REPLY];

            memcpy(damaged, out, sizeof damaged);
            damaged[at] = (uint8_t)v;
            back.code = RLINK_DENIED;
            if (rlink_reply_decode(damaged, sizeof damaged, &back) == 0) {
                rlink_reply_encode(&back, again);
                assert_memory_equal(damaged, again, sizeof again);
            } else {
                assert_int_equal(back.code, RLINK_DENIED);
            }
        }
    /* a text of any length is cut to fit; a request that could not be read has no verb */
    memset(r.text, 'x', sizeof r.text);
    r.to = (struct rlink_request){0};
    rlink_reply_encode(&r, out);
    assert_int_equal(rlink_reply_decode(out, RLINK_REPLY, &back), 0);
    assert_int_equal(strlen(back.text), RLINK_TEXT - 1);
    assert_int_equal(back.to.verb, 0);
}

static void test_names(void **state)
{
    (void)state;
    for (int verb = RLINK_SCOPE; verb <= RLINK_LINK_LOCAL; verb++)
        assert_non_null(rlink_verb_name((enum rlink_verb)verb));
    assert_null(rlink_verb_name((enum rlink_verb)0));
    assert_null(rlink_verb_name((enum rlink_verb)(RLINK_LINK_LOCAL + 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_bytes),  cmocka_unit_test(test_request_round_trip),
        cmocka_unit_test(test_request_damage), cmocka_unit_test(test_request_ranges),
        cmocka_unit_test(test_reply),          cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
