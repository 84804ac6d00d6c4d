/* SPDX-License-Identifier: MIT
 *
 * Cables and the control connections over them, one over each, as peers.h shows them to a daemon:
 * in order, held up while the way is cut, given up after a silence, closed by a kernel when its
 * process ends, and made again. What is said there: messages, and records of nodes. */
#include "tests/sim/cluster/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/members_impl.h"
#include "daemon/ringd/job/worker.h"
#include "daemon/ringd/messages.h"
#include "daemon/ringd/peer/peers.h"

enum { SILENCE_US = 10 * SIM_S, BEAT_US = 5 * SIM_S, TTL = 16, WORDS = 200 };
enum letter_kind { LETTER_UP, LETTER_MESSAGE, LETTER_RECORD, LETTER_CLOSE };

struct sim_letter {
    struct sim_letter *next;
    enum letter_kind kind;
    uint64_t at_us; /* it arrives, unless the way is cut */
    uint8_t to[16], from[16];
    uint64_t to_boot, from_boot;
    unsigned ttl;
    json_t *body; /* owned, or */
    char *text;   /* owned: its bytes; why it is closed */
    bool is_ended;
    struct sim_record *record; /* a reference */
};

static struct sim_node *of_peers(const struct peers *p)
{
    return (struct sim_node *)p;
}

struct sim_node *sim_node_of(const uint8_t id[16])
{
    for (size_t i = 0; i < sim->nodes; i++)
        if (!memcmp(sim->roster.at[i].id, id, 16))
            return &sim->at[i];
    return NULL;
}

/* --- cables ----------------------------------------------------------------------------------- */

static bool is_heard(const struct sim_node *n)
{
    return n->is_powered && !sim_is_still(n);
}

/* Towards that end. */
bool sim_passes(const struct sim_cable *c, int to)
{
    return !c->is_out && !c->is_cut[to] && is_heard(&sim->at[c->at[!to]]);
}

static uint64_t silence_us(void)
{
    const uint64_t patience = (uint64_t)opts_int(sim->opts, "dead-after") * SIM_S;
    return patience < SILENCE_US ? patience : SILENCE_US;
}

static void retry_soon(struct sim_cable *c)
{
    if (!c->session && !c->retry.place)
        sim_at(&c->retry, sim_span(20 * SIM_MS, 1500 * SIM_MS));
}

struct sim_session *sim_session_at(const struct sim_node *n, size_t cable, int *ret_end)
{
    struct sim_session *s = sim->cable[cable].session;
    for (int e = 0; s && e < 2; e++)
        if (s->end[e].node == n) {
            *ret_end = e;
            return s->end[e].is_up ? s : NULL;
        }
    return NULL;
}

/* --- letters ---------------------------------------------------------------------------------- */

static void letter_free(struct sim_letter *l)
{
    json_decref(l->body);
    free(l->text);
    sim_record_drop(l->record);
    free(l);
}

/* What has been held up arrives, or its end begins to count the silence. */
static void look(struct sim_session *s, int e)
{
    struct sim_end *end = &s->end[e];
    if (!end->is_open)
        return;
    if (!sim_passes(s->cable, e)) {
        sim_cancel(&end->flow.event);
        if (!end->silence.event.place)
            sim_at(&end->silence.event, silence_us() - sim_random(SIM_S));
        return;
    }
    sim_cancel(&end->silence.event);
    if (end->first && !end->flow.event.place)
        sim_at(&end->flow.event, end->first->at_us > sim->now_us ? end->first->at_us - sim->now_us : 0);
}

static void post(struct sim_session *s, int to, struct sim_letter *l)
{
    struct sim_end *end = &s->end[to];
    if (!end->is_open) {
        letter_free(l);
        return;
    }
    l->at_us = sim->now_us + s->delay_us + sim_random(s->delay_us + 1);
    if (end->last && l->at_us < end->last->at_us)
        l->at_us = end->last->at_us;
    l->next = NULL;
    *(end->last ? &end->last->next : &end->first) = l;
    end->last = l;
    look(s, to);
}

static struct sim_letter *letter_new(enum letter_kind kind)
{
    struct sim_letter *l = xcalloc(1, sizeof *l);
    l->kind = kind;
    return l;
}

/* --- connections ------------------------------------------------------------------------------ */

static void list_links(struct sim_node *n)
{
    struct member *self = members_self(n->node.members);
    self->nlinks = 0;
    for (size_t c = 0; c < sim->cables; c++) {
        int e;
        const struct sim_session *s = sim_session_at(n, c, &e);
        size_t i = 0;
        const uint8_t *id = s ? sim->roster.at[s->end[!e].node->number].id : NULL;
        while (s && i < self->nlinks && memcmp(self->links[i].id, id, 16))
            i++;
        if (s && i == self->nlinks) {
            self->links[i] = (struct member_link){.class_mbps = 1000};
            memcpy(self->links[self->nlinks++].id, id, 16);
        }
    }
}

static void note_ended(struct sim_node *n, const uint8_t id[16], bool has_ended)
{
    struct member *self = members_self(n->node.members);
    size_t i = 0;
    while (i < self->nended && memcmp(self->ended[i], id, 16))
        i++;
    if (has_ended && i == self->nended)
        memcpy(self->ended[self->nended++], id, 16);
    else if (!has_ended && i < self->nended)
        memcpy(self->ended[i], self->ended[--self->nended], 16);
}

static void session_free(struct sim_session *s)
{
    for (int e = 0; e < 2; e++) {
        sim_cancel(&s->end[e].flow.event);
        sim_cancel(&s->end[e].silence.event);
        for (struct sim_letter *l = s->end[e].first, *next; l; l = next) {
            next = l->next;
            letter_free(l);
        }
    }
    s->cable->session = NULL;
    free(s);
}

/* The end of one end: its daemon hears it, unless it is the one that has gone. */
static void close_end(struct sim_session *s, int e, bool is_ended, const char *why)
{
    struct sim_end *end = &s->end[e];
    struct sim_node *n = end->node;
    struct sim_cable *c = s->cable;
    const size_t other = s->end[!e].node->number;
    const bool was_up = end->is_up;
    if (!end->is_open)
        return;
    end->is_open = end->is_up = false;
    sim_cancel(&end->flow.event);
    sim_cancel(&end->silence.event);
    if (!s->end[!e].is_open)
        session_free(s);
    if (n->is_on && was_up) {
        struct sim_node *here = sim->here;
        sim->here = n;
        sim_trace("connection to %s ended: %s", sim->roster.at[other].name, why);
        snprintf(n->words[other], WORDS, "%s", why);
        if (is_ended)
            note_ended(n, sim->roster.at[other].id, true);
        list_links(n);
        sim_flood_self(n);
        sim_data_changed();
        node_changed(&n->node);
        sim->here = here;
    }
    retry_soon(c);
}

static void tell_closed(struct sim_session *s, int to, bool is_ended, const char *why)
{
    struct sim_letter *l = letter_new(LETTER_CLOSE);
    l->text = xstrdup(why);
    l->is_ended = is_ended;
    post(s, to, l);
}

static void on_silence(struct sim_event *e)
{
    struct sim_session *s = ((struct sim_flow *)e)->session;
    const int at = &s->end[1].silence.event == e;
    char why[100];
    snprintf(why, sizeof why, "nothing was heard for %g s", (double)silence_us() / SIM_S);
    tell_closed(s, !at, false, "the connection was reset");
    close_end(s, at, false, why);
}

void sim_session_lose(struct sim_cable *c, const char *why)
{
    for (int e = 0; c->session && e < 2; e++)
        close_end(c->session, e, false, why);
}

void sim_net_stop(struct sim_node *n, bool closes)
{
    for (size_t i = 0; i < sim->cables; i++) {
        struct sim_session *s = sim->cable[i].session;
        for (int e = 0; s && e < 2; e++) {
            if (s->end[e].node != n)
                continue;
            tell_closed(s, !e, closes, closes ? "its ringd has ended" : "the connection was reset");
            close_end(s, e, false, "");
            break;
        }
    }
}

static void on_flow(struct sim_event *event);

static void on_retry(struct sim_event *e)
{
    struct sim_cable *c = (struct sim_cable *)e;
    struct sim_node *a = &sim->at[c->at[0]], *b = &sim->at[c->at[1]];
    if (c->session || !sim_passes(c, 0) || !sim_passes(c, 1) || !a->is_on || !b->is_on)
        return;
    struct sim_session *s = c->session = xcalloc(1, sizeof *s);
    s->cable = c;
    s->delay_us = sim_span(50, 10 * SIM_MS);
    for (int i = 0; i < 2; i++) {
        struct sim_end *end = &s->end[i];
        end->node = i ? b : a;
        end->is_open = true;
        end->dials_lanes = !i;
        end->flow = (struct sim_flow){{.node = end->node, .run = on_flow}, s};
        end->silence = (struct sim_flow){{.node = end->node, .run = on_silence}, s};
    }
    for (int i = 0; i < 2; i++)
        post(s, i, letter_new(LETTER_UP));
}

/* --- records ---------------------------------------------------------------------------------- */

void sim_record_drop(struct sim_record *r)
{
    if (!r || --r->refs)
        return;
    json_decref(r->json);
    free(r);
}

static void keep_record(struct sim_node *n, struct sim_record *r)
{
    const size_t of = sim_node_of(r->member.id)->number;
    r->refs++;
    sim_record_drop(n->known[of]);
    n->known[of] = r;
}

static void send_record(struct sim_session *s, int to, struct sim_record *r)
{
    struct sim_letter *l = letter_new(LETTER_RECORD);
    l->record = r;
    r->refs++;
    post(s, to, l);
}

/* Once to each neighbour; of another node's record not to those that it is connected with. */
static void flood(struct sim_node *n, struct sim_record *r, const struct sim_session *except)
{
    bool has[SIM_NODES] = {false};
    for (size_t c = 0; c < sim->cables; c++) {
        int e;
        struct sim_session *s = sim_session_at(n, c, &e);
        const size_t to = s ? s->end[!e].node->number : 0;
        if (!s || s == except || has[to] ||
            (except && members_linked(n->node.members, r->member.id, sim->roster.at[to].id)))
            continue;
        has[to] = true;
        send_record(s, !e, r);
    }
}

static void say_record(struct sim_node *n)
{
    struct member *self = members_self(n->node.members);
    members_touch(n->node.members);
    struct sim_record *r = xmalloc(sizeof *r);
    r->refs = 1;
    r->json = NULL;
    r->member = *self;
    r->member.heard.us = sim->now_us;
    keep_record(n, r);
    flood(n, r, NULL);
    sim_record_drop(r);
}

void sim_flood_self(struct sim_node *n)
{
    node_refresh_self(&n->node);
    say_record(n);
}

/* What is new in it is when its owner said it, and no more: read without JSON. */
static bool is_beat(struct sim_node *n, const struct sim_record *r)
{
    struct members *m = n->node.members;
    for (size_t i = 1; i < m->n; i++) {
        struct member *known = &m->at[i];
        if (memcmp(known->id, r->member.id, 16))
            continue;
        if (known->boot != r->member.boot || m->stale[i] || r->member.seq <= known->seq ||
            !member_says_the_same(known, &r->member))
            return false;
        known->seq = r->member.seq;
        known->heard.us = r->member.heard.us + n->clock_us;
        return true;
    }
    return false;
}

/* Written and read again as messages are, where those travel as text. */
static bool takes(struct sim_node *n, struct sim_record *r)
{
    const struct instant said = {r->member.heard.us + n->clock_us};
    if (!sim->by_text)
        return members_take(n->node.members, &r->member, said) == 1;
    if (!r->json)
        r->json = member_encode(&r->member);
    return members_learn(n->node.members, r->json, said) == 1;
}

static void learn(struct sim_node *n, struct sim_session *from, struct sim_record *r)
{
    const bool beats = is_beat(n, r);
    if (!beats && !members_is_news(n->node.members, &r->member))
        return;
    if (!beats && !takes(n, r))
        return;
    keep_record(n, r);
    flood(n, r, from);
    if (!beats)
        node_changed_soon(&n->node);
}

static void on_beat(struct sim_event *e)
{
    struct sim_node *n = e->node;
    const uint64_t half = (uint64_t)opts_int(sim->opts, "dead-after") * SIM_S / 2;
    if (!n->is_on)
        return;
    node_refresh_doings(&n->node);
    say_record(n);
    sim_at(&n->beat, half < BEAT_US ? half : BEAT_US);
}

void sim_beat_start(struct sim_node *n)
{
    n->beat = (struct sim_event){.place = n->beat.place, .node = n, .run = on_beat};
    sim_at(&n->beat, sim_random(SIM_S));
}

static void tell_newcomer(struct sim_node *n, struct sim_session *s, int to)
{
    for (size_t i = 0; i < sim->nodes; i++)
        if (n->known[i] && i != n->number && i != s->end[to].node->number)
            send_record(s, to, n->known[i]);
}

/* --- messages --------------------------------------------------------------------------------- */

static json_t *body_of(struct sim_letter *l)
{
    json_t *body = l->text ? json_loads(l->text, JSON_REJECT_DUPLICATES, NULL) : l->body;
    if (l->text && !body)
        sim_wrong("a message cannot be read: %s", l->text);
    l->body = body;
    return body;
}

static void deliver(struct sim_node *n, struct sim_letter *l)
{
    const struct member *author = members_find(n->node.members, l->from);
    if (l->to_boot != members_self(n->node.members)->boot || (author && l->from_boot < author->boot))
        return; /* of a life that is over */
    sim_trace("hears %s of %s", json_string_value(json_object_get(body_of(l), "kind")),
              sim->roster.at[sim_node_of(l->from)->number].name);
    messages_receive(&n->node, l->from, l->body);
}

static int pass_on(struct sim_node *n, struct sim_letter *l)
{
    const struct member *hop = members_next_hop(n->node.members, l->to);
    for (size_t c = 0; hop && l->ttl && c < sim->cables; c++) {
        int e;
        struct sim_session *s = sim_session_at(n, c, &e);
        if (!s || s->end[!e].node != sim_node_of(hop->id))
            continue;
        l->ttl--;
        post(s, !e, l);
        return 0;
    }
    letter_free(l);
    return -EHOSTUNREACH;
}

struct local {
    struct sim_event event;
    unsigned life;
    json_t *body;
};

static void on_local(struct sim_event *e)
{
    struct local *l = (struct local *)e;
    struct sim_node *n = e->node;
    if (n->is_on && n->life == l->life)
        messages_receive(&n->node, members_self(n->node.members)->id, l->body);
    json_decref(l->body);
    free(l);
}

int peers_send(struct peers *p, const uint8_t to[16], json_t *body)
{
    struct sim_node *n = of_peers(p);
    if (!memcmp(to, members_self(n->node.members)->id, 16)) {
        struct local *l = xcalloc(1, sizeof *l);
        *l = (struct local){{.node = n, .run = on_local}, n->life, body};
        sim_at(&l->event, 0);
        return 0;
    }
    struct sim_letter *l = letter_new(LETTER_MESSAGE);
    const struct member *who = members_find(n->node.members, to);
    l->ttl = TTL;
    l->to_boot = who ? who->boot : 0;
    l->from_boot = n->boot;
    memcpy(l->to, to, 16);
    memcpy(l->from, members_self(n->node.members)->id, 16);
    if (sim->by_text) {
        l->text = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17));
        json_decref(body);
    } else {
        l->body = body;
    }
    return pass_on(n, l);
}

/* --- what arrives ----------------------------------------------------------------------------- */

static void on_up(struct sim_node *n, struct sim_session *s, int e)
{
    const size_t other = s->end[!e].node->number;
    s->end[e].is_up = true;
    s->end[e].number = ++n->numbers;
    note_ended(n, sim->roster.at[other].id, false);
    sim_trace("connected to %s", sim->roster.at[other].name);
    list_links(n);
    sim_flood_self(n);
    tell_newcomer(n, s, !e);
    node_changed_soon(&n->node);
}

static void on_flow(struct sim_event *event)
{
    struct sim_session *s = ((struct sim_flow *)event)->session;
    const int e = &s->end[1].flow.event == event;
    struct sim_node *n = event->node;
    struct sim_letter *l = s->end[e].first;
    s->end[e].first = l->next;
    if (!l->next)
        s->end[e].last = NULL;
    look(s, e);
    if (l->kind == LETTER_CLOSE) {
        close_end(s, e, l->is_ended, l->text);
    } else if (l->kind == LETTER_UP) {
        on_up(n, s, e);
    } else if (s->end[e].is_up && l->kind == LETTER_RECORD) {
        learn(n, s, l->record);
    } else if (s->end[e].is_up && memcmp(l->to, members_self(n->node.members)->id, 16)) {
        pass_on(n, l);
        return;
    } else if (s->end[e].is_up) {
        deliver(n, l);
    }
    letter_free(l);
}

void sim_net_changed(void)
{
    for (size_t i = 0; i < sim->cables; i++) {
        struct sim_cable *c = &sim->cable[i];
        c->retry.run = on_retry;
        for (int e = 0; c->session && e < 2; e++)
            look(c->session, e);
        retry_soon(c);
    }
    sim_data_changed();
}

void sim_net_free(void)
{
    for (size_t i = 0; i < sim->cables; i++)
        if (sim->cable[i].session)
            session_free(sim->cable[i].session);
    for (size_t i = 0; i < sim->nodes; i++)
        for (size_t k = 0; k < SIM_NODES; k++)
            sim_record_drop(sim->at[i].known[k]);
}

/* --- what the daemon asks --------------------------------------------------------------------- */

void peers_flood_self(struct peers *p)
{
    sim_flood_self(of_peers(p));
}

const char *peers_last_words(struct peers *p, const uint8_t id[16])
{
    return of_peers(p)->words[sim_node_of(id)->number];
}
