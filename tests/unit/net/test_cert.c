/* SPDX-License-Identifier: MIT
 *
 * Certificates: what is signed opens, and nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "net/cert.h"
#include "tests/lib/protocol_doc.h"

struct keys {
    uint8_t seed[CERT_SEED], pub[CERT_CLUSTER_KEY], secret[CERT_SECRET];
};

static struct keys make_keys(uint8_t fill)
{
    struct keys k;

    memset(k.seed, fill, sizeof k.seed);
    cert_cluster_keys(k.pub, k.secret, k.seed);
    return k;
}

static struct cert example(const struct keys *k)
{
    struct cert c = {.name = "anna", .serial = 7, .issued_s = 1795262400, .flags = CERT_AUTHORITY};

    cert_cluster_id(c.cluster_id, k->pub);
    memset(c.pub, 0x22, sizeof c.pub);
    return c;
}

static void test_round_trip(void **state)
{
    struct keys k = make_keys(1);
    struct cert c = example(&k), back;
    uint8_t bytes[CERT_BYTES];

    (void)state;
    assert_int_equal(cert_sign(&c, k.secret, bytes), 0);
    assert_int_equal(cert_open(bytes, sizeof bytes, k.pub, &back), 0);
    assert_memory_equal(back.cluster_id, c.cluster_id, sizeof c.cluster_id);
    assert_memory_equal(back.pub, c.pub, sizeof c.pub);
    assert_string_equal(back.name, "anna");
    assert_true(back.serial == 7 && back.issued_s == 1795262400 && back.flags == CERT_AUTHORITY);
    assert_true(protocol_doc_shows("cert", bytes, sizeof bytes));
}

static void test_any_change_is_seen(void **state)
{
    struct keys k = make_keys(1);
    struct cert c = example(&k), back = {.serial = 99};
    uint8_t bytes[CERT_BYTES + 1] = {0};

    (void)state;
    cert_sign(&c, k.secret, bytes);
    for (size_t bit = 0; bit < 8 * CERT_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_true(cert_open(bytes, CERT_BYTES, k.pub, &back) < 0);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t n = 0; n < CERT_BYTES; n++)
        assert_int_equal(cert_open(bytes, n, k.pub, &back), -EPROTO);
    assert_int_equal(cert_open(bytes, CERT_BYTES + 1, k.pub, &back), -EPROTO);
    assert_int_equal(back.serial, 99); /* untouched */
}

static void test_other_clusters_do_not_count(void **state)
{
    struct keys k = make_keys(1), other = make_keys(2);
    struct cert c = example(&k), back;
    uint8_t bytes[CERT_BYTES];

    (void)state;
    cert_sign(&c, other.secret, bytes); /* forged: our id, their signature */
    assert_int_equal(cert_open(bytes, sizeof bytes, k.pub, &back), -EBADMSG);
    assert_int_equal(cert_open(bytes, sizeof bytes, other.pub, &back), -EBADMSG);
    cert_sign(&c, k.secret, bytes);
    assert_int_equal(cert_open(bytes, sizeof bytes, other.pub, &back), -EBADMSG);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(cert_open(bytes, sizeof bytes, k.pub, &back), -EPROTO);
}

static void test_names_are_text(void **state)
{
    static const char *const bad[] = {"", "a\nb", "\x1b[2J", "\xff", "\xc0\x80"};
    struct keys k = make_keys(1);
    struct cert c = example(&k);
    uint8_t bytes[CERT_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memset(c.name, 0, sizeof c.name);
        memcpy(c.name, bad[i], strlen(bad[i]));
        assert_int_equal(cert_sign(&c, k.secret, bytes), -EINVAL);
    }
    memset(c.name, 'x', sizeof c.name);
    assert_int_equal(cert_sign(&c, k.secret, bytes), -EINVAL);
    c.name[CERT_NAME - 1] = '\0';
    assert_int_equal(cert_sign(&c, k.secret, bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_any_change_is_seen),
        cmocka_unit_test(test_other_clusters_do_not_count),
        cmocka_unit_test(test_names_are_text),
    };

    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
