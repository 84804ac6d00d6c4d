/* SPDX-License-Identifier: MIT
 *
 * The only file of ringd-fetch that knows libcrypto. */
#include "daemon/fetch/digest.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A digest is libcrypto's context under a name of our own. */
static EVP_MD_CTX *context_of(struct digest *d)
{
    return (EVP_MD_CTX *)(void *)d;
}

static struct digest *begin(const EVP_MD *kind)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (!c || EVP_DigestInit_ex(c, kind, NULL) != 1)
        abort(); /* out of memory, or a libcrypto without SHA */
    return (struct digest *)(void *)c;
}

/* What the machine's openssl.cnf says is for other programs, and a cell does not show it. */
static void keep_from_config(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
}

struct digest *digest_new(void)
{
    keep_from_config();
    return begin(EVP_sha256());
}

struct digest *digest_new_of(const struct hub_file *file)
{
    char head[40];
    if (file->kind != HUB_HASH_GIT)
        return digest_new();
    keep_from_config();
    struct digest *d = begin(EVP_sha1());
    const int n = snprintf(head, sizeof head, "blob %" PRIu64, file->size);
    digest_add(d, head, (size_t)n + 1);
    return d;
}

void digest_add(struct digest *d, const void *bytes, size_t n)
{
    EVP_DigestUpdate(context_of(d), bytes, n);
}

void digest_take(struct digest *d, uint8_t ret[static DIGEST])
{
    unsigned n = DIGEST;
    EVP_DigestFinal_ex(context_of(d), ret, &n);
    if (EVP_DigestInit_ex(context_of(d), NULL, NULL) != 1)
        abort();
}

static void write_hex(char *to, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sprintf(to + 2 * i, "%02x", bytes[i]);
}

void digest_hex(char ret[static DIGEST_HEX], const uint8_t digest[static DIGEST])
{
    write_hex(ret, digest, DIGEST);
}

void digest_end(struct digest *d, char ret[static DIGEST_HEX])
{
    uint8_t bytes[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    EVP_DigestFinal_ex(context_of(d), bytes, &n);
    write_hex(ret, bytes, n < DIGEST ? n : DIGEST);
    digest_free(d);
}

void digest_free(struct digest *d)
{
    EVP_MD_CTX_free(context_of(d));
}
