/* SPDX-License-Identifier: MIT
 *
 * The handshake: published vectors through the engine, the documented example, and attacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/auth.h"
#include "net/noise.h"
#include "tests/lib/protocol_doc.h"
#include "tests/lib/own_keys.h"

#define PROLOGUE "ringd/1"
static const struct noise_pattern ours = {
    .name = "Noise_XXpsk0+psk3_25519_ChaChaPoly_SHA512",
    .messages = 3,
    .tokens = {{NOISE_PSK_TOKEN, NOISE_E},
               {NOISE_E, NOISE_EE, NOISE_S, NOISE_ES},
               {NOISE_S, NOISE_SE, NOISE_PSK_TOKEN}},
};

/* --- vectors ---------------------------------------------------------------------------------- */

enum { VECTOR_MESSAGES = 16, VECTOR_BYTES = 512 };

struct bytes {
    uint8_t at[VECTOR_BYTES];
    size_t n;
};
struct vector {
    char name[128];
    struct noise_pattern pattern;
    struct bytes prologue, init_s, init_e, resp_s, resp_e, psks, hash;
    size_t messages;
    struct bytes plain[VECTOR_MESSAGES], sealed[VECTOR_MESSAGES];
};

static void parse_hex(struct bytes *ret, const char *text)
{
    size_t len = 0;

    ret->n = 0;
    if (strcmp(text, "-") == 0)
        return;
    assert_int_equal(sodium_hex2bin(ret->at, sizeof ret->at, text, strlen(text), ",", &len, NULL), 0);
    ret->n = len;
}

static void parse_tokens(struct noise_pattern *p, const char *text)
{
    size_t t = 0;

    p->messages = 1;
    for (; *text; text++) {
        if (*text == ';') {
            p->messages++;
            t = 0;
        } else {
            p->tokens[p->messages - 1][t++] = (uint8_t)(*text - '0');
        }
    }
}

static char *word(char **save)
{
    char *w = strtok_r(NULL, " \n", save);

    assert_non_null(w);
    return w;
}

/* name tokens known prologue init_s init_e resp_s resp_e psks hash count payload:message… */
static void parse_vector(struct vector *v, char *line)
{
    struct bytes *keys[] = {&v->prologue, &v->init_s, &v->init_e, &v->resp_s, &v->resp_e, &v->psks, &v->hash};
    char *save, *w = strtok_r(line, " \n", &save);

    memset(v, 0, sizeof *v);
    snprintf(v->name, sizeof v->name, "%s", w);
    v->pattern.name = v->name;
    parse_tokens(&v->pattern, word(&save));
    v->pattern.known = (uint8_t)atoi(word(&save));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        parse_hex(keys[i], word(&save));
    v->messages = (size_t)atoi(word(&save));
    assert_in_range(v->messages, v->pattern.messages, VECTOR_MESSAGES);
    for (size_t i = 0; i < v->messages; i++) {
        char *plain = word(&save), *colon = strchr(plain, ':');

        assert_non_null(colon);
        *colon = '\0';
        parse_hex(&v->plain[i], *plain ? plain : "-");
        parse_hex(&v->sealed[i], colon + 1);
    }
}

/* A static key whose secret half is here. */
static int mix_here(void *holder, const uint8_t ck[static NOISE_HASH], const uint8_t peer[static NOISE_KEY],
                    uint8_t ret_ck[static NOISE_HASH], uint8_t ret_key[static NOISE_KEY])
{
    return noise_mix(ck, holder, peer, ret_ck, ret_key);
}

static struct noise_static static_of(const uint8_t *secret)
{
    struct noise_static s = {.mix = mix_here, .holder = (void *)(uintptr_t)secret};

    crypto_scalarmult_base(s.pub, secret);
    return s;
}

static void init_side(struct noise *n, const struct vector *v, bool initiator)
{
    const struct bytes *s = initiator ? &v->init_s : &v->resp_s, *peer = initiator ? &v->resp_s : &v->init_s;
    const struct bytes *e = initiator ? &v->init_e : &v->resp_e;
    bool known = v->pattern.known & (initiator ? NOISE_RESPONDER_KNOWN : NOISE_INITIATOR_KNOWN);
    struct noise_static own = {.mix = NULL};
    struct noise_setup setup = {.pattern = &v->pattern,
                                .initiator = initiator,
                                .s = s->n ? &own : NULL,
                                .e = e->n ? e->at : NULL,
                                .prologue = v->prologue.at,
                                .prologue_len = v->prologue.n};
    uint8_t rs[NOISE_KEY];

    if (s->n)
        own = static_of(s->at);
    if (known) {
        crypto_scalarmult_base(rs, peer->at);
        setup.rs = rs;
    }
    memcpy(setup.psk, v->psks.at, v->psks.n < sizeof setup.psk ? v->psks.n : sizeof setup.psk);
    assert_int_equal(noise_init(n, &setup), 0);
}

/* Transport messages are what the split keys make of payloads, counting from 0 in each
 * direction. */
static void check_transport(const struct vector *v, const struct noise *n)
{
    uint8_t k[2][NOISE_KEY], out[VECTOR_BYTES];
    uint64_t counter[2] = {0, 0};

    noise_split(n, k[0], k[1]);
    for (size_t i = v->pattern.messages; i < v->messages; i++) {
        size_t side = i % 2;
        uint8_t nonce[12] = {0};

        nonce[4] = (uint8_t)counter[side]++;
        crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, v->plain[i].at, v->plain[i].n, NULL, 0, NULL,
                                                  nonce, k[side]);
        assert_int_equal(v->sealed[i].n, v->plain[i].n + NOISE_TAG);
        assert_memory_equal(out, v->sealed[i].at, v->sealed[i].n);
    }
}

static void run_vector(const struct vector *v)
{
    struct noise side[2];
    uint8_t msg[1024], payload[1024];

    init_side(&side[0], v, true);
    init_side(&side[1], v, false);
    for (size_t i = 0; i < v->pattern.messages; i++) {
        struct noise *from = &side[i % 2], *to = &side[1 - i % 2];
        int n = noise_write(from, msg, sizeof msg, v->plain[i].at, v->plain[i].n);

        assert_int_equal(n, v->sealed[i].n);
        assert_memory_equal(msg, v->sealed[i].at, v->sealed[i].n);
        assert_int_equal(noise_read(to, msg, (size_t)n, payload, sizeof payload), v->plain[i].n);
        assert_memory_equal(payload, v->plain[i].at, v->plain[i].n);
    }
    assert_true(noise_is_done(&side[0]) && noise_is_done(&side[1]));
    assert_memory_equal(side[0].h, side[1].h, NOISE_HASH);
    if (v->hash.n)
        assert_memory_equal(side[0].h, v->hash.at, NOISE_HASH);
    check_transport(v, &side[0]);
    check_transport(v, &side[1]);
}

/* Runs every vector of a file; returns how many there were, 0 without the file. */
static size_t run_vectors(const char *path)
{
    char *line = NULL;
    size_t cap = 0, count = 0;
    struct vector *v = malloc(sizeof *v);
    FILE *f = fopen(path, "r");

    assert_non_null(v);
    while (f && getline(&line, &cap, f) > 0) {
        parse_vector(v, line);
        run_vector(v);
        count++;
    }
    free(v);
    free(line);
    if (f)
        fclose(f);
    return count;
}

static void test_second_implementation(void **state)
{
    (void)state;
    assert_int_equal(run_vectors("tests/data/noise/vectors.txt"), 32);
}

/* The published vectors are other people's and lie outside the repository. */
static void test_published_vectors(void **state)
{
    const char *shared = getenv("RINGD_SHARED");
    char path[4096];

    (void)state;
    snprintf(path, sizeof path, "%s/noise/vectors.txt", shared ? shared : "../shared/data");
    print_message("%zu vectors in %s\n", run_vectors(path), path);
}

/* --- our own handshake ------------------------------------------------------------------------ */

struct pair {
    struct auth_identity id[2];
    uint8_t psk[AUTH_PSK];
    struct auth *side[2]; /* owned: initiator, responder */
};

static void pair_init(struct pair *p)
{
    assert_int_equal(own_identity(&p->id[0]), 0);
    assert_int_equal(own_identity(&p->id[1]), 0);
    memset(p->psk, 7, sizeof p->psk);
    for (int i = 0; i < 2; i++)
        assert_int_equal(auth_new(&p->side[i], i == 0, &p->id[i], p->psk, PROLOGUE, strlen(PROLOGUE)), 0);
}

static void pair_done(struct pair *p)
{
    auth_free(p->side[0]);
    auth_free(p->side[1]);
}

/* Exchanges messages 1 to `count` − 1 and writes message `count` without delivering it; returns its
 * length.
 */
static int run_until(struct pair *p, int count, uint8_t *msg)
{
    uint8_t payload[64];
    int n = 0;

    for (int i = 0; i < count; i++) {
        n = auth_write(p->side[i % 2], msg, AUTH_MAX_MESSAGE, "twelve bytes", 12);
        assert_true(n > 0);
        if (i + 1 < count)
            assert_int_equal(auth_read(p->side[1 - i % 2], msg, (size_t)n, payload, sizeof payload), 12);
    }
    return n;
}

static void test_handshake(void **state)
{
    uint8_t msg[AUTH_MAX_MESSAGE], payload[64];
    struct auth_keys k[2];
    struct pair p;
    int n;

    (void)state;
    pair_init(&p);
    assert_null(auth_peer_key(p.side[0]));
    assert_int_equal(auth_split(p.side[0], &k[0]), -EPROTO);
    n = run_until(&p, 3, msg);
    assert_int_equal(auth_split(p.side[1], &k[1]), -EPROTO);
    assert_int_equal(auth_read(p.side[1], msg, (size_t)n, payload, sizeof payload), 12);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(auth_peer_key(p.side[i]), p.id[1 - i].pub, AUTH_KEY);
        assert_int_equal(auth_split(p.side[i], &k[i]), 0);
        assert_int_equal(auth_write(p.side[i], msg, sizeof msg, "", 0), -EPROTO);
        assert_int_equal(auth_read(p.side[i], msg, 100, payload, sizeof payload), -EPROTO);
    }
    assert_memory_equal(k[0].tx, k[1].rx, AUTH_KEY);
    assert_memory_equal(k[0].rx, k[1].tx, AUTH_KEY);
    assert_memory_not_equal(k[0].rx, k[0].tx, AUTH_KEY);
    assert_memory_equal(k[0].hash, k[1].hash, AUTH_HASH);
    pair_done(&p);
}

static void test_limits(void **state)
{
    static uint8_t big[AUTH_MAX_PAYLOAD + 1], msg[AUTH_MAX_MESSAGE];
    uint8_t payload[4];
    struct pair p;

    (void)state;
    pair_init(&p);
    assert_int_equal(auth_write(p.side[0], msg, sizeof msg, big, sizeof big), -EMSGSIZE);
    assert_int_equal(auth_write(p.side[1], msg, sizeof msg, "", 0), -EPROTO);
    assert_int_equal(auth_write(p.side[0], msg, sizeof msg, big, AUTH_MAX_PAYLOAD),
                     32 + AUTH_MAX_PAYLOAD + AUTH_TAG);
    assert_int_equal(auth_read(p.side[1], msg, 32 + AUTH_MAX_PAYLOAD + AUTH_TAG, payload, sizeof payload),
                     -ENOBUFS);
    pair_done(&p);
    pair_init(&p);
    assert_int_equal(auth_write(p.side[0], msg, 40, "", 0), -ENOBUFS);
    assert_int_equal(auth_write(p.side[0], msg, sizeof msg, "", 0), -EPROTO); /* dead */
    pair_done(&p);
}

static void expect_refusal(struct pair *p, int message, const uint8_t *msg, size_t n)
{
    struct auth *reader = p->side[message % 2];
    uint8_t payload[AUTH_MAX_PAYLOAD];
    struct auth_keys keys;

    assert_int_equal(auth_read(reader, msg, n, payload, sizeof payload), -EBADMSG);
    assert_int_equal(auth_read(reader, msg, n, payload, sizeof payload), -EPROTO); /* and stays dead */
    assert_int_equal(auth_split(reader, &keys), -EPROTO);
    assert_null(auth_peer_key(reader));
}

static void test_every_bit_flip(void **state)
{
    uint8_t msg[AUTH_MAX_MESSAGE];

    (void)state;
    for (int message = 1; message <= 3; message++)
        for (int bit = 0, bits = 1; bit < bits; bit++) {
            struct pair p;
            int n;

            pair_init(&p);
            n = run_until(&p, message, msg);
            bits = 8 * n;
            msg[bit / 8] ^= (uint8_t)(1 << bit % 8);
            /* X25519 ignores the top bit of a point; the hash does not, so it is refused all the
             * same */
            expect_refusal(&p, message, msg, (size_t)n);
            pair_done(&p);
        }
}

static void test_every_truncation(void **state)
{
    uint8_t msg[AUTH_MAX_MESSAGE + 1];

    (void)state;
    for (int message = 1; message <= 3; message++)
        for (int len = 0, full = 1; len <= full + 1; len++) { /* and one byte too many */
            struct pair p;

            pair_init(&p);
            full = run_until(&p, message, msg);
            if (len != full)
                expect_refusal(&p, message, msg, (size_t)len);
            pair_done(&p);
        }
}

static void test_wrong_secret_or_prologue(void **state)
{
    for (int what = 0; what < 2; what++) {
        uint8_t msg[AUTH_MAX_MESSAGE];
        struct pair p;
        int n;

        (void)state;
        pair_init(&p);
        auth_free(p.side[1]);
        p.psk[31] ^= what == 0;
        assert_int_equal(auth_new(&p.side[1], false, &p.id[1], p.psk, what == 0 ? PROLOGUE : "ringd/2", 7),
                         0);
        n = run_until(&p, 1, msg);
        expect_refusal(&p, 1, msg, (size_t)n);
        pair_done(&p);
    }
}

/* Whoever only sends our own bytes back gets nowhere, whatever was said before. */
static void test_reflection_and_replay(void **state)
{
    uint8_t first[AUTH_MAX_MESSAGE], msg[AUTH_MAX_MESSAGE], payload[64];
    struct pair p;
    int n, k;

    (void)state;
    pair_init(&p);
    n = run_until(&p, 1, first);
    expect_refusal(&p, 2, first, (size_t)n); /* side 0 reads its own message 1 as message 2 */
    pair_done(&p);

    pair_init(&p);
    n = run_until(&p, 2, msg);
    expect_refusal(&p, 3, msg, (size_t)n); /* side 1 reads its own message 2 as message 3 */
    pair_done(&p);

    pair_init(&p); /* an old message 1 opens, but the replayer cannot finish: message 3 needs the old
                      ephemeral secret */
    n = run_until(&p, 1, first);
    assert_int_equal(auth_read(p.side[1], first, (size_t)n, payload, sizeof payload), 12);
    k = auth_write(p.side[1], msg, sizeof msg, "", 0);
    assert_true(k > 0);
    expect_refusal(&p, 3, first, (size_t)n);
    pair_done(&p);
}

static void noise_side(struct noise *n, bool initiator, const struct auth_identity *id, const uint8_t *psk)
{
    const struct noise_static own = static_of(own_pair(id)->secret);
    struct noise_setup setup = {.pattern = &ours,
                                .initiator = initiator,
                                .s = &own,
                                .prologue = PROLOGUE,
                                .prologue_len = strlen(PROLOGUE)};

    memcpy(setup.psk[0], psk, NOISE_KEY);
    memcpy(setup.psk[1], psk, NOISE_KEY);
    assert_int_equal(noise_init(n, &setup), 0);
}

/* A member that sends points of small order would force a secret everybody knows: refused wherever
 * it is mixed in. */
static void test_all_zero_dh(void **state)
{
    uint8_t msg[AUTH_MAX_MESSAGE], payload[64];
    struct noise evil;
    struct pair p;
    int n;

    (void)state;
    pair_init(&p); /* ephemeral of message 1: the responder meets it in its own message 2 */
    noise_side(&evil, true, &p.id[0], p.psk);
    evil.has_e = true;
    memset(evil.e.pub, 0, NOISE_KEY);
    n = noise_write(&evil, msg, sizeof msg, "", 0);
    assert_int_equal(auth_read(p.side[1], msg, (size_t)n, payload, sizeof payload), 0);
    assert_int_equal(auth_write(p.side[1], msg, sizeof msg, "", 0), -EBADMSG);
    pair_done(&p);

    pair_init(&p); /* static of message 3 */
    noise_side(&evil, true, &p.id[0], p.psk);
    memset(evil.s.pub, 0, NOISE_KEY);
    n = noise_write(&evil, msg, sizeof msg, "", 0);
    assert_int_equal(auth_read(p.side[1], msg, (size_t)n, payload, sizeof payload), 0);
    n = auth_write(p.side[1], msg, sizeof msg, "", 0);
    assert_int_equal(noise_read(&evil, msg, (size_t)n, payload, sizeof payload), 0);
    n = noise_write(&evil, msg, sizeof msg, "", 0);
    assert_true(n > 0);
    assert_int_equal(auth_read(p.side[1], msg, (size_t)n, payload, sizeof payload), -EBADMSG);
    pair_done(&p);
}

static void test_node_id(void **state)
{
    struct auth_identity a, b;
    uint8_t ia[16], ib[16], again[16];

    (void)state;
    assert_int_equal(own_identity(&a), 0);
    assert_int_equal(own_identity(&b), 0);
    auth_node_id(ia, a.pub);
    auth_node_id(ib, b.pub);
    auth_node_id(again, a.pub);
    assert_memory_equal(ia, again, 16);
    assert_memory_not_equal(ia, ib, 16);
}

/* The document's example: static secrets 01…01 and 02…02, ephemeral secrets 03…03 and 04…04, psk
 * 05…05. */
static void test_documented_example(void **state)
{
    static const char *const names[] = {"handshake-1", "handshake-2", "handshake-3", "handshake-hash"};
    uint8_t s[2][32], e[2][32], msg[256], payload[64];
    struct noise side[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct noise_static own;
        struct noise_setup setup = {.pattern = &ours,
                                    .initiator = i == 0,
                                    .s = &own,
                                    .e = e[i],
                                    .prologue = PROLOGUE,
                                    .prologue_len = strlen(PROLOGUE)};

        memset(s[i], 1 + i, 32);
        own = static_of(s[i]);
        memset(e[i], 3 + i, 32);
        memset(setup.psk, 5, sizeof setup.psk);
        assert_int_equal(noise_init(&side[i], &setup), 0);
    }
    for (int i = 0; i < 3; i++) {
        int n = noise_write(&side[i % 2], msg, sizeof msg, "\x01\x01\x00\x02\x00", 5);

        assert_true(n > 0);
        assert_true(protocol_doc_shows(names[i], msg, (size_t)n));
        assert_int_equal(noise_read(&side[1 - i % 2], msg, (size_t)n, payload, sizeof payload), 5);
    }
    assert_true(protocol_doc_shows(names[3], side[0].h, sizeof side[0].h));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_implementation),
        cmocka_unit_test(test_published_vectors),
        cmocka_unit_test(test_handshake),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_every_bit_flip),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_wrong_secret_or_prologue),
        cmocka_unit_test(test_reflection_and_replay),
        cmocka_unit_test(test_all_zero_dh),
        cmocka_unit_test(test_node_id),
        cmocka_unit_test(test_documented_example),
    };

    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
