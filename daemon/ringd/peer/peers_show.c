/* SPDX-License-Identifier: MIT
 *
 * What is shown of control connections: those that stand, and the ways that are none yet, with the
 * reason. Called by the API; loop thread. */
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/peer/measure.h"
#include "daemon/ringd/peer/peers_impl.h"
#include "net/seal.h"

enum { TROUBLE_TEXT = 360 };

/* The way a connection belongs to: that of its cable, or the one it was dialled over. */
static const struct dial *way_of(struct peers *p, const struct session *s)
{
    const struct dial *d;
    LIST_FOREACH (d, &p->dials, next)
        if (s->dial == d || (s->cable && s->cable == d->cable))
            return d;
    return NULL;
}

bool peers_path_name(struct peers *p, uint64_t path, struct path_name *ret)
{
    struct session *s;
    LIST_FOREACH (s, &p->sessions, next)
        if (path && s->number == path) {
            const struct dial *d = way_of(p, s);
            *ret = (struct path_name){0};
            snprintf(ret->peer, sizeof ret->peer, "%s", link_peer(s->link)->name);
            snprintf(ret->port, sizeof ret->port, "%s", d ? d->on : "");
            if (d && d->cable)
                snprintf(ret->cable, sizeof ret->cable, "%016llx", (unsigned long long)d->cable);
            return true;
        }
    return false;
}

static void add_way(json_t *to, const struct dial *d, struct instant now, double timer_seconds)
{
    char cable[17] = "";
    if (d->cable)
        snprintf(cable, sizeof cable, "%016llx", (unsigned long long)d->cable);
    json_t *more =
        json_pack("{s:s s:s s:f s:s s:f s:i s:s}", "port", d->on, "cable", cable, "since_seconds",
                  (double)clock_since_us(now, d->way.since) / 1e6, "timer", way_timer_name(d->way.timer),
                  "timer_seconds", timer_seconds, "flaps", (int)d->way.nflaps, "last_words", d->way.words);
    json_object_update(to, more);
    json_decref(more);
}

/* Lost packets make a cable slow, and are the cause to look at first. */
static void add_trouble(json_t *to, struct peers *p, uint64_t cable)
{
    char trouble[TROUBLE_TEXT];
    p->s.ops->cable_trouble(p->s.owner, cable, trouble, sizeof trouble);
    if (*trouble)
        json_object_set_new(to, "warning", json_string(trouble));
}

static json_t *session_encode(struct peers *p, const struct session *s, struct instant now)
{
    struct link_stats st;
    link_stats(s->link, &st);
    const struct link_hello *peer = link_peer(s->link);
    const struct dial *d = way_of(p, s);
    json_t *one =
        json_pack("{s:s s:s s:s s:s s:s s:f s:I s:I s:f s:f s:b s:I}", "peer", peer->name, "address",
                  link_address(s->link), "direction", link_dialed(s->link) ? "dialed" : "accepted", "state",
                  link_state_name(link_state(s->link)), "cipher", seal_suite_name(st.suite), "rtt_ms",
                  st.rtt_us / 1e3, "tx_bytes", (json_int_t)st.tx_bytes, "rx_bytes", (json_int_t)st.rx_bytes,
                  "up_seconds", (double)st.up_us / 1e6, "key_seconds", (double)st.key_us / 1e6, "suspect",
                  (int)st.suspect, "retransmits", (json_int_t)st.retransmits);
    struct clock_offset_bound ahead;
    if (link_clock_offset(s->link, now, &ahead)) {
        json_object_set_new(one, "clock_ahead_us", json_integer(ahead.us));
        json_object_set_new(one, "clock_error_us", json_integer((json_int_t)ahead.error_us));
    }
    if (one && d)
        add_way(one, d, now, ((double)peers_silence_us(p) - (double)st.silent_us) / 1e6);
    json_t *speed = measure_encode(p->s.measure, s->cable);
    json_object_update_missing(one, speed);
    json_decref(speed);
    add_trouble(one, p, s->cable);
    return one;
}

static json_t *way_encode(const struct dial *d, struct instant now)
{
    char address[160];
    bool brackets = strchr(d->host, ':') != NULL;
    snprintf(address, sizeof address, "%s%s%s:%u", brackets ? "[" : "", d->host, brackets ? "]" : "",
             d->port);
    json_t *one = json_pack("{s:s s:s s:s s:s s:s}", "peer", d->known ? d->name : "", "address", address,
                            "direction", d->way.waits ? "accepting" : "dialing", "state",
                            way_state_name(d->way.state), "why", way_why(&d->way));
    if (one)
        add_way(one, d, now,
                d->way.timer == WAY_TIMER_NONE ? 0.0 : (double)clock_since_us(d->way.due, now) / 1e6);
    return one;
}

static void add_ways(json_t *list, struct peers *p, const struct member *to)
{
    struct session *s;
    uint32_t least = 0, mbps = measure_rate(p->s.measure, to->id);
    bool any = false;
    char id[33];
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up && !memcmp(link_peer(s->link)->node_id, to->id, 16)) {
            struct link_stats st;
            link_stats(s->link, &st);
            any = true;
            least = !least || (st.least_rtt_us && st.least_rtt_us < least) ? st.least_rtt_us : least;
        }
    id_hex(id, to->id);
    if (any)
        json_array_append_new(list, json_pack("{s:s s:I s:I}", "id", id, "mbps", (json_int_t)mbps, "rtt_us",
                                              (json_int_t)least));
}

json_t *peers_ways(struct peers *p)
{
    json_t *list = json_array();
    const struct members *all = p->s.members;
    for (size_t i = 1; i < members_count(all); i++)
        add_ways(list, p, members_at(all, i));
    return list;
}

json_t *peers_encode(struct peers *p)
{
    json_t *list = json_array();
    struct instant now = clock_now();
    struct session *s;
    struct dial *d;
    LIST_FOREACH (s, &p->sessions, next)
        if (s->up)
            json_array_append_new(list, session_encode(p, s, now));
    LIST_FOREACH (d, &p->dials, next)
        if (d->way.state != WAY_UP) /* else shown as its connection */
            json_array_append_new(list, way_encode(d, now));
    return list;
}

/* Over whichever cable tells best. False: nothing is known. */
static bool ahead_of(struct peers *p, const uint8_t id[16], struct clock_offset_bound *ret)
{
    const struct instant now = clock_now();
    bool known = false;
    struct session *s;
    LIST_FOREACH (s, &p->sessions, next) {
        struct clock_offset_bound is;
        if (!s->up || memcmp(link_peer(s->link)->node_id, id, 16) || !link_clock_offset(s->link, now, &is) ||
            (known && is.error_us >= ret->error_us))
            continue;
        *ret = is;
        known = true;
    }
    return known;
}

json_t *peers_clocks(struct peers *p, const uint8_t (*nodes)[16], size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        struct clock_offset_bound is;
        if (ahead_of(p, nodes[i], &is))
            json_array_append_new(list,
                                  json_pack("[i,I,I]", (int)i, (json_int_t)is.us, (json_int_t)is.error_us));
    }
    return list;
}
