/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/envelope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "net/buf.h"
#include "net/base/replay.h"

enum {
    AT_SIGNATURE = 1,
    AT_KEY = AT_SIGNATURE + AUTH_SIGNATURE,
    AT_SIGNED = AT_KEY + AUTH_KEY, /* from here on to the end; `ttl` changes on the way */
};

/* What is signed: the head, and the hash of the text. So it is short, and whoever holds the key can
 * see who the author is. */
static void write_statement(uint8_t ret[static ENVELOPE_STATEMENT], const uint8_t *data, size_t n)
{
    memcpy(ret, data + AT_SIGNED, ENVELOPE_HEAD - AT_SIGNED);
    auth_hash(ret + (ENVELOPE_HEAD - AT_SIGNED), data + ENVELOPE_HEAD, n - ENVELOPE_HEAD);
}

/* One life of an author: its messages have numbers of their own. */
struct author_life {
    uint64_t boot; /* 0 = none */
    struct replay heard;
};
struct author {
    uint8_t id[16];
    bool used;
    uint64_t forgotten; /* the latest life that has lost its place: it and those before stay silent */
    struct author_life lives[ENVELOPE_LIVES];
};
struct envelopes {
    const struct auth_identity *identity; /* borrowed */
    struct members *members;              /* borrowed */
    uint64_t number;                      /* of our last one */
    uint64_t counts[ENVELOPE_VERDICTS];
    struct author at[ROSTER_MAX]; /* 75 KiB, however much is said */
};

struct envelopes *envelopes_new(const struct auth_identity *id, struct members *m)
{
    struct envelopes *e = xcalloc(1, sizeof *e);
    e->identity = id;
    e->members = m;
    return e;
}

void envelopes_free(struct envelopes *e)
{
    free(e);
}

uint64_t envelopes_count(const struct envelopes *e, enum envelope_verdict verdict)
{
    return e->counts[verdict];
}

/* --- ours --- */

int envelopes_seal(struct envelopes *e, const uint8_t to[static 16], const void *text, size_t n,
                   uint8_t **ret, size_t *ret_n)
{
    const struct member *self = members_self(e->members), *other = members_find(e->members, to);
    if (!other)
        return -EHOSTUNREACH;
    if (n > ENVELOPE_TEXT_MAX)
        return -EMSGSIZE;
    uint8_t *data = xcalloc(1, ENVELOPE_HEAD + n);
    struct buf_out out;
    buf_out_init(&out, data, ENVELOPE_HEAD + n);
    buf_out_u8(&out, ENVELOPE_TTL);
    out.used += AUTH_SIGNATURE;
    buf_out_bytes(&out, e->identity->sign_pub, AUTH_KEY);
    buf_out_bytes(&out, to, 16);
    buf_out_u64(&out, other->boot);
    buf_out_bytes(&out, self->id, 16);
    buf_out_u64(&out, self->boot);
    buf_out_u64(&out, ++e->number);
    buf_out_bytes(&out, text, n);
    int r = buf_out_size(&out);
    if (r > 0) {
        uint8_t statement[ENVELOPE_STATEMENT];
        write_statement(statement, data, ENVELOPE_HEAD + n);
        r = e->identity->sign(e->identity->holder, AUTH_MESSAGE, statement, sizeof statement,
                              data + AT_SIGNATURE);
    }
    if (r) {
        free(data);
        return r;
    }
    *ret = data;
    *ret_n = ENVELOPE_HEAD + n;
    return 0;
}

/* --- theirs --- */

int envelope_decode(const uint8_t *data, size_t n, struct envelope *ret)
{
    struct envelope v = {.ttl = 0};
    struct buf_in in;
    buf_in_init(&in, data, n);
    v.ttl = buf_in_u8(&in);
    buf_in_view(&in, AUTH_SIGNATURE + AUTH_KEY);
    buf_in_bytes(&in, v.to, sizeof v.to);
    v.to_boot = buf_in_u64(&in);
    buf_in_bytes(&in, v.from, sizeof v.from);
    v.from_boot = buf_in_u64(&in);
    v.number = buf_in_u64(&in);
    if (in.bad || n > LINK_FRAME_MAX || v.ttl > ENVELOPE_TTL || !v.from_boot || !v.number)
        return -EBADMSG;
    v.text = in.at;
    v.n = in.left;
    *ret = v;
    return 0;
}

static const struct roster_entry *member_of(const struct roster *roster, const uint8_t id[static 16])
{
    const struct roster_entry *entry = roster ? roster_find(roster, id) : NULL;
    return entry && entry->status == ROSTER_ACTIVE ? entry : NULL;
}

/* There are as many places as a roster has; one is free whose node has left it. */
static struct author *author_of(struct envelopes *e, const struct roster *roster, const uint8_t id[static 16])
{
    struct author *place = NULL;
    for (size_t i = 0; i < ROSTER_MAX; i++) {
        struct author *a = &e->at[i];
        if (a->used && !memcmp(a->id, id, 16))
            return a;
        if (!place && (!a->used || !roster_find(roster, a->id)))
            place = a;
    }
    if (place) {
        *place = (struct author){.used = true};
        memcpy(place->id, id, 16);
    }
    return place;
}

static struct author_life *life_of(struct author *a, uint64_t boot)
{
    struct author_life *first = &a->lives[0];
    for (size_t i = 0; i < ENVELOPE_LIVES; i++) {
        if (a->lives[i].boot == boot)
            return &a->lives[i];
        if (a->lives[i].boot < first->boot)
            first = &a->lives[i];
    }
    if (boot <= a->forgotten || boot < first->boot)
        return NULL;
    if (first->boot > a->forgotten)
        a->forgotten = first->boot;
    *first = (struct author_life){.boot = boot};
    return first;
}

/* Both ends are in the lives the message was written in: else a recording would be news to a node
 * that has restarted, and what was held back would arrive in a later life of its author. */
static bool is_of_this_life(const struct envelopes *e, const struct envelope *v)
{
    const struct member *author = members_find(e->members, v->from);
    return v->to_boot == members_self(e->members)->boot && (!author || v->from_boot >= author->boot);
}

static enum envelope_verdict judge(struct envelopes *e, const struct roster *roster, const uint8_t *data,
                                   size_t n, struct envelope *v)
{
    const uint8_t *self = members_self(e->members)->id;
    if (envelope_decode(data, n, v) || !memcmp(v->from, self, 16))
        return ENVELOPE_BROKEN; /* our own take no way over others: it is forged, or goes in circles */
    const struct roster_entry *author = member_of(roster, v->from);
    if (!author)
        return ENVELOPE_STRANGER;
    if (memcmp(v->to, self, 16))
        return v->ttl ? ENVELOPE_PASSES : ENVELOPE_BROKEN;
    if (!is_of_this_life(e, v))
        return ENVELOPE_STALE;
    uint8_t statement[ENVELOPE_STATEMENT];
    write_statement(statement, data, n);
    if (!auth_is_signer(data + AT_KEY, author->pub) ||
        !auth_verify(data + AT_KEY, AUTH_MESSAGE, statement, sizeof statement, data + AT_SIGNATURE))
        return ENVELOPE_FORGED;
    struct author *a = author_of(e, roster, v->from);
    struct author_life *life = a ? life_of(a, v->from_boot) : NULL;
    if (!life || !replay_is_new(&life->heard, v->number))
        return ENVELOPE_REPEATED;
    replay_note(&life->heard, v->number);
    return ENVELOPE_OURS;
}

enum envelope_verdict envelopes_take(struct envelopes *e, const struct roster *roster, const uint8_t *data,
                                     size_t n, struct envelope *ret)
{
    const enum envelope_verdict verdict = judge(e, roster, data, n, ret);
    e->counts[verdict]++;
    return verdict;
}

bool envelopes_admit(struct envelopes *e, const struct roster *roster, const uint8_t from[static 16])
{
    const bool is_member = member_of(roster, from);
    e->counts[ENVELOPE_STRANGER] += !is_member;
    return is_member;
}
