/* SPDX-License-Identifier: MIT
 *
 * The connections of the fake network, and what a node does with them: as daemon/peers*.c, with
 * words instead of bytes. */
#include "tests/lib/ring_world_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "daemon/ringd/cluster/identity.h"

enum { S = 1000000, RESEND_US = 200000, DEAD_US = 10 * S, SHAKE_US = 10 * S, RECORD_EVERY = 4 };

/* In order of a connection's life. */
enum word { WORD_CALL, WORD_ANSWER, WORD_READY, WORD_BEAT, WORD_RECORD, WORD_CLOSE };
struct flying {
    struct flying *next;
    enum word word;
    json_t *record;   /* owned */
    uint64_t said_us; /* when its owner said it */
};
struct end {
    size_t node, port;
    unsigned life;
    bool is_open, agreed, up;
    uint64_t number, cable; /* as the node calls it */
    uint64_t peer_boot, heard_us;
    struct flying *first, **last; /* towards this end */
    bool is_flowing;
};
struct ring_session {
    struct ring_world *w;
    size_t at;
    struct end end[2]; /* 0 has dialled */
};

static void close_end(struct ring_session *s, int e, enum way_event event, const char *text, bool says);

static struct ring_node *node_of(struct ring_session *s, int e)
{
    return &s->w->nodes[s->end[e].node];
}

static bool is_alive(struct ring_session *s, int e)
{
    return node_of(s, e)->is_on && node_of(s, e)->life == s->end[e].life;
}

/* --- words on their way ----------------------------------------------------------------------- */

static void flow(struct ring_session *s, int to, uint64_t in_us)
{
    s->end[to].is_flowing = true;
    ring_later(node_of(s, to), in_us, RING_FLOW, s->at, (uint64_t)to);
}

static void say_of(struct ring_session *s, int to, enum word word, json_t *record, uint64_t said_us)
{
    struct flying *f = calloc(1, sizeof *f);
    if (!f)
        abort();
    *f = (struct flying){.word = word, .record = json_incref(record), .said_us = said_us};
    *s->end[to].last = f;
    s->end[to].last = &f->next;
    if (!s->end[to].is_flowing)
        flow(s, to, ring_delay(s->w));
}

static void say(struct ring_session *s, int to, enum word word)
{
    say_of(s, to, word, NULL, 0);
}

static void take_first(struct end *e, struct flying *ret)
{
    struct flying *f = e->first;
    *ret = *f;
    e->first = f->next;
    if (!e->first)
        e->last = &e->first;
    free(f);
}

static void clear(struct end *e)
{
    struct flying f;
    while (e->first) {
        take_first(e, &f);
        json_decref(f.record);
    }
}

/* --- records ---------------------------------------------------------------------------------- */

#define EACH_SESSION(s, e, n)                                                                                \
    for (size_t i_ = (n)->world->nsessions; i_-- > 0;)                                                       \
        for (int e = 0; e < 2; e++)                                                                          \
            if ((s = (n)->world->sessions[i_])->end[e].is_open && s->end[e].node == (n)->number &&           \
                s->end[e].life == (n)->life)

/* As node_changed: what follows from the records stands, or will. */
static void settle(struct ring_node *n)
{
    struct instant now = ring_local(n), due = members_due(n->members), settled;
    settled = members_settle(n->members, now);
    due = settled.us < due.us ? settled : due;
    n->settle_at = due.us;
    if (due.us != UINT64_MAX)
        ring_later(n, due.us > now.us ? due.us - now.us : 0, RING_SETTLE, 0, due.us);
}

void ring_settle_fired(struct ring_node *n, uint64_t due)
{
    if (due != n->settle_at)
        return;
    members_expire(n->members, ring_local(n));
    settle(n);
}

static void flood(struct ring_node *n, json_t *record, const uint8_t id[16], uint64_t said_us,
                  const struct ring_session *except)
{
    bool told[RING_NODES] = {false};
    struct ring_session *s;
    EACH_SESSION(s, e, n)
    {
        size_t to = s->end[!e].node;
        if (!s->end[e].up || s == except || told[to] ||
            (except && members_linked(n->members, id, n->world->nodes[to].self.node_id)))
            continue;
        told[to] = true;
        say_of(s, !e, WORD_RECORD, record, said_us);
    }
}

static void flood_self(struct ring_node *n)
{
    members_touch(n->members);
    json_t *record = member_encode(members_self(n->members));
    flood(n, record, n->self.node_id, n->world->now_us, NULL);
    json_decref(record);
}

static void list_links(struct ring_node *n)
{
    struct member *self = members_self(n->members);
    struct ring_session *s;
    self->nlinks = 0;
    EACH_SESSION(s, e, n)
    {
        const uint8_t *id = node_of(s, !e)->self.node_id;
        size_t i = 0;
        while (s->end[e].up && i < self->nlinks && memcmp(self->links[i].id, id, 16) != 0)
            i++;
        if (s->end[e].up && i == self->nlinks)
            memcpy(self->links[self->nlinks++].id, id, 16);
    }
    flood_self(n);
    settle(n);
}

/* --- ways ------------------------------------------------------------------------------------- */

static void dial(struct ring_node *n, struct ring_way *way);

static void drop(struct ring_node *n, const struct ring_way *way)
{
    struct ring_session *s;
    EACH_SESSION(s, e, n)
    if (s->end[e].cable == way->cable.id)
        close_end(s, e, WAY_FAILED, way->way.words, true);
}

static void step(struct ring_node *n, struct ring_way *way, const struct way_news *news)
{
    enum way_action action = way_step(&way->way, news, ring_local(n));
    if (action == WAY_DROP)
        drop(n, way);
    else if (action == WAY_DIAL)
        dial(n, way);
    else if (action == WAY_FORGOTTEN)
        ring_wrong(n->world, "a cable was forgotten within minutes");
    uint64_t now = ring_local(n).us;
    if (way->way.timer != WAY_TIMER_NONE && way->way.timer != WAY_TIMER_DEAD)
        ring_later(n, way->way.due.us > now ? way->way.due.us - now : 0, RING_TIMER, (size_t)(way - n->ways),
                   way->way.due.us);
}

void ring_way_fired(struct ring_node *n, size_t at, uint64_t due)
{
    struct ring_way *way = &n->ways[at];
    if (way->way.timer != WAY_TIMER_NONE && way->way.timer != WAY_TIMER_DEAD && way->way.due.us == due)
        step(n, way, &(struct way_news){.event = WAY_FIRED});
}

static struct ring_way *find_way(struct ring_node *n, uint64_t cable)
{
    for (size_t i = 0; i < n->nways; i++)
        if (n->ways[i].cable.id == cable)
            return &n->ways[i];
    return NULL;
}

static struct ring_session *carrier(struct ring_node *n, uint64_t cable, uint64_t boot, int *ret_end)
{
    struct ring_session *s;
    EACH_SESSION(s, e, n)
    if (s->end[e].up && s->end[e].cable == cable && (!boot || s->end[e].peer_boot == boot)) {
        *ret_end = e;
        return s;
    }
    return NULL;
}

static void connected(struct ring_node *n, struct ring_way *way, const struct end *e)
{
    step(n, way, &(struct way_news){.event = WAY_CONNECTED, .session = e->number, .boot = e->peer_boot});
}

static uint64_t cable_under(struct ring_session *s)
{
    const struct ring_port *p = &s->w->ports[s->end[0].port], *q = &s->w->ports[s->end[1].port];
    return cable_id(node_of(s, 0)->self.node_id, p->port.port_id, node_of(s, 1)->self.node_id,
                    q->port.port_id);
}

static void on_cable_up(void *owner, const struct cable *cable)
{
    struct ring_node *n = owner;
    struct ring_way *way = find_way(n, cable->id);
    struct ring_session *s;
    int at;
    if (!way) {
        if (n->nways == RING_WAYS)
            abort();
        way = &n->ways[n->nways++];
        way_init(&way->way, ring_world_random(n->world, 0), true, ring_local(n));
    }
    way->cable = *cable;
    way->way.waits = memcmp(n->self.node_id, cable->node_id, 16) > 0;
    EACH_SESSION(s, e, n)
    if (!s->end[e].cable && s->end[e].up && cable_under(s) == cable->id)
        s->end[e].cable = cable->id;
    s = carrier(n, cable->id, cable->boot, &at);
    if (s && way->way.state != WAY_UP)
        connected(n, way, &s->end[at]);
    step(n, way, &(struct way_news){.event = WAY_PLUGGED, .boot = cable->boot});
}

static void on_cable_down(void *owner, const struct cable *cable, enum cable_end end)
{
    struct ring_node *n = owner;
    struct ring_way *way = find_way(n, cable->id);
    if (!way)
        ring_wrong(n->world, "a cable went down that was not up");
    else
        step(n, way,
             &(struct way_news){.event = end == CABLE_END_RESTARTED ? WAY_RESTARTED : WAY_UNPLUGGED,
                                .text = "the cable is out"});
}

static void on_trouble(void *owner, const struct cable *with, enum neighbour_state state)
{
    struct ring_node *n = owner;
    (void)with;
    if (state == NEIGHBOUR_CLONED)
        ring_wrong(n->world, "a node was taken for two");
}

static uint64_t proved_boot(void *owner, const uint8_t node_id[static 16])
{
    struct ring_node *n = owner;
    uint64_t boot = 0;
    struct ring_session *s;
    EACH_SESSION(s, e, n)
    if (s->end[e].up && !memcmp(node_of(s, !e)->self.node_id, node_id, 16) && s->end[e].peer_boot > boot)
        boot = s->end[e].peer_boot;
    return boot;
}

const struct beacons_ops ring_beacons_ops = {on_cable_up, on_cable_up, on_cable_down, on_trouble,
                                             proved_boot};

/* --- connections ------------------------------------------------------------------------------ */

static void dial(struct ring_node *n, struct ring_way *way)
{
    struct ring_world *w = n->world;
    size_t to = 0;
    while (to < w->nports && (w->ports[to].port.port_id != way->cable.peer_port_id ||
                              memcmp(w->nodes[w->ports[to].node].self.node_id, way->cable.node_id, 16) != 0))
        to++;
    struct ring_session *s = calloc(1, sizeof *s);
    w->sessions = realloc(w->sessions, (w->nsessions + 1) * sizeof *w->sessions);
    if (!s || !w->sessions || to == w->nports)
        abort();
    s->w = w;
    s->at = w->nsessions;
    w->sessions[w->nsessions++] = s;
    struct end *mine = &s->end[0], *theirs = &s->end[1];
    *mine = (struct end){.node = n->number, .port = way->cable.ifindex - 1, .life = n->life, .is_open = true};
    *theirs = (struct end){.node = w->ports[to].node, .port = to};
    mine->last = &mine->first;
    theirs->last = &theirs->first;
    mine->number = way->way.session = ++n->numbers;
    mine->cable = way->cable.id;
    mine->heard_us = w->now_us;
    say(s, 1, WORD_CALL);
}

/* The end of this side, told to the other side's kernel if it can be. */
static void close_end(struct ring_session *s, int e, enum way_event event, const char *text, bool says)
{
    struct end *end = &s->end[e];
    struct ring_node *n = node_of(s, e);
    bool was_up = end->up;
    int at;
    end->is_open = end->up = false;
    clear(end);
    if (says && s->end[!e].is_open)
        say(s, !e, WORD_CLOSE);
    for (size_t i = 0; i < n->nways; i++) {
        struct ring_way *way = &n->ways[i];
        if (way->way.session != end->number)
            continue;
        struct ring_session *other = carrier(n, way->cable.id, 0, &at);
        if (other)
            connected(n, way, &other->end[at]);
        else
            step(n, way, &(struct way_news){.event = was_up ? WAY_LOST : event, .text = text});
    }
    if (was_up)
        list_links(n);
}

static enum session_choice choose(struct ring_session *s, int e, bool at_hello,
                                  struct ring_session **ret_other, int *ret_end)
{
    struct ring_node *n = node_of(s, e);
    struct end *mine = &s->end[e];
    struct ring_session *other;
    EACH_SESSION(other, o, n)
    {
        const struct end *old = &other->end[o];
        if (other == s || old->cable != mine->cable || other->end[!o].node != s->end[!e].node ||
            !(old->up || (at_hello && !e && !o && old->agreed)))
            continue;
        *ret_other = other;
        *ret_end = o;
        return session_choose(memcmp(n->self.node_id, node_of(s, !e)->self.node_id, 16) < 0,
                              &(struct session_view){.dialed = !o, .boot = old->peer_boot},
                              &(struct session_view){.dialed = !e, .boot = mine->peer_boot});
    }
    return SESSION_TAKE;
}

static bool agrees(struct ring_session *s, int e)
{
    struct ring_session *other;
    int at;
    s->end[e].peer_boot = node_of(s, !e)->self.boot;
    s->end[e].agreed = choose(s, e, true, &other, &at) != SESSION_REFUSE;
    return s->end[e].agreed;
}

static void come_up(struct ring_session *s, int e)
{
    struct ring_node *n = node_of(s, e);
    struct ring_session *other;
    int at;
    switch (choose(s, e, false, &other, &at)) {
    case SESSION_REFUSE: close_end(s, e, WAY_FAILED, "there is a connection already", true); return;
    case SESSION_REPLACE:
        s->end[e].up = true; /* so that the way moves over and is not lost */
        close_end(other, at, WAY_FAILED, "replaced", true);
        break;
    case SESSION_TAKE: break;
    }
    s->end[e].up = true;
    for (size_t i = 0; i < n->nways; i++)
        if (n->ways[i].way.state != WAY_UP && n->ways[i].cable.id == s->end[e].cable)
            connected(n, &n->ways[i], &s->end[e]);
    list_links(n);
    for (size_t i = 1; i < members_count(n->members); i++) {
        if (!memcmp(members_at(n->members, i)->id, node_of(s, !e)->self.node_id, 16))
            continue;
        json_t *record = member_encode(members_at(n->members, i));
        say_of(s, !e, WORD_RECORD, record, members_at(n->members, i)->heard.us - n->clock_us);
        json_decref(record);
    }
}

/* Whoever is called may be another life than the one whose beacon was heard. */
static void be_called(struct ring_session *s)
{
    struct end *end = &s->end[1];
    struct ring_node *n = node_of(s, 1);
    end->life = n->life;
    end->is_open = true;
    end->number = ++n->numbers;
    end->heard_us = s->w->now_us;
    end->cable = find_way(n, cable_under(s)) ? cable_under(s) : 0;
    if (agrees(s, 1))
        say(s, 0, WORD_ANSWER);
    else
        close_end(s, 1, WAY_FAILED, "already connected", true);
}

static void learn(struct ring_session *from, struct ring_node *n, const struct flying *f)
{
    uint8_t id[16];
    n->world->records++;
    int r = members_learn(n->members, f->record, (struct instant){f->said_us + n->clock_us});
    if (r < 0 && r != -EEXIST)
        ring_wrong(n->world, "a record was not taken");
    if (r != 1 || id_parse(id, json_string_value(json_object_get(f->record, "id"))))
        return;
    flood(n, f->record, id, f->said_us, from);
    settle(n);
}

static void hear(struct ring_session *s, int e, const struct flying *f)
{
    struct ring_node *n = node_of(s, e);
    s->end[e].heard_us = s->w->now_us;
    switch (f->word) {
    case WORD_CALL: break;
    case WORD_ANSWER:
        if (!agrees(s, 0)) {
            close_end(s, 0, WAY_FAILED, "already connected", true);
            break;
        }
        say(s, 1, WORD_READY);
        come_up(s, 0);
        break;
    case WORD_READY: come_up(s, 1); break;
    case WORD_BEAT: break;
    case WORD_RECORD: learn(s, n, f); break;
    case WORD_CLOSE: close_end(s, e, WAY_FAILED, "it closed", false); break;
    }
}

/* What comes to a machine that knows nothing of the connection is answered by its kernel. */
void ring_session_flow(struct ring_node *n, size_t at, uint64_t which)
{
    struct ring_session *s = n->world->sessions[at];
    int e = (int)which;
    struct end *end = &s->end[e];
    struct flying f;
    end->is_flowing = false;
    if (!end->first)
        return;
    if (!ring_passes(s->w, s->end[!e].port, end->port)) {
        if (s->end[!e].is_open || end->is_open)
            flow(s, e, RESEND_US); /* until one of the two gives up */
        else
            clear(end);
        return;
    }
    take_first(end, &f);
    if (f.word == WORD_CALL && n->is_on)
        be_called(s);
    else if (end->is_open && is_alive(s, e))
        hear(s, e, &f);
    else if (f.word != WORD_CLOSE && s->end[!e].is_open)
        say(s, !e, WORD_CLOSE);
    json_decref(f.record);
    if (end->first && !end->is_flowing)
        flow(s, e, ring_delay(s->w) / 8);
}

void ring_sessions_beat(struct ring_node *n)
{
    struct ring_session *s;
    EACH_SESSION(s, e, n)
    {
        uint64_t silent = n->world->now_us - s->end[e].heard_us;
        if (silent > (s->end[e].up ? DEAD_US : SHAKE_US))
            close_end(s, e, WAY_FAILED, "silent", true);
        else if (s->end[e].up)
            say(s, !e, WORD_BEAT);
    }
    if (n->beats++ % RECORD_EVERY == 0)
        flood_self(n);
    ring_later(n, S, RING_BEAT, 0, 0);
}

void ring_sessions_stop(struct ring_node *n, bool closes)
{
    struct ring_session *s;
    EACH_SESSION(s, e, n)
    {
        s->end[e].is_open = s->end[e].up = false;
        clear(&s->end[e]);
        if (closes && s->end[!e].is_open)
            say(s, !e, WORD_CLOSE);
    }
}

void ring_sessions_free(struct ring_world *w)
{
    for (size_t i = 0; i < w->nsessions; i++) {
        clear(&w->sessions[i]->end[0]);
        clear(&w->sessions[i]->end[1]);
        free(w->sessions[i]);
    }
    free(w->sessions);
}
