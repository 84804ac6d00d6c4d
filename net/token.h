/* SPDX-License-Identifier: MIT
 *
 * Tokens: the one line that lets a new node into a cluster, what follows from its secret, and the
 * list of those given out. A token names the cluster by the hash of its key, so that the joiner can
 * check the cluster before showing the secret; of its secret only derivations are kept. PURE: time
 * (wall clock, seconds) and randomness are given in; any thread. PROTOCOL.md §5 has the bytes. */
#ifndef NET_TOKEN_H
#define NET_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auth.h"
#include "cert.h"

#define TOKEN_PREFIX "ringd1-"
enum {
    TOKEN_ID = 4,
    TOKEN_SECRET = 16,
    TOKEN_BYTES = CERT_ID + TOKEN_ID + TOKEN_SECRET + 2,
    TOKEN_TEXT = 7 + (TOKEN_BYTES * 8 + 4) / 5 + 1, /* "ringd1-", 61 characters, NUL */
    TOKEN_TAG = 16,
    TOKENS_MAX = 64,           /* remembered at a time */
    TOKEN_AFTERLIFE_S = 86400, /* a token spent or expired is remembered so long, to be refused in words */
};

struct token {
    uint8_t cluster_id[CERT_ID]; /* BLAKE2b-128 of the cluster's key */
    uint8_t id[TOKEN_ID];
    uint8_t secret[TOKEN_SECRET];
};
void token_write(const struct token *t, char out[static TOKEN_TEXT]);
/* Forgives case, spaces and dashes, and O I L for 0 1 1. −EINVAL: not a token at all, −EBADMSG: a
 * slip in it (the checksum). */
int token_read(const char *text, struct token *ret);
/* Crockford's base32 of n bytes, NUL-terminated: `out` holds (8 n + 4) / 5 + 1. */
void token_base32(char *out, const uint8_t *data, size_t n);

/* What is made of a secret: all that an authority keeps, and others need in order to find the
 * joiner and to check what it says. None of it lets anybody in. */
struct token_keys {
    uint8_t psk[32]; /* of the join link's handshake */
    uint8_t question
        [TOKEN_TAG]; /* JOINQ: "who knows this token?" (PROTOCOL.md, Enrolment: a datagram of type 3) */
    uint8_t answer[TOKEN_TAG];  /* JOINA: "I do" (type 4); whoever only heard the question cannot say it */
    uint8_t sign_pub[AUTH_KEY]; /* of the pair that the joiner signs its claim with */
};
void token_derive(const struct token *t, struct token_keys *ret);

/* What a joiner says, and nobody can say who knows only what follows from the secret: this node
 * wants to come in, by this name, over the connection with this handshake hash. */
struct token_claim {
    const uint8_t *token;      /* borrowed: TOKEN_ID */
    const uint8_t *pub, *hash; /* borrowed: AUTH_KEY and AUTH_HASH */
    const char *name;          /* borrowed: shorter than CERT_NAME */
};
int token_prove(const struct token *t, const struct token_claim *claim,
                uint8_t ret[static AUTH_SIGNATURE]); /* −EIO, −EINVAL */
bool token_is_proof(const struct token_keys *keys, const struct token_claim *claim,
                    const uint8_t proof[static AUTH_SIGNATURE]);

struct token_entry {
    uint8_t id[TOKEN_ID];
    struct token_keys keys;
    uint64_t expires_s;
    bool used;
    uint8_t used_by[CERT_ID]; /* node id */
};
struct token_book {
    size_t n;
    struct token_entry at[TOKENS_MAX];
};

/* −ENOSPC: TOKENS_MAX live ones. Spent ones make room for it. */
int token_book_add(struct token_book *b, const struct token *t, uint64_t now_s, uint64_t ttl_s);
struct token_entry *token_book_find(struct token_book *b, const uint8_t id[static TOKEN_ID]);
bool token_is_live(const struct token_entry *e, uint64_t now_s); /* may let somebody in */

enum token_verdict { TOKEN_OK, TOKEN_AGAIN, TOKEN_NONE, TOKEN_EXPIRED, TOKEN_USED };
/* May this node come in by it? On TOKEN_OK it is used from now on, by this node alone. TOKEN_AGAIN:
 * this node has used it before; who lost the answer may ask again until it expires. */
enum token_verdict token_book_use(struct token_book *b, const uint8_t id[static TOKEN_ID],
                                  const uint8_t node_id[static CERT_ID], uint64_t now_s);
/* Forgets what has been dead for TOKEN_AFTERLIFE_S. */
void token_book_purge(struct token_book *b, uint64_t now_s);

enum {
    TOKEN_ENTRY_BYTES = TOKEN_ID + 32 + 2 * TOKEN_TAG + AUTH_KEY + 8 + 1 + CERT_ID,
    TOKEN_BOOK_BYTES = 4 + 2 + TOKENS_MAX * TOKEN_ENTRY_BYTES
};
/* As kept on disk. Bytes written or −ENOBUFS; −EPROTO. */
int token_book_encode(const struct token_book *b, uint8_t *out, size_t cap);
int token_book_decode(const uint8_t *data, size_t n, struct token_book *ret);

#endif
