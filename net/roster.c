/* SPDX-License-Identifier: MIT
 *
 * The roster's bytes and its rules. Owns nothing; called by the daemon's cluster code, on the
 * loop. */
#include "roster.h"

#include "auth.h"
#include "buf.h"
#include "wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const uint8_t magic[4] = {'R', 'G', 'R', '1'}; /* unlike a certificate's: one key signs both */
enum { FLAG_AUTHORITY = 1 };

/* --- bytes --- */

static bool is_name(const char *name, size_t n)
{
    return n > 0 && n < CERT_NAME && wire_is_text(name, n);
}

static int put_name(struct buf_out *b, const char *name)
{
    size_t n = strnlen(name, CERT_NAME);

    if (!is_name(name, n))
        return -EINVAL;
    buf_out_u8(b, (uint8_t)n);
    buf_out_bytes(b, name, n);
    return 0;
}

static void take_name(struct buf_in *b, char to[static CERT_NAME])
{
    uint8_t n = buf_in_u8(b);
    const uint8_t *text = buf_in_view(b, n);

    memset(to, 0, CERT_NAME);
    if (b->bad || !is_name((const char *)text, n))
        b->bad = true;
    else
        memcpy(to, text, n);
}

static int put_entry(struct buf_out *b, const struct roster_entry *e)
{
    int r;

    buf_out_bytes(b, e->pub, sizeof e->pub);
    buf_out_u8(b, e->status);
    buf_out_u8(b, e->authority ? FLAG_AUTHORITY : 0);
    buf_out_u64(b, e->serial);
    if ((r = put_name(b, e->name)) < 0)
        return r;
    if (e->status == ROSTER_ACTIVE)
        buf_out_bytes(b, e->net_key, sizeof e->net_key);
    if (e->status == ROSTER_ACTIVE && e->authority)
        buf_out_bytes(b, e->authority_key, sizeof e->authority_key);
    return 0;
}

static void take_entry(struct buf_in *b, struct roster_entry *e)
{
    uint8_t flags;

    memset(e, 0, sizeof *e);
    buf_in_bytes(b, e->pub, sizeof e->pub);
    auth_node_id(e->id, e->pub);
    e->status = buf_in_u8(b);
    flags = buf_in_u8(b);
    e->authority = flags & FLAG_AUTHORITY;
    e->serial = buf_in_u64(b);
    take_name(b, e->name);
    if ((e->status != ROSTER_ACTIVE && e->status != ROSTER_REMOVED) || flags > FLAG_AUTHORITY)
        b->bad = true;
    if (e->status == ROSTER_ACTIVE)
        buf_in_bytes(b, e->net_key, sizeof e->net_key);
    if (e->status == ROSTER_ACTIVE && e->authority)
        buf_in_bytes(b, e->authority_key, sizeof e->authority_key);
}

int roster_sign(const struct roster *r, const uint8_t secret[static CERT_SECRET], uint8_t *out, size_t cap)
{
    uint8_t signature[CERT_SIGNATURE];
    struct buf_out b;
    int error;

    buf_out_init(&b, out, cap);
    buf_out_bytes(&b, magic, sizeof magic);
    buf_out_bytes(&b, r->cluster_id, sizeof r->cluster_id);
    buf_out_u64(&b, r->version);
    buf_out_u64(&b, r->last_serial);
    buf_out_u16(&b, r->generation);
    buf_out_u16(&b, (uint16_t)r->n);
    if ((error = put_name(&b, r->name)) < 0)
        return error;
    for (size_t i = 0; i < r->n; i++)
        if ((error = put_entry(&b, &r->at[i])) < 0)
            return error;
    if (buf_out_size(&b) < 0)
        return -ENOBUFS;
    crypto_sign_detached(signature, NULL, out, b.used, secret);
    buf_out_bytes(&b, signature, sizeof signature);
    return buf_out_size(&b);
}

static int take_head(struct buf_in *b, struct roster *r)
{
    uint8_t mark[sizeof magic];

    buf_in_bytes(b, mark, sizeof mark);
    buf_in_bytes(b, r->cluster_id, sizeof r->cluster_id);
    r->version = buf_in_u64(b);
    r->last_serial = buf_in_u64(b);
    r->generation = buf_in_u16(b);
    r->n = buf_in_u16(b);
    take_name(b, r->name);
    return b->bad || memcmp(mark, magic, sizeof magic) != 0 || r->version == 0 || r->generation == 0 ||
                   r->n > ROSTER_MAX
               ? -EPROTO
               : 0;
}

int roster_open(const uint8_t *data, size_t n, const uint8_t cluster_key[static CERT_CLUSTER_KEY],
                struct roster *ret)
{
    uint8_t id[CERT_ID];
    struct roster r = {.n = 0};
    struct buf_in b;

    if (n < CERT_SIGNATURE || n > ROSTER_BYTES_MAX)
        return -EPROTO;
    n -= CERT_SIGNATURE;
    if (crypto_sign_verify_detached(data + n, data, n, cluster_key) != 0)
        return -EBADMSG;
    buf_in_init(&b, data, n);
    if (take_head(&b, &r) < 0)
        return -EPROTO;
    cert_cluster_id(id, cluster_key);
    if (memcmp(id, r.cluster_id, sizeof id) != 0)
        return -EBADMSG;
    for (size_t i = 0, entries = r.n; i < entries; i++) {
        r.n = i; /* look for doubles among those before it */
        take_entry(&b, &r.at[i]);
        if (b.bad || roster_find(&r, r.at[i].id) || r.at[i].serial == 0 || r.at[i].serial > r.last_serial)
            return -EPROTO;
        r.n = entries;
    }
    if (!buf_in_is_done(&b))
        return -EPROTO;
    *ret = r;
    return 0;
}

bool roster_replaces(const struct roster *ra, const uint8_t *a, size_t na, const struct roster *rb,
                     const uint8_t *b, size_t nb)
{
    if (ra->version != rb->version)
        return ra->version > rb->version;
    return memcmp(a + na - CERT_SIGNATURE, b + nb - CERT_SIGNATURE, CERT_SIGNATURE) > 0;
}

/* --- looking --- */

const struct roster_entry *roster_find(const struct roster *r, const uint8_t id[static CERT_ID])
{
    for (size_t i = 0; i < r->n; i++)
        if (memcmp(r->at[i].id, id, CERT_ID) == 0)
            return &r->at[i];
    return NULL;
}

static struct roster_entry *find(struct roster *r, const uint8_t id[static CERT_ID])
{
    for (size_t i = 0; i < r->n; i++)
        if (memcmp(r->at[i].id, id, CERT_ID) == 0)
            return &r->at[i];
    return NULL;
}

const struct roster_entry *roster_named(const struct roster *r, const char *name)
{
    uint8_t id[CERT_ID];
    size_t n;

    for (size_t i = 0; i < r->n; i++)
        if (r->at[i].status == ROSTER_ACTIVE && strcmp(r->at[i].name, name) == 0)
            return &r->at[i];
    if (sodium_hex2bin(id, sizeof id, name, strlen(name), NULL, &n, NULL) == 0 && n == sizeof id &&
        strlen(name) == 2 * sizeof id)
        return roster_find(r, id);
    return NULL;
}

enum roster_verdict roster_judge(const struct roster *r, const struct cert *c)
{
    const struct roster_entry *e;
    uint8_t id[CERT_ID];

    auth_node_id(id, c->pub);
    e = roster_find(r, id);
    if (c->serial > r->last_serial)
        return ROSTER_IS_NEW;
    if (!e)
        return ROSTER_UNKNOWN;
    if (e->status != ROSTER_ACTIVE)
        return ROSTER_WAS_REMOVED;
    return c->serial == e->serial ? ROSTER_IS_MEMBER : ROSTER_OLD_CERT;
}

/* --- changing --- */

static bool is_taken(const struct roster *r, const char *name, const uint8_t id[static CERT_ID])
{
    const struct roster_entry *e = roster_named(r, name);

    return e && memcmp(e->id, id, CERT_ID) != 0;
}

/* "name", "name-2", … the first that no other active node has; cut to fit on a character's edge. */
static void choose_name(const struct roster *r, char to[static CERT_NAME], const char *wish,
                        const uint8_t id[static CERT_ID])
{
    snprintf(to, CERT_NAME, "%s", wish);
    for (unsigned i = 2; is_taken(r, to, id); i++) {
        char suffix[16];
        size_t room = CERT_NAME - 1 - (size_t)snprintf(suffix, sizeof suffix, "-%u", i), n = strlen(wish);

        if (n > room)
            for (n = room; n > 0 && ((uint8_t)wish[n] & 0xc0) == 0x80; n--)
                ;
        snprintf(to, CERT_NAME, "%.*s%s", (int)n, wish, suffix);
    }
}

/* A place for a new entry: a full roster forgets the node removed longest ago, whose certificate is
 * then ROSTER_UNKNOWN. */
static struct roster_entry *free_place(struct roster *r)
{
    struct roster_entry *oldest = NULL;

    if (r->n < ROSTER_MAX)
        return &r->at[r->n++];
    for (size_t i = 0; i < r->n; i++)
        if (r->at[i].status == ROSTER_REMOVED && (!oldest || r->at[i].serial < oldest->serial))
            oldest = &r->at[i];
    return oldest;
}

int roster_admit(struct roster *r, const uint8_t pub[static 32], const char *name,
                 const struct roster_entry **ret)
{
    uint8_t id[CERT_ID];
    struct roster_entry *e;
    char chosen[CERT_NAME];
    bool authority;

    if (!is_name(name, strnlen(name, CERT_NAME)))
        return -EINVAL;
    auth_node_id(id, pub);
    choose_name(r, chosen, name, id);
    e = find(r, id);
    authority = e && e->status == ROSTER_ACTIVE && e->authority;
    if (!e && !(e = free_place(r)))
        return -ENOSPC;
    *e = (struct roster_entry){.status = ROSTER_ACTIVE, .authority = authority, .serial = ++r->last_serial};
    memcpy(e->pub, pub, sizeof e->pub);
    memcpy(e->id, id, sizeof e->id);
    memcpy(e->name, chosen, sizeof e->name);
    r->version++;
    *ret = e;
    return 0;
}

static struct roster_entry *find_active(struct roster *r, const uint8_t id[static CERT_ID])
{
    struct roster_entry *e = find(r, id);

    return e && e->status == ROSTER_ACTIVE ? e : NULL;
}

int roster_remove(struct roster *r, const uint8_t id[static CERT_ID])
{
    struct roster_entry *e = find_active(r, id);

    if (!e)
        return -ENOENT;
    e->status = ROSTER_REMOVED;
    e->authority = false;
    memset(e->net_key, 0, sizeof e->net_key);
    memset(e->authority_key, 0, sizeof e->authority_key);
    r->generation = r->generation == UINT16_MAX ? 1 : r->generation + 1;
    r->version++;
    return 0;
}

int roster_promote(struct roster *r, const uint8_t id[static CERT_ID])
{
    struct roster_entry *e = find_active(r, id);

    if (!e)
        return -ENOENT;
    e->authority = true;
    r->version++;
    return 0;
}

/* One entry that the other roster does not have as we do. */
static bool take_back(struct roster *now, const struct roster_entry *mine)
{
    struct roster_entry *e = find(now, mine->id);

    if (!e) { /* let in by us alone; the serial stays, its certificate is out */
        if (now->n == ROSTER_MAX)
            return false; /* or forgotten by a full one */
        now->at[now->n] = *mine;
        if (mine->status == ROSTER_ACTIVE)
            choose_name(now, now->at[now->n].name, mine->name, mine->id);
        now->n++;
        return true;
    }
    if (e->serial > mine->serial || e->status != ROSTER_ACTIVE)
        return false;
    if (mine->status == ROSTER_REMOVED) {
        roster_remove(now, mine->id);
        return true;
    }
    if (e->serial == mine->serial && (e->authority || !mine->authority))
        return false;
    e->serial = mine->serial;
    e->authority = e->authority || mine->authority;
    return true;
}

bool roster_rebase(struct roster *now, const struct roster *mine)
{
    uint64_t version = now->version;
    bool taken = false;

    for (size_t i = 0; i < mine->n; i++)
        taken = take_back(now, &mine->at[i]) || taken;
    if (!taken)
        return false;
    if (mine->last_serial > now->last_serial)
        now->last_serial = mine->last_serial;
    now->version = version + 1;
    return true;
}
