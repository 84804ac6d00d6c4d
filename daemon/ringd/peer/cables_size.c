/* SPDX-License-Identifier: MIT
 *
 * What packets each cable passes: owns the searches (net/packet_size.h) and their timer, sends
 * probes through the finder, and tells peers and the log what came of them. Called by cables.c and
 * cables_show.c. Loop thread. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/peer/cables_impl.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/packet_size.h"

enum { PACKET_MOST = 65535, BEAT_US = 1000000 };

struct sized {
    struct cable cable;
    uint64_t number; /* of its probes: who has not seen one cannot answer it */
    struct packet_search search;
    uint32_t told; /* to peers */
    bool warned;
};
struct cables_sizes {
    struct cables *c;    /* borrowed: owner */
    struct timer *timer; /* owned */
    size_t n;
    struct sized at[CABLES_SEEN];
};

static struct sized *find(const struct cables_sizes *s, uint64_t cable)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].cable.id == cable)
            return (struct sized *)&s->at[i];
    return NULL;
}

static void sentence(const struct cables_sizes *s, const struct sized *z, char *out, size_t size)
{
    const struct port *port = cables_port(s->c, z->cable.ifindex);
    *out = 0;
    if (port && packet_search_is_narrow(&z->search) && z->search.settled)
        snprintf(out, size,
                 "packets above %u bytes are lost between %s and %s of %s, with MTUs of %u and %u. "
                 "Connections now use smaller packets. To repair it, run `ip link set %s mtu %u` here and "
                 "the same at %s, or repair the devices between",
                 z->search.passes, port->name, *z->cable.port_name ? z->cable.port_name : "the port",
                 z->cable.name, port->mtu, z->cable.mtu, port->name, z->search.passes, z->cable.name);
    else if (port)
        cables_mtu_trouble(out, port, &z->cable);
}

static void tell(struct cables_sizes *s, struct sized *z)
{
    char text[CABLES_TROUBLE];
    if (z->search.passes && z->search.passes != z->told) {
        z->told = z->search.passes;
        peers_cable_size(s->c->s.peers, z->cable.id, z->told);
    }
    if (!z->search.settled)
        return;
    sentence(s, z, text, sizeof text);
    if (*text && !z->warned)
        log_warning("cable on %s to %s: %s", z->cable.port, z->cable.name, text);
    else if (!*text && z->warned)
        log_info("cable on %s to %s: packets of %u bytes pass again", z->cable.port, z->cable.name,
                 z->search.passes);
    z->warned = *text != 0;
}

/* A probe that has time goes with the next heartbeats: this node and its neighbour are awake. */
static uint64_t wait_us(const struct cables_sizes *s, struct instant now, uint64_t due)
{
    const uint64_t us = due > now.us ? due - now.us : 0;
    const struct instant before = {now.us + us - BEAT_US / 2};
    return us < BEAT_US ? us
                        : us - BEAT_US / 2 + clock_until_beat_us(before, BEAT_US, peers_beat(s->c->s.peers));
}

static void step(struct cables_sizes *s)
{
    const struct instant now = clock_now();
    uint64_t due = UINT64_MAX;
    for (size_t i = 0; i < s->n; i++) {
        struct sized *z = &s->at[i];
        const uint32_t size = packet_search_next(&z->search, now);
        if (size)
            finder_probe(s->c->finder, z->cable.ifindex, &z->cable.address, z->number, size);
        tell(s, z);
        due = z->search.whole && z->search.due.us < due ? z->search.due.us : due;
    }
    if (due == UINT64_MAX)
        return;
    timer_set_us(s->timer, wait_us(s, now, due));
}

static void on_timer(void *owner)
{
    step(owner);
}

/* The search goes on from the loop, not inside the finder's callbacks. */
static void begin(struct cables_sizes *s, struct sized *z)
{
    const struct port *port = cables_port(s->c, z->cable.ifindex);
    const uint32_t mine = port ? port->mtu : 0, theirs = z->cable.mtu;
    const uint32_t whole = !theirs || (mine && mine < theirs) ? mine : theirs;
    packet_search_begin(&z->search, whole > PACKET_MOST ? PACKET_MOST : whole, clock_now());
    timer_set_us(s->timer, 0);
}

void cables_sizes_take(struct cables_sizes *s, const struct cable *cable)
{
    struct sized *z = find(s, cable->id);
    if (!z && s->n == CABLES_SEEN)
        return;
    if (!z) {
        z = &s->at[s->n++];
        *z = (struct sized){0};
        randombytes_buf(&z->number, sizeof z->number);
    }
    z->cable = *cable;
    begin(s, z);
}

void cables_sizes_drop(struct cables_sizes *s, uint64_t cable)
{
    struct sized *z = find(s, cable);
    if (z)
        *z = s->at[--s->n];
}

void cables_sizes_review(struct cables_sizes *s)
{
    for (size_t i = 0; i < s->n; i++)
        begin(s, &s->at[i]);
}

void cables_sizes_answered(struct cables_sizes *s, unsigned ifindex, uint64_t number, uint32_t packet)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].number == number && s->at[i].cable.ifindex == ifindex)
            packet_search_answered(&s->at[i].search, packet, clock_now());
    timer_set_us(s->timer, 0);
}

void cables_trouble(const struct cables *c, uint64_t cable, char ret[static CABLES_TROUBLE])
{
    const struct sized *z = c && c->sizes ? find(c->sizes, cable) : NULL;
    *ret = 0;
    if (z)
        sentence(c->sizes, z, ret, CABLES_TROUBLE);
}

void cables_add_troubles(const struct cables *c, json_t *to)
{
    char text[CABLES_TROUBLE];
    for (size_t i = 0; c && c->sizes && i < c->sizes->n; i++) {
        const struct sized *z = &c->sizes->at[i];
        sentence(c->sizes, z, text, sizeof text);
        if (*text && z->warned)
            json_array_append_new(to,
                                  json_sprintf("cable on %s to %s: %s", z->cable.port, z->cable.name, text));
    }
}

uint32_t cables_sizes_of(const struct cables_sizes *s, uint64_t cable)
{
    const struct sized *z = find(s, cable);
    return z ? z->search.passes : 0;
}

struct cables_sizes *cables_sizes_new(struct cables *c)
{
    struct cables_sizes *s = xcalloc(1, sizeof *s);
    s->c = c;
    s->timer = timer_new(c->s.base, on_timer, s);
    return s;
}

void cables_sizes_free(struct cables_sizes *s)
{
    if (!s)
        return;
    timer_free(s->timer);
    free(s);
}
