/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/peers.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/cluster/envelope.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/measure.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/peer/peers_impl.h"
#include "daemon/ringd/peer/peers_socket.h"
#include "daemon/ringd/cluster/record.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/common/xalloc.h"
#include "net/wire.h"
#include "daemon/ringd/timer.h"
#include "net/base/secret.h"
#include "daemon/common/xsecret.h"

enum {
    REFRESH_US = 900000,
    RESTLESS_US =
        10000000,      /* after a change, others may have to see our record again: they were learning of us */
    CALM_US = 5000000, /* else it is signed again so often, or twice within --dead-after */
};

/* --- who is at the other end --- */

static void remember_words(struct peers *p, const uint8_t id[16], const char *text)
{
    struct words *w;
    LIST_FOREACH (w, &p->words, next)
        if (!memcmp(w->id, id, 16))
            break;
    if (!w) {
        w = xcalloc(1, sizeof *w);
        memcpy(w->id, id, 16);
        LIST_INSERT_HEAD(&p->words, w, next);
    }
    wire_copy_text(w->text, sizeof w->text, text);
}

const char *peers_last_words(struct peers *p, const uint8_t id[16])
{
    const struct words *w;
    LIST_FOREACH (w, &p->words, next)
        if (!memcmp(w->id, id, 16))
            return w->text;
    return "";
}

static void list_links(struct peers *p)
{
    struct member *self = members_self(p->s.members);
    struct session *s;
    self->nlinks = 0;
    LIST_FOREACH (s, &p->sessions, next) {
        size_t i = 0;
        while (s->up && i < self->nlinks && memcmp(self->links[i].id, link_peer(s->link)->node_id, 16))
            i++; /* two cables to one node are one neighbour */
        if (s->up && i == self->nlinks && i < RING_MAX_NODES)
            memcpy(self->links[self->nlinks++].id, link_peer(s->link)->node_id, 16);
        if (s->up && s->cable)
            measure_link_up(p->s.measure, s->cable, s->number, link_peer(s->link)->node_id);
    }
    for (size_t i = 0; i < self->nlinks; i++)
        measure_describe(p->s.measure, &self->links[i]);
}

/* --- records ---------------------------------------------------------------------------------- */

static void send_record(struct peers *p, struct link *link, const uint8_t id[16])
{
    uint8_t body[RECORD_MAX];
    size_t n = records_write(p->s.records, id, clock_now(), body, sizeof body);
    if (n)
        link_send(link, FRAME_RECORD, body, n);
}

/* Once to each neighbour, however many cables lead to it. Of another node's record, not to those
 * that node is connected with: they have it at first hand, and where everybody is everybody's
 * neighbour (a switch) it would otherwise arrive from all of them. */
static void flood(struct peers *p, const uint8_t origin[16], const struct session *except)
{
    struct session *s;
    LIST_FOREACH (s, &p->sessions, next) {
        if (s == except || !s->up)
            continue;
        const uint8_t *to = link_peer(s->link)->node_id;
        if (peers_session_with(p, to, NULL) == s && !(except && members_linked(p->s.members, origin, to)))
            send_record(p, s->link, origin);
    }
}

static void sign_self(struct peers *p)
{
    members_touch(p->s.members);
    records_sign_self(p->s.records, clock_now());
    p->said = *members_self(p->s.members);
    p->signed_at = clock_now();
}

void peers_flood_self(struct peers *p)
{
    p->s.ops->refresh_self(p->s.owner);
    sign_self(p);
    p->changed = p->signed_at;
    flood(p, members_self(p->s.members)->id, NULL);
}

void peers_links_changed(struct peers *p)
{
    list_links(p);
    peers_flood_self(p);
    p->s.ops->changed(p->s.owner);
}

int peers_send_measure(struct peers *p, uint64_t path, const uint8_t *body, size_t n)
{
    struct session *s;
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up && s->number == path)
            return link_send(s->link, FRAME_MEASURE, body, n);
    return -ENOTCONN;
}

static void tell_forged(struct peers *p, const struct session *from, const uint8_t id[16])
{
    const struct roster *roster = cluster_roster(p->s.cluster);
    const struct roster_entry *e = roster ? roster_find(roster, id) : NULL;
    if (records_forged(p->s.records) == 1)
        log_warning("%s sent a record of %s without a member's signature: it was dropped; the next ones are "
                    "dropped unlogged",
                    link_peer(from->link)->name, e ? e->name : "a node not in the roster");
}

static void learn(struct peers *p, struct session *from, const uint8_t *body, size_t n)
{
    uint8_t id[16];
    switch (records_take(p->s.records, cluster_roster(p->s.cluster), body, n, clock_now(), id)) {
    case RECORD_NEWS:
        flood(p, id, from);
        p->s.ops->changed_soon(p->s.owner);
        p->s.ops->record(p->s.owner, id);
        break;
    case RECORD_FORGED: tell_forged(p, from, id); break;
    case RECORD_TWIN:
        log_warning("another node has our identity: was this machine's disk copied? Remove %s/identity on "
                    "one of them",
                    p->s.state_dir);
        break;
    case RECORD_KNOWN:
    case RECORD_BROKEN: break;
    }
}

/* --- what links tell us ----------------------------------------------------------------------- */

static int on_hello(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t size)
{
    struct session *s = owner;
    struct peers *p = s->p;
    const struct member *self = members_self(p->s.members);
    if (!memcmp(peer->node_id, self->id, 16)) {
        snprintf(why, size, "%s would be connected to itself: leave its own address out of --peer",
                 self->name);
        return -EINVAL;
    }
    bool enrols = enrol_is_key(link_key_tag(link));
    if (enrols != (link_kind(link) == LINK_JOIN)) {
        snprintf(why, size, "a token's secret only lets a node join");
        return -EPERM;
    }
    if (enrols)
        return enrol_hello(p->s.enrol, link, peer, why, size);
    int r = cluster_judge(p->s.cluster, link_peer_key(link), peer, why, size);
    if (r)
        return r;
    if (link_kind(link) == LINK_DATA)
        return p->s.ops->data_hello(p->s.owner, peer, why, size);
    s->cable = s->dial ? s->dial->cable : peers_cable_of(p, link, peer->node_id);
    if (s->dial) { /* the way has a name from now on, whatever becomes of this attempt */
        s->dial->known = true;
        memcpy(s->dial->id, peer->node_id, 16);
        snprintf(s->dial->name, sizeof s->dial->name, "%s", peer->name);
    }
    if (peers_is_refused(s)) {
        snprintf(why, size, "%s and %s are already connected", self->name, peer->name);
        return -EEXIST;
    }
    s->agreed = true;
    return 0;
}

/* It is no neighbour of ours that wants a session, but a connection to be passed on. */
static void on_relayed(void *owner, struct link *link)
{
    struct session *s = owner;
    struct relay *relay = s->p->s.relay;
    char address[80];
    snprintf(address, sizeof address, "%s", link_address(link));
    LIST_REMOVE(s, next);
    free(s);
    relay_accept(relay, link_surrender(link), address);
}

/* What we know of the others, but for what it has at first hand: those it is connected with in this
 * life of its own. On a switch of sixteen that is most of them, sixteen times over. */
static void tell_newcomer(struct peers *p, struct link *link)
{
    const struct members *m = p->s.members;
    const uint8_t *to = link_peer(link)->node_id;
    const struct member *known = members_find(m, to);
    bool is_same_life = known && known->boot == link_peer(link)->boot;
    for (size_t i = 1; i < members_count(m); i++) {
        const uint8_t *id = members_at(m, i)->id;
        if (memcmp(id, to, 16) && !(is_same_life && members_linked(m, id, to)))
            send_record(p, link, id);
    }
}

static void on_up(void *owner, struct link *link)
{
    struct session *s = owner;
    struct peers *p = s->p;
    if (link_kind(link) == LINK_DATA) {
        LIST_REMOVE(s, next);
        p->s.ops->data_up(p->s.owner, link);
        free(s);
        return;
    }
    if (link_kind(link) == LINK_JOIN) {
        enrol_serve(p->s.enrol, link);
        return;
    }
    if (peers_is_one_too_many(s))
        return;
    s->up = true;
    s->dials_lanes = link_dialed(link);
    peers_forget_ended(p, link_peer(link)->node_id);
    peers_send_roster(p, link);
    peers_ways_joined(p, s);
    log_peer(LOG_LEVEL_INFO, link_peer(link)->name, "connected to %s (%s)", link_peer(link)->name,
             link_address(link));
    list_links(p);
    peers_flood_self(p);
    tell_newcomer(p, link);
    p->s.ops->changed_soon(p->s.owner); /* on a switch they come in crowds as well */
}

static void on_frame(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    struct session *s = owner;
    if (link_kind(link) == LINK_JOIN)
        enrol_frame(s->p->s.enrol, link, type, body, n);
    if (!s->up)
        return;
    if (type == FRAME_ROSTER) {
        peers_learn_roster(s->p, link, body, n);
        return;
    }
    if (type == FRAME_MEASURE) {
        measure_frame(s->p->s.measure, s->number, body, n);
        return;
    }
    if (type == FRAME_RECORD) {
        learn(s->p, s, body, n);
        return;
    }
    if (type == FRAME_MESSAGE)
        peers_take_message(s->p, link, body, n);
    else if (type == FRAME_ROUTED)
        peers_take_routed(s->p, link, body, n);
}

/* A record that says nothing new only shows that its owner lives: well before the others would
 * believe it no more. */
static uint64_t calm_us(const struct peers *p)
{
    uint64_t half = (uint64_t)opts_int(p->s.opts, "dead-after") * 500000;
    return half < CALM_US ? half : CALM_US;
}

/* All connections have a heartbeat each second, each in its own time: what is new is told with the
 * first of them, and the rest carry the same record. A new one each would be sent round by
 * everybody. */
static void refresh_self(struct peers *p)
{
    struct instant now = clock_now();
    if (p->refreshed.us && clock_since_us(now, p->refreshed) < REFRESH_US)
        return;
    p->refreshed = now;
    const bool is_due =
        clock_since_us(now, p->changed) < RESTLESS_US || clock_since_us(now, p->signed_at) >= calm_us(p);
    if (is_due || members_self(p->s.members)->nstages)
        p->s.ops->refresh_self(p->s.owner);
    else
        p->s.ops->refresh_doings(p->s.owner);
    if (!member_says_the_same(members_self(p->s.members), &p->said))
        p->changed = now;
    if (is_due || clock_since_us(now, p->changed) < RESTLESS_US)
        sign_self(p);
}

/* Heartbeats carry our record, and so our progress, where it has not gone over the connection yet.
 * One that has no room for it follows it. */
static size_t on_beat(void *owner, struct link *link, uint8_t *body, size_t cap)
{
    struct session *s = owner;
    const struct member *self = members_self(s->p->s.members);
    if (!s->up) /* a joiner is told nothing of us */
        return 0;
    refresh_self(s->p);
    if (s->told == self->seq)
        return 0;
    s->told = self->seq;
    size_t n = records_write(s->p->s.records, self->id, clock_now(), body, cap);
    if (n <= cap)
        return n;
    send_record(s->p, link, self->id);
    return 0;
}

/* Of all neighbours and ourselves the one with the lowest id sets the pace: what a node sends then
 * goes out while what it is sent comes in, and it wakes up once for both. */
static bool is_pacemaker(const struct session *s)
{
    const uint8_t *id = link_peer(s->link)->node_id;
    const struct session *other;
    if (memcmp(id, members_self(s->p->s.members)->id, 16) >= 0)
        return false;
    LIST_FOREACH (other, &s->p->sessions, next) {
        if (other->up && memcmp(link_peer(other->link)->node_id, id, 16) < 0)
            return false;
    }
    return true;
}

struct instant peers_beat(const struct peers *p)
{
    return p->beat;
}

static void keep_step(struct peers *p, struct instant beat)
{
    struct session *s;
    p->beat = beat;
    LIST_FOREACH (s, &p->sessions, next)
        link_beat_early(s->link);
    p->s.ops->beat_changed(p->s.owner, beat);
}

static void on_beaten(void *owner, struct link *link, const uint8_t *body, size_t n)
{
    struct session *s = owner;
    (void)link;
    if (s->up && is_pacemaker(s))
        keep_step(s->p, clock_now());
    if (s->up && s->cable)
        s->p->s.ops->cable_heard(s->p->s.owner, s->cable);
    if (n && s->up)
        learn(s->p, s, body, n);
}

static void end_session(struct session *s, enum way_event failed, enum link_end end, const char *text)
{
    struct peers *p = s->p;
    struct link *link = s->link;
    uint64_t number = s->number;
    bool was_up = s->up, joined = link_kind(link) == LINK_JOIN;
    struct way_news news = {.event = was_up ? WAY_LOST : failed,
                            .is_silent =
                                end == LINK_END_SILENT || end == LINK_END_ENDED || end == LINK_END_PEER_LEFT,
                            .text = text};
    uint8_t id[16] = {0};
    if (link_peer(link))
        memcpy(id, link_peer(link)->node_id, sizeof id);
    if (was_up && end == LINK_END_ENDED)
        peers_note_ended(p, id);
    s->up = false;
    measure_link_down(p->s.measure, s->number);
    enrol_left(p->s.enrol, link);
    if (was_up) {
        log_about(LOG_LEVEL_WARNING,
                  &(struct log_about){.id = LOG_ID_NODE_LOST, .peer = link_peer(link)->name},
                  "connection to %s ended: %s", link_peer(link)->name, text);
        remember_words(p, link_peer(link)->node_id, text);
    }
    LIST_REMOVE(s, next);
    link_free(link);
    free(s);
    peers_ways_parted(p, number, id, &news);
    if (joined) /* by now the newcomer takes connections */
        peers_redial(p);
    if (was_up) {
        p->s.ops->connection_ended(p->s.owner);
        list_links(p);
        peers_flood_self(p);
        p->s.ops->changed(p->s.owner);
    }
}

void peers_end_session(struct session *s, const char *text)
{
    end_session(s, WAY_FAILED, LINK_END_LOCAL, text);
}

static void on_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct session *s = owner;
    const struct dial *d = s->dial;
    char copy[400]; /* the link goes with its session */
    (void)link;
    snprintf(copy, sizeof copy, "%s", text);
    if (d && d->cable && !s->up && end == LINK_END_CONNECT)
        peers_tell_blocked(d, copy, sizeof copy);
    else if (s->cable && s->up && end == LINK_END_SILENT)
        snprintf(copy, sizeof copy,
                 "%s; beacons still pass there, so a firewall may have begun to drop TCP port %u: see "
                 "`ringctl doctor`",
                 text, link_peer(link)->listen_port);
    if (d && !s->up && strcmp(d->way.words, copy))
        log_info("no connection to %s port %u: %s (%s)", d->host, d->port, copy, link_end_name(end));
    if (d && end == LINK_END_HANDSHAKE) /* it may be one of ours that has a newer key */
        enrol_return(s->p->s.enrol, d->host, d->port);
    end_session(s, end == LINK_END_HANDSHAKE ? WAY_STRANGER : WAY_FAILED, end, copy);
}

static const struct link_ops link_ops = {.hello = on_hello,
                                         .relayed = on_relayed,
                                         .up = on_up,
                                         .frame = on_frame,
                                         .beat = on_beat,
                                         .beaten = on_beaten,
                                         .down = on_down};

void peers_setup(struct peers *p, struct link_setup *ret)
{
    cluster_psk(p->s.cluster, 0, p->psk);
    *ret = (struct link_setup){.base = p->s.base,
                               .id = p->s.id,
                               .psk = p->psk,
                               .kind = LINK_CONTROL,
                               .ops = &link_ops,
                               .beat = &p->beat,
                               .dead_us = peers_silence_us(p)};
    struct link_hello *h = &ret->hello;
    snprintf(h->name, sizeof h->name, "%s", p->s.name);
    snprintf(h->version, sizeof h->version, "%s", RINGD_VERSION);
    h->proto_min = h->proto_max = 1;
    h->listen_port = p->port;
    h->boot = p->boot;
    h->seal = p->seal;
    if (cluster_cert_bytes(p->s.cluster)) {
        memcpy(h->cert, cluster_cert_bytes(p->s.cluster), sizeof h->cert);
        memcpy(h->cluster_key, cluster_key(p->s.cluster), sizeof h->cluster_key);
    }
}

/* --- opening ---------------------------------------------------------------------------------- */

struct session *peers_session_new(struct peers *p, struct dial *d)
{
    struct session *s = xcalloc(1, sizeof *s);
    *s = (struct session){.p = p, .dial = d, .number = ++p->numbers};
    LIST_INSERT_HEAD(&p->sessions, s, next);
    return s;
}

static int add_peer(struct peers *p, const char *address, struct err *err)
{
    struct dial *d = peers_way_new(p);
    if (peers_split_address(address, d->host, sizeof d->host, &d->port) || !*d->host || !d->port)
        return err_set(err, -EINVAL, "--peer %s is not HOST:PORT", address);
    timer_set_us(d->timer, 0); /* it is called from the loop, once the rest of the node stands */
    return 0;
}

int peers_open(struct peers **ret, const struct peers_setup *setup, struct err *err)
{
    struct peers *p = xcalloc(1, sizeof *p);
    p->s = *setup;
    randombytes_buf(&p->beat.us, sizeof p->beat.us);
    p->boot = members_self(setup->members)->boot;
    p->seal = seal_measure();
    p->psk = xsecret(AUTH_PSK);
    p->envelopes = envelopes_new(setup->id, setup->members);
    LIST_INIT(&p->dials);
    LIST_INIT(&p->sessions);
    LIST_INIT(&p->words);
    *ret = p;
    int r = peers_door_open(p, err);
    if (r)
        return r;
    const char *const *peer;
    size_t n = opts_list(setup->opts, "peer", &peer);
    for (size_t i = 0; i < n; i++) {
        r = add_peer(p, peer[i], err);
        if (r)
            return r;
    }
    return 0;
}

void peers_close(struct peers *p)
{
    if (!p)
        return;
    peers_door_close(p);
    for (struct session *s; (s = LIST_FIRST(&p->sessions));) {
        LIST_REMOVE(s, next);
        link_leave(s->link);
        free(s);
    }
    for (struct dial *d; (d = LIST_FIRST(&p->dials));)
        peers_way_free(d);
    for (struct words *w; (w = LIST_FIRST(&p->words));) {
        LIST_REMOVE(w, next);
        free(w);
    }
    envelopes_free(p->envelopes);
    secret_free(p->psk);
    free(p);
}

uint16_t peers_port(const struct peers *p)
{
    return p->port;
}
