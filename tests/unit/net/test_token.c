/* SPDX-License-Identifier: MIT
 *
 * Tokens: text and slips in it, derivations, the list of those given out under a clock of our
 * own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/token.h"
#include "tests/lib/protocol_doc.h"

static struct token example(void)
{
    struct token t;

    for (size_t i = 0; i < sizeof t.cluster_id; i++)
        t.cluster_id[i] = (uint8_t)i;
    memset(t.id, 0xa5, sizeof t.id);
    for (size_t i = 0; i < sizeof t.secret; i++)
        t.secret[i] = (uint8_t)(0xf0 - 7 * i);
    return t;
}

static void test_text_round_trip(void **state)
{
    struct token t, back;
    char text[TOKEN_TEXT];

    (void)state;
    for (int i = 0; i < 500; i++) {
        randombytes_buf(&t, sizeof t);
        token_write(&t, text);
        assert_int_equal(strlen(text), 68);
        assert_int_equal(strncmp(text, "ringd1-", 7), 0);
        assert_int_equal(token_read(text, &back), 0);
        assert_memory_equal(&back, &t, sizeof t);
    }
}

static void test_text_is_as_documented(void **state)
{
    struct token t = example();
    char text[TOKEN_TEXT];
    struct token_keys keys;

    (void)state;
    token_write(&t, text);
    token_derive(&t, &keys);
    assert_true(protocol_doc_shows("token", text, strlen(text)));
    assert_true(protocol_doc_shows("token-psk", keys.psk, sizeof keys.psk));
    assert_true(protocol_doc_shows("token-question", keys.question, sizeof keys.question));
    assert_true(protocol_doc_shows("token-answer", keys.answer, sizeof keys.answer));
    assert_true(protocol_doc_shows("token-claim", keys.sign_pub, sizeof keys.sign_pub));
}

static void test_reading_forgives(void **state)
{
    struct token t = example(), back;
    char text[TOKEN_TEXT], typed[4 * TOKEN_TEXT] = " ";
    size_t n = 1;

    (void)state;
    token_write(&t, text);
    for (size_t i = 0; text[i]; i++) {
        char c = (char)tolower((unsigned char)text[i]);

        if (i >= 7)
            c = c == '0' ? 'o' : c == '1' ? (i % 2 ? 'l' : 'I') : c;
        typed[n++] = c;
        if (i >= 7 && i % 5 == 0)
            typed[n++] = i % 10 ? '-' : ' ';
    }
    typed[n] = '\0';
    assert_int_equal(token_read(typed, &back), 0);
    assert_memory_equal(&back, &t, sizeof t);
}

static void test_slips_are_seen(void **state)
{
    static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    struct token t = example(), back = {.id = {1}};
    char text[TOKEN_TEXT], wrong[TOKEN_TEXT + 2];
    unsigned slipped = 0, seen = 0;

    (void)state;
    token_write(&t, text);
    for (size_t i = 7; text[i]; i++) /* every other character in every place */
        for (size_t a = 0; alphabet[a]; a++) {
            memcpy(wrong, text, sizeof text);
            wrong[i] = alphabet[a];
            slipped += wrong[i] != text[i];
            seen += token_read(wrong, &back) == -EBADMSG;
        }
    assert_true(slipped - seen <= 2); /* 16 bits of checksum over 1,891 slips */
    for (size_t n = 0; n + 1 < sizeof text; n++) {
        snprintf(wrong, sizeof wrong, "%.*s", (int)n, text);
        assert_int_equal(token_read(wrong, &back), -EINVAL);
    }
    snprintf(wrong, sizeof wrong, "%s0", text);
    assert_int_equal(token_read(wrong, &back), -EINVAL);
    assert_int_equal(token_read("ringd2-0000", &back), -EINVAL);
    assert_int_equal(token_read("", &back), -EINVAL);
    memcpy(wrong, text, sizeof text);
    wrong[20] = 'U';
    assert_int_equal(token_read(wrong, &back), -EINVAL);
}

static void test_derivations_are_apart(void **state)
{
    struct token t = example(), other = example();
    struct token_keys a, b;

    (void)state;
    other.secret[3] ^= 1;
    token_derive(&t, &a);
    token_derive(&other, &b);
    assert_memory_not_equal(a.question, a.answer, TOKEN_TAG);
    assert_memory_not_equal(a.psk, a.question, TOKEN_TAG);
    assert_memory_not_equal(a.psk, b.psk, 32);
    assert_memory_not_equal(a.question, b.question, TOKEN_TAG);
    other = example();
    other.id[0] ^= 1; /* only the secret counts */
    token_derive(&other, &b);
    assert_memory_equal(&a, &b, sizeof a);
}

/* --- the list --- */

static void every_bit_of_a_claim_counts(void **state)
{
    struct token t = example();
    struct token_keys keys, others;
    struct token other = example();
    uint8_t pub[AUTH_KEY] = {1}, hash[AUTH_HASH] = {2}, proof[AUTH_SIGNATURE];
    char name[CERT_NAME + 1] = "bert";
    struct token_claim claim = {.token = t.id, .pub = pub, .hash = hash, .name = name};
    struct {
        uint8_t *at;
        size_t n;
    } parts[] = {{t.id, TOKEN_ID},
                 {pub, sizeof pub},
                 {hash, sizeof hash},
                 {(uint8_t *)name, 4},
                 {proof, sizeof proof}};

    (void)state;
    token_derive(&t, &keys);
    assert_int_equal(token_prove(&t, &claim, proof), 0);
    assert_true(token_is_proof(&keys, &claim, proof));
    assert_true(protocol_doc_shows("token-proof", proof, sizeof proof));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (size_t bit = 0; bit < 8 * parts[i].n; bit++) {
            parts[i].at[bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_false(token_is_proof(&keys, &claim, proof));
            parts[i].at[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    other.secret[0] ^= 1;
    token_derive(&other, &others);
    assert_false(token_is_proof(&others, &claim, proof));
    memset(name, 'x', CERT_NAME);
    assert_false(token_is_proof(&keys, &claim, proof));
    name[CERT_NAME - 1] = 0;
    assert_int_equal(token_prove(&t, &claim, proof), 0);
    memset(name, 'x', CERT_NAME);
    assert_int_equal(token_prove(&t, &claim, proof), -EINVAL);
}

static struct token numbered(uint32_t number)
{
    struct token t = example();

    memcpy(t.id, &number, sizeof number);
    memcpy(t.secret, &number, sizeof number);
    return t;
}

static void test_single_use(void **state)
{
    struct token_book b = {.n = 0};
    struct token t = example();
    uint8_t anna[16] = {1}, bert[16] = {2}, nobody[TOKEN_ID] = {9};

    (void)state;
    assert_int_equal(token_book_add(&b, &t, 1000, 3600), 0);
    assert_true(token_is_live(token_book_find(&b, t.id), 1000));
    assert_int_equal(token_book_use(&b, nobody, anna, 1001), TOKEN_NONE);
    assert_int_equal(token_book_use(&b, t.id, anna, 1001), TOKEN_OK);
    assert_false(token_is_live(token_book_find(&b, t.id), 1001));
    assert_int_equal(token_book_use(&b, t.id, bert, 1002), TOKEN_USED);
    assert_int_equal(token_book_use(&b, t.id, anna, 1003), TOKEN_AGAIN); /* she lost the answer */
    assert_int_equal(token_book_use(&b, t.id, anna, 4600), TOKEN_EXPIRED);
}

static void test_expiry(void **state)
{
    struct token_book b = {.n = 0};
    struct token t = example();
    uint8_t anna[16] = {1};

    (void)state;
    token_book_add(&b, &t, 1000, 60);
    assert_true(token_is_live(token_book_find(&b, t.id), 1059));
    assert_false(token_is_live(token_book_find(&b, t.id), 1060));
    assert_int_equal(token_book_use(&b, t.id, anna, 1060), TOKEN_EXPIRED);
    token_book_purge(&b, 1060 + TOKEN_AFTERLIFE_S - 1);
    assert_non_null(token_book_find(&b, t.id));
    token_book_purge(&b, 1060 + TOKEN_AFTERLIFE_S);
    assert_null(token_book_find(&b, t.id));
    assert_int_equal(b.n, 0);
}

static void test_a_full_list_keeps_the_live(void **state)
{
    struct token_book b = {.n = 0};
    struct token t;
    uint8_t anna[16] = {1};

    (void)state;
    for (uint32_t i = 0; i < TOKENS_MAX; i++) {
        t = numbered(i);
        assert_int_equal(token_book_add(&b, &t, 0, 60), 0);
    }
    t = numbered(1000);
    assert_int_equal(token_book_add(&b, &t, 1, 60), -ENOSPC);
    t = numbered(17);
    assert_int_equal(token_book_use(&b, t.id, anna, 1), TOKEN_OK);
    t = numbered(1000);
    assert_int_equal(token_book_add(&b, &t, 1, 60), 0); /* in the place of the used one */
    assert_null(token_book_find(&b, numbered(17).id));
    assert_non_null(token_book_find(&b, numbered(16).id));
    assert_int_equal(b.n, TOKENS_MAX);
}

static void test_list_on_disk(void **state)
{
    static uint8_t bytes[TOKEN_BOOK_BYTES + 1];
    struct token_book b = {.n = 0}, back;
    uint8_t anna[16] = {1};
    int n;

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        struct token t = numbered(i);

        token_book_add(&b, &t, i, 60);
    }
    token_book_use(&b, numbered(2).id, anna, 3);
    n = token_book_encode(&b, bytes, sizeof bytes);
    assert_true(n > 0);
    assert_int_equal(token_book_decode(bytes, (size_t)n, &back), 0);
    assert_int_equal(back.n, 5);
    assert_int_equal(token_book_use(&back, numbered(2).id, numbered(9).secret, 3), TOKEN_USED);
    for (int i = 0; i < n; i++) {
        assert_int_equal(token_book_decode(bytes, (size_t)i, &back), -EPROTO);
        assert_int_equal(token_book_encode(&b, bytes, (size_t)i), -ENOBUFS);
    }
    token_book_encode(&b, bytes, sizeof bytes);
    assert_int_equal(token_book_decode(bytes, (size_t)n + 1, &back), -EPROTO);
    bytes[0] ^= 1;
    assert_int_equal(token_book_decode(bytes, (size_t)n, &back), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_of_a_claim_counts),
        cmocka_unit_test(test_text_round_trip),
        cmocka_unit_test(test_text_is_as_documented),
        cmocka_unit_test(test_reading_forgives),
        cmocka_unit_test(test_slips_are_seen),
        cmocka_unit_test(test_derivations_are_apart),
        cmocka_unit_test(test_single_use),
        cmocka_unit_test(test_expiry),
        cmocka_unit_test(test_a_full_list_keeps_the_live),
        cmocka_unit_test(test_list_on_disk),
    };

    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
