/* SPDX-License-Identifier: MIT
 *
 * Messages that reach a node through others: signed by their author for one life of one node, and
 * let in once. Owns what was heard of whom; used by the control connections, on the loop. PURE but
 * for what the members say. PROTOCOL.md §5.2 has the bytes. */
#ifndef DAEMON_ENVELOPE_H
#define DAEMON_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/cluster/members.h"
#include "net/auth.h"
#include "net/link.h"
#include "net/roster.h"

enum {
    ENVELOPE_TTL = RING_MAX_NODES, /* of a new one */
    ENVELOPE_HEAD = 1 + AUTH_SIGNATURE + AUTH_KEY + 2 * 24 + 8,
    ENVELOPE_STATEMENT = 2 * 24 + 8 + AUTH_HASH, /* what is signed; the author begins at 24 */
    ENVELOPE_TEXT_MAX = LINK_FRAME_MAX - ENVELOPE_HEAD,
    ENVELOPE_LIVES = 4, /* of one author, in which a repeated message is recognized */
};

struct envelope {
    uint8_t ttl;
    uint8_t to[16], from[16];
    uint64_t to_boot, from_boot, number;
    const uint8_t *text; /* borrowed: the frame's */
    size_t n;
};
int envelope_decode(const uint8_t *data, size_t n, struct envelope *ret); /* 0, −EBADMSG */

struct envelopes;
struct envelopes *envelopes_new(const struct auth_identity *id, struct members *m); /* both borrowed */
void envelopes_free(struct envelopes *e);

/* A frame's body with `text` for that node; the caller frees it. −EHOSTUNREACH: no record of it is
 * known; −EMSGSIZE, −EIO. */
int envelopes_seal(struct envelopes *e, const uint8_t to[static 16], const void *text, size_t n,
                   uint8_t **ret, size_t *ret_n);

enum envelope_verdict {
    ENVELOPE_OURS,     /* for this node, from its author, for the first time */
    ENVELOPE_PASSES,   /* for another node: hand it on with one less in its first byte */
    ENVELOPE_BROKEN,   /* cannot be read, or has come round */
    ENVELOPE_STRANGER, /* its author is no active member */
    ENVELOPE_FORGED,   /* not signed by that member */
    ENVELOPE_STALE,    /* of an earlier life of either end */
    ENVELOPE_REPEATED, /* heard before, or too old to know */
    ENVELOPE_VERDICTS
};
/* Only ENVELOPE_OURS changes anything but the counts. */
enum envelope_verdict envelopes_take(struct envelopes *e, const struct roster *roster, const uint8_t *data,
                                     size_t n, struct envelope *ret);
/* A message that its author said over a connection of his own: is he a member still? */
bool envelopes_admit(struct envelopes *e, const struct roster *roster, const uint8_t from[static 16]);
/* How many got that verdict so far. */
uint64_t envelopes_count(const struct envelopes *e, enum envelope_verdict verdict);

#endif
