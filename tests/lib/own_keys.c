/* SPDX-License-Identifier: MIT */
#include "tests/lib/own_keys.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/noise.h"

static int mix(void *holder, const uint8_t ck[static AUTH_HASH], const uint8_t peer[static AUTH_KEY],
               uint8_t ret_ck[static AUTH_HASH], uint8_t ret_key[static AUTH_KEY])
{
    const struct auth_pair *pair = holder;
    return noise_mix(ck, pair->secret, peer, ret_ck, ret_key);
}

static int sign(void *holder, enum auth_purpose purpose, const void *text, size_t n,
                uint8_t ret[static AUTH_SIGNATURE])
{
    return auth_pair_sign(holder, purpose, text, n, ret);
}

int own_identity_from_seed(struct auth_identity *ret, const uint8_t seed[static AUTH_SEED])
{
    static struct auth_pair pairs[OWN_PAIRS];
    static size_t n;
    struct auth_pair *pair = &pairs[n++ % OWN_PAIRS];
    int r = auth_pair_from_seed(pair, seed);
    *ret = (struct auth_identity){.mix = mix, .sign = sign, .holder = pair};
    memcpy(ret->pub, pair->pub, sizeof ret->pub);
    memcpy(ret->sign_pub, pair->sign_pub, sizeof ret->sign_pub);
    return r;
}

int own_identity(struct auth_identity *ret)
{
    uint8_t seed[AUTH_SEED];
    if (sodium_init() < 0)
        return -EIO;
    randombytes_buf(seed, sizeof seed);
    return own_identity_from_seed(ret, seed);
}

const struct auth_pair *own_pair(const struct auth_identity *id)
{
    return id->holder;
}

void own_program(char ret[static PATH_MAX], const char *name)
{
    const ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
    ret[n > 0 ? n : 0] = '\0';
    char *tests = strstr(ret, "/tests/unit/");
    if (tests)
        snprintf(tests, PATH_MAX - (size_t)(tests - ret), "/%s", name);
}

static ssize_t ask(void *owner, const uint8_t *request, size_t n, uint8_t *answer, size_t cap)
{
    struct keeper *k = owner;
    if (n > sizeof k->request)
        return -EMSGSIZE;
    memcpy(k->request, request, n);
    const size_t size = keeper_answer(k, n);
    if (size > cap)
        return -EMSGSIZE;
    memcpy(answer, k->answer, size);
    return (ssize_t)size;
}

struct keys *own_keys(struct keeper *keeper, const uint8_t seed[static AUTH_SEED])
{
    struct keys *keys;
    struct err err;
    memset(keeper, 0, sizeof *keeper);
    if (sodium_init() < 0 || keeper_init(keeper, seed) ||
        keys_open(&keys, &(struct keys_setup){ask, keeper}, &err))
        return NULL;
    return keys;
}
