/* SPDX-License-Identifier: MIT
 *
 * Records as they travel: text, its owner's signature, its age. Every node keeps the latest of each
 * other as it came, to hand it on; nobody can say anything in another's name. Owns those copies.
 * PURE but for the time given in. */
#ifndef DAEMON_RECORD_H
#define DAEMON_RECORD_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/cluster/members.h"
#include "net/auth.h"
#include "net/roster.h"

enum { RECORD_HEAD = AUTH_SIGNATURE + AUTH_KEY + 4, RECORD_MAX = 16384 };

struct records;

struct records *records_new(const struct auth_identity *id, struct members *m); /* both borrowed */
void records_free(struct records *r);

/* Our own record as it is now, signed, to be sent by records_write. */
int records_sign_self(struct records *r, struct instant now);
/* The latest record of a node with its present age: its length (it may be above cap, then nothing
 * is written), 0 = none. */
size_t records_write(const struct records *r, const uint8_t id[16], struct instant now, uint8_t *out,
                     size_t cap);

enum record_verdict {
    RECORD_NEWS,   /* members have learnt it; hand it on */
    RECORD_KNOWN,  /* or older */
    RECORD_BROKEN, /* cannot be read, or there is no room for another node */
    RECORD_FORGED, /* not signed by the member it speaks of */
    RECORD_TWIN,   /* signed with our own identity, by somebody else */
};
/* `ret_id`: whom it speaks of, with NEWS and FORGED. One signature is checked, and only for what
 * would be news. */
enum record_verdict records_take(struct records *r, const struct roster *roster, const uint8_t *body,
                                 size_t n, struct instant now, uint8_t ret_id[static 16]);
uint64_t records_forged(const struct records *r); /* how many so far */

#endif
