/* SPDX-License-Identifier: MIT
 *
 * Messages: straight to a neighbour, whose connection says who it is; in a signed envelope to
 * everybody else, handed on by the nodes between. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/envelope.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/peer/peers_impl.h"

/* --- ours --- */

/* Bytes of a message once it is read: a timeline of 1 MiB takes half of it. */
enum { READ_MAX = 24 << 20 };

struct local_message {
    struct peers *p;
    json_t *body;
};

static void deliver_local(void *arg)
{
    struct local_message *l = arg;
    l->p->s.ops->message(l->p->s.owner, members_self(l->p->s.members)->id, l->body);
    json_decref(l->body);
    free(l);
}

static struct session *way_to(struct peers *p, const uint8_t to[16], bool *ret_is_neighbour)
{
    const struct member *hop = members_next_hop(p->s.members, to);
    *ret_is_neighbour = hop && !memcmp(hop->id, to, 16);
    return hop ? peers_session_with(p, hop->id, NULL) : NULL;
}

static int send_text(struct peers *p, const uint8_t to[16], const char *text, size_t n)
{
    bool is_neighbour;
    struct session *s = way_to(p, to, &is_neighbour);
    uint8_t *data;
    size_t size;
    if (!s)
        return -EHOSTUNREACH;
    if (is_neighbour)
        return link_send(s->link, FRAME_MESSAGE, text, n);
    int r = envelopes_seal(p->envelopes, to, text, n, &data, &size);
    if (r)
        return r;
    r = link_send(s->link, FRAME_ROUTED, data, size);
    explicit_bzero(data, size);
    free(data);
    return r;
}

int peers_send(struct peers *p, const uint8_t to[16], json_t *body)
{
    if (!memcmp(to, members_self(p->s.members)->id, 16)) {
        struct local_message *l = xmalloc(sizeof *l);
        *l = (struct local_message){p, body};
        mailbox_post(p->s.mailbox, deliver_local, l);
        return 0;
    }
    char *text = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(body);
    if (!text)
        return -ENOMEM;
    int r = send_text(p, to, text, strlen(text));
    explicit_bzero(text, strlen(text)); /* what makes a token good may be in it */
    free(text);
    return r;
}

void peers_broadcast(struct peers *p, json_t *body)
{
    for (size_t i = 1; i < members_count(p->s.members); i++) {
        const struct member *m = members_at(p->s.members, i);
        if (members_reachable(p->s.members, m->id))
            peers_send(p, m->id, json_incref(body));
    }
    json_decref(body);
}

/* --- theirs --- */

uint64_t peers_forged(const struct peers *p)
{
    return envelopes_count(p->envelopes, ENVELOPE_FORGED) + envelopes_count(p->envelopes, ENVELOPE_REPEATED);
}

/* At most what a text takes once it is read: of empty objects a hundred times its length. */
static size_t bytes_once_read(const uint8_t *text, size_t n)
{
    enum { OBJECT = 320, ARRAY = 160, VALUE = 48 };
    size_t bytes = n;
    bool is_quoted = false;
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = text[i];
        if (c == '"')
            is_quoted = !is_quoted;
        else if (is_quoted && c == '\\')
            i++;
        else if (!is_quoted)
            bytes += c == '{' ? OBJECT : c == '[' ? ARRAY : c == ',' || c == ':' ? VALUE : 0;
    }
    return bytes;
}

/* A field that stands there twice has no meaning that all readers agree on. */
static void deliver(struct peers *p, const uint8_t from[16], const uint8_t *text, size_t n)
{
    if (bytes_once_read(text, n) > READ_MAX)
        return;
    json_t *body = json_loadb((const char *)text, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(body))
        p->s.ops->message(p->s.owner, from, body);
    json_decref(body);
}

void peers_take_message(struct peers *p, const struct link *link, const uint8_t *text, size_t n)
{
    uint8_t from[16]; /* the link may go with what it said */
    memcpy(from, link_peer(link)->node_id, sizeof from);
    if (envelopes_admit(p->envelopes, cluster_roster(p->s.cluster), from))
        deliver(p, from, text, n);
}

static void tell_forged(const struct peers *p, const struct link *link)
{
    if (peers_forged(p) == 1)
        log_warning("%s sent a message that its author did not write, or not again: it was dropped; the next "
                    "ones are dropped unlogged",
                    link_peer(link)->name);
}

static void pass_on(struct peers *p, const uint8_t to[16], const uint8_t *data, size_t n)
{
    bool is_neighbour;
    struct session *s = way_to(p, to, &is_neighbour);
    if (!s)
        return;
    uint8_t *copy = xmemdup(data, n);
    copy[0]--;
    link_send(s->link, FRAME_ROUTED, copy, n);
    free(copy);
}

void peers_take_routed(struct peers *p, const struct link *link, const uint8_t *data, size_t n)
{
    struct envelope v;
    switch (envelopes_take(p->envelopes, cluster_roster(p->s.cluster), data, n, &v)) {
    case ENVELOPE_OURS: deliver(p, v.from, v.text, v.n); return;
    case ENVELOPE_PASSES: pass_on(p, v.to, data, n); return;
    case ENVELOPE_FORGED:
    case ENVELOPE_REPEATED: tell_forged(p, link); return;
    default: return; /* who restarts or is removed has messages under way */
    }
}
