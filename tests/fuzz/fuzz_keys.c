/* SPDX-License-Identifier: MIT
 *
 * Requests to the keeper of a node's keys, of a ringd that somebody has taken over, with signatures
 * that are all good. Input: (u16 length ‖ request)*, to the keeper of an authority, or of a node
 * without a cluster if the first byte is even. Whatever is asked: an answer has its bounds, no
 * answer holds a secret, and a member's roster never gets older. */
#include "tests/fuzz/lib/fuzz.h"
#include <sodium.h>

#include "tests/lib/own_keys.h"

/* What is defined in a program comes before what a library has. */
int crypto_sign_verify_detached(const unsigned char *sig, const unsigned char *m, unsigned long long n,
                                const unsigned char *pk)
{
    (void)sig, (void)m, (void)n, (void)pk;
    return 0;
}

enum { REQUESTS = 8 };

/* Keys are made once: it is costly, and not what is tested. */
static const struct keeper *fresh(bool has_cluster)
{
    static struct keeper keepers[2];
    static bool made;
    if (!made) {
        struct keys_trust t;
        struct keys *keys = own_keys(&keepers[0], (const uint8_t[AUTH_SEED]){1});
        expect(keys != NULL);
        keys_close(keys);
        keys = own_keys(&keepers[1], (const uint8_t[AUTH_SEED]){1});
        expect(keys && keys_found(keys, "home", "self", 1, &t) == 0);
        keys_close(keys);
        made = true;
    }
    return &keepers[has_cluster];
}

static bool holds(const uint8_t *text, size_t n, const uint8_t *secret)
{
    return memmem(text, n, secret, 32) != NULL;
}

/* The fuzzer sees what it is compared with, and writes it into a request, of which a roster comes
 * back. */
static bool knows(const struct keeper *k, const uint8_t *request, size_t n)
{
    return holds(request, n, k->own.secret) || holds(request, n, k->own.sign_secret) ||
           (k->now.has_seed && holds(request, n, k->now.seed));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct keeper k;
    if (n < 1)
        return 0;
    k = *fresh(data[0] & 1);
    data++, n--;
    for (int i = 0; i < REQUESTS && n >= 2; i++) {
        size_t size = data[0] | (size_t)data[1] << 8;
        data += 2, n -= 2;
        size = size < n ? size : n;
        size = size < sizeof k.request ? size : sizeof k.request;
        const uint64_t version = k.now.has ? k.now.roster.version : 0;
        memcpy(k.request, data, size);
        const bool knew = knows(&k, data, size);
        const size_t answer = keeper_answer(&k, size);
        expect(answer >= KEYS_ERROR && answer <= sizeof k.answer);
        expect(!k.answer[0] || answer == KEYS_ERROR);
        expect(knew ||
               (!holds(k.answer, answer, k.own.secret) && !holds(k.answer, answer, k.own.sign_secret)));
        expect(!k.now.has || k.now.roster.version >= version || !version);
        data += size, n -= size;
    }
    return 0;
}
