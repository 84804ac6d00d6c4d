/* SPDX-License-Identifier: MIT
 *
 * Signing and checking of records, and the copies that are handed on. Called by the control
 * connections, on the loop. PROTOCOL.md §5.1 has the bytes. */
#include "daemon/ringd/cluster/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

struct copy {
    uint8_t id[16], key[AUTH_KEY]; /* key: shown to be the node's, with has_key */
    bool has_key;
    uint8_t *bytes; /* owned; RECORD_HEAD and text */
    size_t n;
    struct instant said;
};
struct records {
    const struct auth_identity *identity; /* borrowed */
    struct members *members;              /* borrowed */
    uint64_t forged;
    size_t n;
    struct copy at[RING_MAX_NODES];
};

struct records *records_new(const struct auth_identity *id, struct members *m)
{
    struct records *r = xcalloc(1, sizeof *r);
    r->identity = id;
    r->members = m;
    return r;
}

void records_free(struct records *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        free(r->at[i].bytes);
    free(r);
}

uint64_t records_forged(const struct records *r)
{
    return r->forged;
}

/* --- copies --- */

static struct copy *find(const struct records *r, const uint8_t id[16])
{
    for (size_t i = 0; i < r->n; i++)
        if (!memcmp(r->at[i].id, id, 16))
            return (struct copy *)&r->at[i];
    return NULL;
}

/* There are as many places as members have, and those they forgot are free. */
static struct copy *place_for(struct records *r, const uint8_t id[16])
{
    struct copy *c = find(r, id);
    for (size_t i = 0; !c && r->n == RING_MAX_NODES && i < r->n; i++)
        if (!members_find(r->members, r->at[i].id))
            c = &r->at[i];
    if (!c && r->n < RING_MAX_NODES)
        c = &r->at[r->n++];
    if (c && memcmp(c->id, id, 16)) {
        free(c->bytes);
        *c = (struct copy){.n = 0};
        memcpy(c->id, id, 16);
    }
    return c;
}

static void keep(struct copy *c, uint8_t *bytes, size_t n, struct instant said)
{
    free(c->bytes);
    c->bytes = bytes;
    c->n = n;
    c->said = said;
}

size_t records_write(const struct records *r, const uint8_t id[16], struct instant now, uint8_t *out,
                     size_t cap)
{
    const struct copy *c = find(r, id);
    uint64_t age_ms = c ? clock_since_us(now, c->said) / 1000 : 0;
    uint32_t age = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX;
    if (!c || c->n > cap)
        return c ? c->n : 0;
    memcpy(out, c->bytes, c->n);
    for (size_t i = 0; i < 4; i++)
        out[AUTH_SIGNATURE + AUTH_KEY + i] = (uint8_t)(age >> 8 * i);
    return c->n;
}

/* --- ours --- */

int records_sign_self(struct records *r, struct instant now)
{
    const struct member *self = members_self(r->members);
    json_t *record = member_encode(self);
    char *text = record ? json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    size_t n = text ? strlen(text) : 0;
    struct copy *c = place_for(r, self->id);
    json_decref(record);
    if (!c || !n || RECORD_HEAD + n > RECORD_MAX) {
        free(text);
        return -EMSGSIZE;
    }
    uint8_t *bytes = xcalloc(1, RECORD_HEAD + n);
    int rc = r->identity->sign(r->identity->holder, AUTH_RECORD, text, n, bytes);
    memcpy(bytes + AUTH_SIGNATURE, r->identity->sign_pub, AUTH_KEY);
    memcpy(bytes + RECORD_HEAD, text, n);
    free(text);
    keep(c, bytes, RECORD_HEAD + n, now);
    return rc;
}

/* --- theirs --- */

/* The key shown in the record belongs to the member of that id, and has signed the text. The first
 * is remembered. */
static bool is_genuine(const struct records *r, const struct roster_entry *e, const uint8_t id[16],
                       const uint8_t *body, size_t n)
{
    const uint8_t *key = body + AUTH_SIGNATURE;
    struct copy *c = find(r, id);
    if (!e || e->status != ROSTER_ACTIVE)
        return false;
    if (!(c && c->has_key && !memcmp(c->key, key, AUTH_KEY)) && !auth_is_signer(key, e->pub))
        return false;
    return auth_verify(key, AUTH_RECORD, body + RECORD_HEAD, n - RECORD_HEAD, body);
}

static struct instant said_at(const uint8_t *body, struct instant now)
{
    uint64_t age_us = 0;
    for (size_t i = 0; i < 4; i++)
        age_us |= (uint64_t)body[AUTH_SIGNATURE + AUTH_KEY + i] << 8 * i;
    age_us *= 1000;
    return (struct instant){now.us > age_us ? now.us - age_us : 0};
}

/* A node is called what its certificate says, which no other node has: people name nodes. */
static enum record_verdict take(struct records *r, json_t *record, const struct roster_entry *e,
                                const struct member *who, const uint8_t *body, size_t n, struct instant said)
{
    json_object_set_new(record, "name", json_string(e->name));
    int rc = members_learn(r->members, record, said);
    if (rc == -EEXIST)
        return RECORD_TWIN;
    if (rc <= 0)
        return rc < 0 ? RECORD_BROKEN : RECORD_KNOWN;
    struct copy *c = place_for(r, who->id);
    if (!c)
        return RECORD_BROKEN;
    memcpy(c->key, body + AUTH_SIGNATURE, AUTH_KEY);
    c->has_key = true;
    keep(c, xmemdup(body, n), n, said);
    return RECORD_NEWS;
}

enum record_verdict records_take(struct records *r, const struct roster *roster, const uint8_t *body,
                                 size_t n, struct instant now, uint8_t ret_id[static 16])
{
    struct member who;
    enum record_verdict verdict = RECORD_BROKEN;
    if (n <= RECORD_HEAD || n > RECORD_MAX)
        return RECORD_BROKEN;
    json_t *record =
        json_loadb((const char *)body + RECORD_HEAD, n - RECORD_HEAD, JSON_REJECT_DUPLICATES, NULL);
    if (record && !member_decode(&who, record)) {
        const struct roster_entry *e = roster ? roster_find(roster, who.id) : NULL;
        memcpy(ret_id, who.id, 16);
        if (!members_is_news(r->members, &who))
            verdict = RECORD_KNOWN;
        else if (is_genuine(r, e, who.id, body, n))
            verdict = take(r, record, e, &who, body, n, said_at(body, now));
        else
            verdict = RECORD_FORGED;
    }
    r->forged += verdict == RECORD_FORGED;
    json_decref(record);
    return verdict;
}
