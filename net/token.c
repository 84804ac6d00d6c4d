/* SPDX-License-Identifier: MIT
 *
 * Tokens as text and as a list. Owns nothing; called by the daemon's cluster and enrolment code, on
 * the loop.
 */
#include "token.h"

#include "buf.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
static const uint8_t book_magic[4] = {'R', 'G', 'T', '3'};

/* BLAKE2b keyed by what the result is for. */
static void derive(uint8_t *out, size_t n, const uint8_t *data, size_t len, const char *purpose)
{
    uint8_t key[crypto_generichash_KEYBYTES_MIN] = {0};

    memcpy(key, purpose, strnlen(purpose, sizeof key));
    crypto_generichash(out, n, data, len, key, sizeof key);
}

/* --- text --- */

void token_base32(char *out, const uint8_t *data, size_t n)
{
    uint32_t bits = 0;
    unsigned have = 0;

    for (size_t i = 0; i < n; i++) {
        bits = bits << 8 | data[i];
        for (have += 8; have >= 5; have -= 5)
            *out++ = digits[bits >> (have - 5) & 31];
    }
    if (have > 0)
        *out++ = digits[bits << (5 - have) & 31];
    *out = '\0';
}

static int digit(char c)
{
    const char *at;

    if (c >= 'a' && c <= 'z')
        c = (char)(c - 'a' + 'A');
    c = c == 'O' ? '0' : c == 'I' || c == 'L' ? '1' : c;
    at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static void check_bytes(uint8_t sum[static 2], const uint8_t *data, size_t n)
{
    uint8_t hash[crypto_generichash_BYTES_MIN];

    derive(hash, sizeof hash, data, n, "ringd/1 check");
    memcpy(sum, hash, 2);
    sodium_memzero(hash, sizeof hash);
}

void token_write(const struct token *t, char out[static TOKEN_TEXT])
{
    uint8_t bytes[TOKEN_BYTES];
    struct buf_out b;

    buf_out_init(&b, bytes, sizeof bytes);
    buf_out_bytes(&b, t->cluster_id, sizeof t->cluster_id);
    buf_out_bytes(&b, t->id, sizeof t->id);
    buf_out_bytes(&b, t->secret, sizeof t->secret);
    check_bytes(bytes + b.used, bytes, b.used);
    memcpy(out, TOKEN_PREFIX, sizeof TOKEN_PREFIX - 1);
    token_base32(out + sizeof TOKEN_PREFIX - 1, bytes, sizeof bytes);
    sodium_memzero(bytes, sizeof bytes);
}

/* The prefix, forgiving as the rest; the text after it, or NULL. */
static const char *skip_prefix(const char *text)
{
    static const char prefix[] = "RINGD1-";

    while (*text == ' ')
        text++;
    for (size_t i = 0; i < sizeof prefix - 1; i++) {
        char c = text[i] >= 'a' && text[i] <= 'z' ? (char)(text[i] - 'a' + 'A') : text[i];

        if (c != prefix[i])
            return NULL;
    }
    return text + sizeof prefix - 1;
}

static int read_digits(const char *text, uint8_t bytes[static TOKEN_BYTES])
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t n = 0, count = 0;

    for (; *text; text++) {
        int d = digit(*text);

        if (*text == '-' || *text == ' ' || *text == '\n' || *text == '\r')
            continue;
        if (d < 0 || ++count > TOKEN_TEXT - sizeof TOKEN_PREFIX)
            return -EINVAL;
        bits = bits << 5 | (uint32_t)d;
        have += 5;
        if (have >= 8 && n < TOKEN_BYTES) {
            have -= 8;
            bytes[n++] = (uint8_t)(bits >> have);
        }
    }
    if (n != TOKEN_BYTES || count != TOKEN_TEXT - sizeof TOKEN_PREFIX)
        return -EINVAL;
    return bits & ((1u << have) - 1) ? -EBADMSG : 0; /* one token has one form */
}

int token_read(const char *text, struct token *ret)
{
    uint8_t bytes[TOKEN_BYTES], sum[2];
    const char *rest = skip_prefix(text);
    struct buf_in b;
    int r = rest ? read_digits(rest, bytes) : -EINVAL;

    if (r < 0)
        return r;
    check_bytes(sum, bytes, TOKEN_BYTES - sizeof sum);
    if (memcmp(sum, bytes + TOKEN_BYTES - sizeof sum, sizeof sum) != 0) {
        sodium_memzero(bytes, sizeof bytes);
        return -EBADMSG;
    }
    buf_in_init(&b, bytes, sizeof bytes);
    buf_in_bytes(&b, ret->cluster_id, sizeof ret->cluster_id);
    buf_in_bytes(&b, ret->id, sizeof ret->id);
    buf_in_bytes(&b, ret->secret, sizeof ret->secret);
    sodium_memzero(bytes, sizeof bytes);
    return 0;
}

static int make_pair(const struct token *t, struct auth_pair *ret)
{
    uint8_t seed[AUTH_SEED];
    int r;

    derive(seed, sizeof seed, t->secret, sizeof t->secret, "ringd/1 claim");
    r = auth_pair_from_seed(ret, seed);
    sodium_memzero(seed, sizeof seed);
    return r;
}

void token_derive(const struct token *t, struct token_keys *ret)
{
    struct auth_pair pair = {.sign_pub = {0}};

    (void)make_pair(t, &pair); /* without libsodium nobody can prove anything */
    memcpy(ret->sign_pub, pair.sign_pub, sizeof ret->sign_pub);
    sodium_memzero(&pair, sizeof pair);
    derive(ret->psk, sizeof ret->psk, t->secret, sizeof t->secret, "ringd/1 join");
    derive(ret->question, sizeof ret->question, t->secret, sizeof t->secret, "ringd/1 find");
    derive(ret->answer, sizeof ret->answer, t->secret, sizeof t->secret, "ringd/1 here");
}

/* --- what a joiner says --- */

enum { CLAIM_MAX = TOKEN_ID + AUTH_KEY + AUTH_HASH + CERT_NAME - 1 };

static int claim_text(const struct token_claim *claim, uint8_t out[static CLAIM_MAX])
{
    struct buf_out o;

    buf_out_init(&o, out, CLAIM_MAX);
    buf_out_bytes(&o, claim->token, TOKEN_ID);
    buf_out_bytes(&o, claim->pub, AUTH_KEY);
    buf_out_bytes(&o, claim->hash, AUTH_HASH);
    buf_out_bytes(&o, claim->name, strlen(claim->name));
    return buf_out_size(&o);
}

int token_prove(const struct token *t, const struct token_claim *claim, uint8_t ret[static AUTH_SIGNATURE])
{
    struct auth_pair pair;
    uint8_t text[CLAIM_MAX];
    int n = claim_text(claim, text), r = n < 0 ? -EINVAL : make_pair(t, &pair);

    if (!r)
        r = auth_pair_sign(&pair, AUTH_JOIN, text, (size_t)n, ret);
    sodium_memzero(&pair, sizeof pair);
    return r;
}

bool token_is_proof(const struct token_keys *keys, const struct token_claim *claim,
                    const uint8_t proof[static AUTH_SIGNATURE])
{
    uint8_t text[CLAIM_MAX];
    int n = claim_text(claim, text);

    return n >= 0 && auth_verify(keys->sign_pub, AUTH_JOIN, text, (size_t)n, proof);
}

/* --- the list --- */

bool token_is_live(const struct token_entry *e, uint64_t now_s)
{
    return !e->used && now_s < e->expires_s;
}

static void forget(struct token_book *b, size_t i)
{
    b->at[i] = b->at[--b->n];
    sodium_memzero(&b->at[b->n], sizeof b->at[b->n]);
}

void token_book_purge(struct token_book *b, uint64_t now_s)
{
    for (size_t i = b->n; i-- > 0;)
        if (now_s >= b->at[i].expires_s && now_s - b->at[i].expires_s >= TOKEN_AFTERLIFE_S)
            forget(b, i);
}

/* A place, at the cost of a token that lets nobody in any more. */
static struct token_entry *free_place(struct token_book *b, uint64_t now_s)
{
    size_t dead = b->n;

    if (b->n < TOKENS_MAX)
        return &b->at[b->n++];
    for (size_t i = 0; i < b->n; i++)
        if (!token_is_live(&b->at[i], now_s) && (dead == b->n || b->at[i].expires_s < b->at[dead].expires_s))
            dead = i;
    return dead < b->n ? &b->at[dead] : NULL;
}

int token_book_add(struct token_book *b, const struct token *t, uint64_t now_s, uint64_t ttl_s)
{
    struct token_entry *e;

    token_book_purge(b, now_s);
    if (!(e = free_place(b, now_s)))
        return -ENOSPC;
    *e = (struct token_entry){.expires_s = now_s + ttl_s};
    memcpy(e->id, t->id, sizeof e->id);
    token_derive(t, &e->keys);
    return 0;
}

struct token_entry *token_book_find(struct token_book *b, const uint8_t id[static TOKEN_ID])
{
    for (size_t i = 0; i < b->n; i++)
        if (memcmp(b->at[i].id, id, TOKEN_ID) == 0)
            return &b->at[i];
    return NULL;
}

enum token_verdict token_book_use(struct token_book *b, const uint8_t id[static TOKEN_ID],
                                  const uint8_t node_id[static CERT_ID], uint64_t now_s)
{
    struct token_entry *e = token_book_find(b, id);

    if (!e)
        return TOKEN_NONE;
    if (e->used && memcmp(e->used_by, node_id, CERT_ID) != 0)
        return TOKEN_USED;
    if (now_s >= e->expires_s)
        return TOKEN_EXPIRED;
    if (e->used)
        return TOKEN_AGAIN;
    e->used = true;
    memcpy(e->used_by, node_id, CERT_ID);
    return TOKEN_OK;
}

int token_book_encode(const struct token_book *b, uint8_t *out, size_t cap)
{
    struct buf_out o;

    buf_out_init(&o, out, cap);
    buf_out_bytes(&o, book_magic, sizeof book_magic);
    buf_out_u16(&o, (uint16_t)b->n);
    for (size_t i = 0; i < b->n; i++) {
        const struct token_entry *e = &b->at[i];

        buf_out_bytes(&o, e->id, sizeof e->id);
        buf_out_bytes(&o, e->keys.psk, sizeof e->keys.psk);
        buf_out_bytes(&o, e->keys.question, sizeof e->keys.question);
        buf_out_bytes(&o, e->keys.answer, sizeof e->keys.answer);
        buf_out_bytes(&o, e->keys.sign_pub, sizeof e->keys.sign_pub);
        buf_out_u64(&o, e->expires_s);
        buf_out_u8(&o, e->used);
        buf_out_bytes(&o, e->used_by, sizeof e->used_by);
    }
    return buf_out_size(&o);
}

int token_book_decode(const uint8_t *data, size_t n, struct token_book *ret)
{
    struct token_book b = {.n = 0};
    uint8_t mark[sizeof book_magic];
    struct buf_in in;

    buf_in_init(&in, data, n);
    buf_in_bytes(&in, mark, sizeof mark);
    b.n = buf_in_u16(&in);
    if (in.bad || memcmp(mark, book_magic, sizeof mark) != 0 || b.n > TOKENS_MAX)
        return -EPROTO;
    for (size_t i = 0; i < b.n; i++) {
        struct token_entry *e = &b.at[i];
        uint8_t used;

        buf_in_bytes(&in, e->id, sizeof e->id);
        buf_in_bytes(&in, e->keys.psk, sizeof e->keys.psk);
        buf_in_bytes(&in, e->keys.question, sizeof e->keys.question);
        buf_in_bytes(&in, e->keys.answer, sizeof e->keys.answer);
        buf_in_bytes(&in, e->keys.sign_pub, sizeof e->keys.sign_pub);
        e->expires_s = buf_in_u64(&in);
        used = buf_in_u8(&in);
        e->used = used;
        buf_in_bytes(&in, e->used_by, sizeof e->used_by);
        if (in.bad || used > 1)
            return -EPROTO;
    }
    if (!buf_in_is_done(&in))
        return -EPROTO;
    *ret = b;
    return 0;
}
