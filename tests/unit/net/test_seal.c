/* SPDX-License-Identifier: MIT
 *
 * The record layer: documented records, and every way of tampering with a stream of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/seal.h"
#include "tests/lib/protocol_doc.h"

enum { OVERHEAD = SEAL_HEAD + SEAL_TAG };

static const enum seal_suite suites[] = {SEAL_CHACHA20_POLY1305, SEAL_AES256_GCM};

static bool has(enum seal_suite suite)
{
    return seal_suites() & 1 << suite;
}

static void init_both(struct seal *tx, struct seal *rx, enum seal_suite suite)
{
    uint8_t key[32];

    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)i;
    seal_init(tx, key, suite);
    seal_init(rx, key, suite);
}

static int open_record(struct seal *rx, uint8_t *record)
{
    size_t n;
    int r = seal_length(record, &n);

    return r < 0 ? r : seal_open(rx, record, record + SEAL_HEAD, n, record + SEAL_HEAD + n);
}

static void test_choice(void **state)
{
    enum { ONE = 1 << SEAL_CHACHA20_POLY1305, BOTH = ONE | 1 << SEAL_AES256_GCM };
    static const struct {
        struct seal_offer mine, theirs;
        enum seal_suite suite;
    } cases[] = {
        {{BOTH, 256, 357}, {BOTH, 256, 357}, SEAL_CHACHA20_POLY1305},
        {{BOTH, 256, 357}, {BOTH, 800, 600}, SEAL_AES256_GCM}, /* the sum counts */
        {{BOTH, 256, 357}, {BOTH, 400, 300}, SEAL_CHACHA20_POLY1305},
        {{BOTH, 65535, 65535}, {BOTH, 65535, 65534}, SEAL_AES256_GCM},
        {{BOTH, 0, 0}, {BOTH, 256, 357}, SEAL_CHACHA20_POLY1305}, /* not measured: the other's counts */
        {{BOTH, 0, 0}, {BOTH, 357, 256}, SEAL_AES256_GCM},
        {{BOTH, 0, 0}, {BOTH, 0, 0}, SEAL_AES256_GCM},
        {{BOTH, 357, 256}, {ONE, 9000, 0}, SEAL_CHACHA20_POLY1305}, /* not in common, whatever it costs */
        {{ONE, 0, 0}, {0, 0, 0}, SEAL_CHACHA20_POLY1305},           /* never plaintext */
    };

    (void)state;
    assert_true(has(SEAL_CHACHA20_POLY1305));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(seal_choose(&cases[i].mine, &cases[i].theirs), cases[i].suite);
        assert_int_equal(seal_choose(&cases[i].theirs, &cases[i].mine), cases[i].suite);
    }
    assert_string_equal(seal_suite_name(SEAL_AES256_GCM), "aes256-gcm");
    assert_string_equal(seal_suite_name((enum seal_suite)77), "none");
}

/* Not how fast this CPU is, but that what is announced is of this CPU. */
static void test_measured(void **state)
{
    const struct seal_offer o = seal_measure();

    (void)state;
    assert_int_equal(o.suites, seal_suites());
    assert_true(o.chacha_ps > 10); /* 100 GB/s: no CPU does that */
    assert_true(has(SEAL_AES256_GCM) ? o.aes_ps > 10 : !o.aes_ps);
}

/* Key 00 01 … 1f, plaintexts "ring" and "" as the first two records. */
static void test_documented_records(void **state)
{
    static const char *const names[2][2] = {{"record-chacha20-0", "record-chacha20-1"},
                                            {"record-aes256-0", "record-aes256-1"}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint8_t record[OVERHEAD + 4];
        struct seal tx, rx;

        if (!has(suites[i])) {
            print_message("this CPU has no fast %s\n", seal_suite_name(suites[i]));
            continue;
        }
        init_both(&tx, &rx, suites[i]);
        assert_int_equal(seal_seal(&tx, record, (const uint8_t *)"ring", 4), 0);
        assert_true(protocol_doc_shows(names[i][0], record, sizeof record));
        assert_int_equal(open_record(&rx, record), 0);
        assert_memory_equal(record + SEAL_HEAD, "ring", 4);
        assert_int_equal(seal_seal(&tx, record, NULL, 0), 0);
        assert_true(protocol_doc_shows(names[i][1], record, OVERHEAD));
        assert_int_equal(open_record(&rx, record), 0);
    }
}

static void test_sizes_in_place(void **state)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 63, 4096, 262144, SEAL_MAX};
    uint8_t *record = malloc(SEAL_MAX + OVERHEAD), *apart = malloc(SEAL_MAX + OVERHEAD),
            *plain = malloc(SEAL_MAX + 1);

    (void)state;
    assert_true(record && apart && plain);
    randombytes_buf(plain, SEAL_MAX + 1);
    for (size_t i = 0; i < 2; i++) {
        struct seal tx, rx, copy;

        if (!has(suites[i]))
            continue;
        init_both(&tx, &rx, suites[i]);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            size_t n = sizes[k];

            copy = tx; /* plain bytes: a copy goes on where the original was */
            memcpy(record + SEAL_HEAD, plain, n);
            assert_int_equal(seal_seal(&tx, record, record + SEAL_HEAD, n), 0);
            assert_int_equal(seal_seal(&copy, apart, plain, n), 0);
            assert_memory_equal(record, apart, n + OVERHEAD);
            assert_memory_equal(&copy, &tx, sizeof tx);
            if (n > 16)
                assert_memory_not_equal(record + SEAL_HEAD, plain, n);
            assert_int_equal(open_record(&rx, record), 0);
            assert_memory_equal(record + SEAL_HEAD, plain, n);
        }
        assert_int_equal(seal_seal(&tx, record, plain, SEAL_MAX + 1), -EMSGSIZE);
    }
    free(record);
    free(apart);
    free(plain);
}

static void test_length(void **state)
{
    uint8_t most[SEAL_HEAD] = {0x40, 0, 4, 0}, more[SEAL_HEAD] = {0x41, 0, 4, 0},
            all[SEAL_HEAD] = {255, 255, 255, 255};
    size_t n = 1;

    (void)state;
    assert_int_equal(seal_length(most, &n), 0);
    assert_int_equal(n, SEAL_MAX);
    n = 1;
    assert_int_equal(seal_length(more, &n), -EMSGSIZE);
    assert_int_equal(seal_length(all, &n), -EMSGSIZE);
    assert_int_equal(n, 1);
}

static void test_every_bit_flip(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (size_t bit = 0; bit < 8 * (OVERHEAD + 21); bit++) {
            uint8_t record[OVERHEAD + 21], good[OVERHEAD + 21], flipped[SEAL_HEAD];
            struct seal tx, rx;

            if (!has(suites[i]))
                continue;
            init_both(&tx, &rx, suites[i]);
            assert_int_equal(seal_seal(&tx, record, (const uint8_t *)"twenty-one characters", 21), 0);
            memcpy(good, record, sizeof good);
            record[bit / 8] ^= (uint8_t)(1 << bit % 8);
            memcpy(flipped, record, sizeof flipped);
            assert_int_equal(seal_open(&rx, flipped, record + SEAL_HEAD, 21, record + SEAL_HEAD + 21),
                             -EBADMSG);
            for (size_t k = 0; k < 21; k++) /* nothing unverified is left to be used by mistake */
                assert_int_equal(record[SEAL_HEAD + k], 0);
            assert_int_equal(open_record(&rx, good), -EBADMSG); /* the session is over */
            assert_int_equal(seal_seal(&rx, record, good, 1), -EBADMSG);
        }
}

enum order { SWAPPED, REPLAYED, DROPPED, SHORTENED, REFLECTED };

static void test_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (int order = SWAPPED; order <= REFLECTED; order++) {
            uint8_t record[3][OVERHEAD + 4], again[OVERHEAD + 4];
            struct seal tx, rx;

            if (!has(suites[i]))
                continue;
            init_both(&tx, &rx, suites[i]);
            for (int k = 0; k < 3; k++)
                assert_int_equal(seal_seal(&tx, record[k], (const uint8_t *)"same", 4), 0);
            assert_memory_not_equal(record[0], record[1], sizeof record[0]);
            memcpy(again, record[0], sizeof again);
            if (order != SWAPPED)
                assert_int_equal(open_record(&rx, record[0]), 0);
            switch (order) {
            case SWAPPED: assert_int_equal(open_record(&rx, record[1]), -EBADMSG); break;
            case REPLAYED: assert_int_equal(open_record(&rx, again), -EBADMSG); break;
            case DROPPED: assert_int_equal(open_record(&rx, record[2]), -EBADMSG); break;
            case SHORTENED:
                record[1][0] = 3;
                assert_int_equal(open_record(&rx, record[1]), -EBADMSG);
                break;
            case REFLECTED: /* directions have keys of their own; this is what a shared one would still catch
                             */
                assert_int_equal(open_record(&tx, again), -EBADMSG);
                break;
            }
        }
}

static void test_ratchet(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint8_t record[OVERHEAD + 4], old_key[32];
        struct seal tx, rx;

        if (!has(suites[i]))
            continue;
        init_both(&tx, &rx, suites[i]);
        memcpy(old_key, tx.key, sizeof old_key);
        tx.bytes = rx.bytes = SEAL_REKEY_BYTES - OVERHEAD - 5; /* one record of four bytes fits below */
        for (int k = 0; k < 4; k++) {
            assert_int_equal(seal_seal(&tx, record, (const uint8_t *)"ring", 4), 0);
            assert_int_equal(memcmp(old_key, tx.key, sizeof old_key) != 0, k >= 1);
            assert_int_equal(open_record(&rx, record), 0);
            assert_memory_equal(&tx, &rx, sizeof tx);
            assert_int_equal(tx.counter, k + 1);
        }
        assert_int_equal(tx.bytes, 2 * (OVERHEAD + 4));
    }
}

/* Turns may be used in any order and by whoever has them, also across a new key: the records are
 * the same ones. */
static void test_turns(void **state)
{
    enum { TURNS = 4 };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint8_t one[TURNS][OVERHEAD + 4], other[TURNS][OVERHEAD + 4];
        struct seal in_order, tx, rx, turn[TURNS];

        if (!has(suites[i]))
            continue;
        init_both(&tx, &rx, suites[i]);
        tx.bytes = rx.bytes = SEAL_REKEY_BYTES - 2 * (OVERHEAD + 4); /* the key changes after the second */
        in_order = tx;
        for (int k = 0; k < TURNS; k++) {
            assert_int_equal(seal_seal(&in_order, one[k], (const uint8_t *)"ring", 4), 0);
            assert_int_equal(seal_turn(&tx, 4, &turn[k]), 0);
        }
        assert_memory_equal(&tx, &in_order, sizeof tx);
        for (int k = TURNS - 1; k >= 0; k--)
            assert_int_equal(seal_seal(&turn[k], other[k], (const uint8_t *)"ring", 4), 0);
        assert_memory_equal(one, other, sizeof one);
        for (int k = 0; k < TURNS; k++)
            assert_int_equal(seal_turn(&rx, 4, &turn[k]), 0);
        for (int k = TURNS - 1; k >= 0; k--) {
            assert_int_equal(open_record(&turn[k], other[k]), 0);
            assert_memory_equal(other[k] + SEAL_HEAD, "ring", 4);
        }
        assert_int_equal(seal_turn(&rx, SEAL_MAX + 1, &turn[0]), -EMSGSIZE);
        seal_wipe(&rx);
        assert_int_equal(seal_turn(&rx, 4, &turn[0]), -EBADMSG);
    }
}

static void test_end_of_counter(void **state)
{
    uint8_t record[OVERHEAD + 4];
    struct seal tx, rx;

    (void)state;
    init_both(&tx, &rx, SEAL_CHACHA20_POLY1305);
    tx.counter = rx.counter = UINT64_MAX - 1;
    assert_int_equal(seal_seal(&tx, record, (const uint8_t *)"last", 4), 0);
    assert_int_equal(open_record(&rx, record), 0);
    assert_int_equal(seal_seal(&tx, record, (const uint8_t *)"more", 4), -EBADMSG);
    seal_wipe(&tx);
    assert_true(sodium_is_zero((const uint8_t *)&tx, sizeof tx));
}

/* Both ends change between the same two records; who does it alone is not understood. */
static void test_a_key_is_mixed_with_what_both_know(void **state)
{
    uint8_t key[32], secret[32], record[SEAL_HEAD + 4 + SEAL_TAG];
    struct seal tx, rx, old;

    (void)state;
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)i;
    memset(secret, 5, sizeof secret);
    seal_init(&tx, key, SEAL_CHACHA20_POLY1305);
    seal_init(&rx, key, SEAL_CHACHA20_POLY1305);
    old = rx;
    assert_int_equal(seal_mix(&tx, secret), 0);
    assert_true(protocol_doc_shows("mixed-key", tx.key, sizeof tx.key));
    assert_int_equal(seal_seal(&tx, record, (const uint8_t *)"ring", 4), 0);
    assert_int_equal(seal_mix(&rx, secret), 0);
    assert_int_equal(seal_open(&rx, record, record + SEAL_HEAD, 4, record + SEAL_HEAD + 4), 0);
    assert_memory_equal(record + SEAL_HEAD, "ring", 4);
    assert_int_equal(seal_seal(&tx, record, (const uint8_t *)"ring", 4), 0);
    assert_int_equal(seal_open(&old, record, record + SEAL_HEAD, 4, record + SEAL_HEAD + 4), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_is_mixed_with_what_both_know),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_measured),
        cmocka_unit_test(test_documented_records),
        cmocka_unit_test(test_sizes_in_place),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_every_bit_flip),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_ratchet),
        cmocka_unit_test(test_end_of_counter),
        cmocka_unit_test(test_turns),
    };

    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
