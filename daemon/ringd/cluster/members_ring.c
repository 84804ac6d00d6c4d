/* SPDX-License-Identifier: MIT
 *
 * What follows from the records: who is reachable, the next hop, the ring that stands and the one
 * that would be better, the order set by hand, and the sentences about them. Called on the loop. */
#include "daemon/ringd/cluster/members_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- who is there ----------------------------------------------------------------------------- */

static const struct member_link *link_of(const struct member *a, const struct member *b)
{
    for (size_t i = 0; i < a->nlinks; i++)
        if (!memcmp(a->links[i].id, b->id, 16))
            return &a->links[i];
    return NULL;
}

static bool linked(const struct members *m, size_t a, size_t b)
{
    return a != b && !m->stale[a] && !m->stale[b] && link_of(&m->at[a], &m->at[b]) &&
           link_of(&m->at[b], &m->at[a]);
}

bool members_linked(const struct members *m, const uint8_t a[16], const uint8_t b[16])
{
    const struct member *from = members_find(m, a), *to = members_find(m, b);
    return from && to && linked(m, (size_t)(from - m->at), (size_t)(to - m->at));
}

static void mark_reachable(const struct members *m, bool seen[RING_MAX_NODES])
{
    size_t queue[RING_MAX_NODES] = {0}, head = 0, tail = 1;
    memset(seen, 0, RING_MAX_NODES);
    seen[0] = true;
    while (head < tail) {
        size_t a = queue[head++];
        for (size_t b = 0; b < m->n; b++)
            if (!seen[b] && linked(m, a, b)) {
                seen[b] = true;
                queue[tail++] = b;
            }
    }
}

bool members_reachable(const struct members *m, const uint8_t id[16])
{
    bool seen[RING_MAX_NODES];
    const struct member *who = members_find(m, id);
    mark_reachable(m, seen);
    return who && seen[who - m->at];
}

bool members_ended(const struct members *m, const uint8_t id[16])
{
    bool seen[RING_MAX_NODES];
    mark_reachable(m, seen);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; seen[i] && k < m->at[i].nended; k++)
            if (!memcmp(m->at[i].ended[k], id, 16))
                return true;
    return false;
}

const struct member *members_cut_off(const struct members *m)
{
    bool seen[RING_MAX_NODES];
    mark_reachable(m, seen);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->n && !seen[i]; k++)
            if (seen[k] && link_of(&m->at[i], &m->at[k]))
                return &m->at[i];
    return NULL;
}

struct view { /* the reachable nodes as a graph; index[] maps its places to ours */
    struct ring_graph graph;
    size_t index[RING_MAX_NODES];
};

static void look(const struct members *m, struct view *v)
{
    bool seen[RING_MAX_NODES];
    struct ring_graph *g = &v->graph;
    mark_reachable(m, seen);
    memset(v, 0, sizeof *v);
    for (size_t i = 0; i < m->n; i++)
        if (seen[i]) {
            v->index[g->n] = i;
            memcpy(g->id[g->n++], m->at[i].id, 16);
        }
    for (size_t a = 0; a < g->n; a++)
        for (size_t b = 0; b < g->n; b++) {
            const struct member_link *link = link_of(&m->at[v->index[a]], &m->at[v->index[b]]);
            if (!link || !linked(m, v->index[a], v->index[b]))
                continue;
            g->edge[a][b].linked = true; /* field by field: graphs are compared with their padding */
            g->edge[a][b].shared = link->shared;
            g->edge[a][b].class_mbps = link->class_mbps;
        }
}

static const struct member *seen_at(const struct members *m, const struct view *v, size_t place)
{
    return &m->at[v->index[place]];
}

static size_t place_of(const struct view *v, const uint8_t id[16])
{
    size_t i = 0;
    while (i < v->graph.n && memcmp(v->graph.id[i], id, 16))
        i++;
    return i;
}

const struct member *members_next_hop(const struct members *m, const uint8_t id[16])
{
    struct view v;
    look(m, &v);
    int hop = ring_next_hop(&v.graph, 0, place_of(&v, id));
    return hop < 0 ? NULL : seen_at(m, &v, (size_t)hop);
}

/* --- the best ring, remembered ---------------------------------------------------------------- */

static const struct ring_order *best_ring(const struct members *m, const struct ring_graph *g)
{
    struct members_orders *o = m->orders;
    if (!o->has || memcmp(&o->graph, g, sizeof *g)) {
        o->graph = *g;
        o->has = true;
        ring_compute(&o->best, g);
    }
    return &o->best;
}

/* --- an order set by hand --------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void add(char *buf, size_t n, const char *fmt, ...)
{
    size_t len = strlen(buf);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf + len, n - len, fmt, ap);
    va_end(ap);
}

/* Whose --ring counts: of the smallest id that has one; *ret_other: somebody with another. */
static const struct member *who_orders(const struct members *m, const struct view *v,
                                       const struct member **ret_other)
{
    const struct member *first = NULL;
    *ret_other = NULL;
    for (size_t i = 0; i < v->graph.n; i++) {
        const struct member *who = seen_at(m, v, i);
        if (*who->ring && (!first || memcmp(who->id, first->id, 16) < 0))
            first = who;
    }
    for (size_t i = 0; first && i < v->graph.n && !*ret_other; i++)
        if (*seen_at(m, v, i)->ring && strcmp(seen_at(m, v, i)->ring, first->ring))
            *ret_other = seen_at(m, v, i);
    return first;
}

static size_t named(const struct members *m, const struct view *v, const char *name, size_t len)
{
    size_t i = 0;
    while (i < v->graph.n && (strncmp(seen_at(m, v, i)->name, name, len) || seen_at(m, v, i)->name[len]))
        i++;
    return i;
}

struct by_hand {
    const struct member *who; /* NULL = nobody */
    bool holds;               /* `order` is the ring to use */
    struct ring_order order;
    char trouble[400];
};

/* Names to places; the first that is unknown is told. */
static size_t read_order(const struct members *m, const struct view *v, struct by_hand *ret,
                         size_t list[RING_MAX_NODES])
{
    size_t n = 0;
    for (const char *at = ret->who->ring; *at && n < RING_MAX_NODES; n++) {
        size_t len = strcspn(at, ",");
        list[n] = named(m, v, at, len);
        if (list[n] == v->graph.n && !*ret->trouble)
            add(ret->trouble, sizeof ret->trouble, "no node called %.*s can be reached", (int)len, at);
        at += len + (at[len] == ',');
    }
    return n;
}

static void check_order(const struct members *m, const struct view *v, const struct ring_order *best,
                        struct by_hand *ret)
{
    size_t list[RING_MAX_NODES], at, n = read_order(m, v, ret, list);
    char *why = ret->trouble;
    if (*why)
        return;
    switch (ring_verify(&ret->order, &v->graph, list, n, &at)) {
    case 0:
        if (ret->order.shape != RING_CHAIN || best->shape != RING_CLOSED)
            ret->holds = true;
        else
            add(why, sizeof ret->trouble, "there is no connection from %s back to %s",
                seen_at(m, v, list[n - 1])->name, seen_at(m, v, list[0])->name);
        return;
    case -EINVAL: add(why, sizeof ret->trouble, "%s is in it twice", seen_at(m, v, list[at])->name); return;
    case -ENOENT: add(why, sizeof ret->trouble, "%s is not in it", seen_at(m, v, at)->name); return;
    default:
        add(why, sizeof ret->trouble, "there is no connection between %s and %s",
            seen_at(m, v, list[at])->name, seen_at(m, v, list[at + 1])->name);
    }
}

static void read_by_hand(const struct members *m, const struct view *v, const struct ring_order *best,
                         struct by_hand *ret)
{
    const struct member *other;
    char why[sizeof ret->trouble];
    *ret = (struct by_hand){.who = who_orders(m, v, &other)};
    if (!ret->who)
        return;
    check_order(m, v, best, ret);
    snprintf(why, sizeof why, "%s", ret->trouble);
    *ret->trouble = 0;
    if (*why)
        add(ret->trouble, sizeof ret->trouble,
            "--ring of %s cannot be followed: %s; the computed ring is used meanwhile", ret->who->name, why);
    if (other)
        add(ret->trouble, sizeof ret->trouble,
            "%s%s and %s have different --ring: ringd follows that of %s, which has the smaller id",
            *why ? "; " : "", ret->who->name, other->name, ret->who->name);
}

void members_override(const struct members *m, char ret_ring[MEMBER_RING_TEXT], char *trouble, size_t n)
{
    struct view v;
    struct by_hand hand;
    struct ring_order best;
    look(m, &v);
    best = *best_ring(m, &v.graph);
    read_by_hand(m, &v, &best, &hand);
    snprintf(ret_ring, MEMBER_RING_TEXT, "%s", hand.who ? hand.who->ring : "");
    snprintf(trouble, n, "%s", hand.trouble);
}

/* --- the ring --------------------------------------------------------------------------------- */

static void keep_order(struct members_order *ret, const struct view *v, const struct ring_order *order)
{
    *ret = (struct members_order){.n = order->n};
    for (size_t i = 0; i < order->n; i++)
        memcpy(ret->id[i], v->graph.id[order->at[i]], 16);
}

static bool is_order(const struct members_order *known, const struct view *v, const struct ring_order *order)
{
    bool same = known->n == order->n;
    for (size_t i = 0; same && i < order->n; i++)
        same = !memcmp(known->id[i], v->graph.id[order->at[i]], 16);
    return same;
}

/* The ring as it stood, if it can go on: the same nodes, every hop still there. */
static bool goes_on(const struct members_order *standing, const struct view *v, struct ring_order *ret)
{
    size_t list[RING_MAX_NODES], at;
    for (size_t i = 0; i < standing->n; i++)
        list[i] = place_of(v, standing->id[i]);
    return standing->n && !ring_verify(ret, &v->graph, list, standing->n, &at) && ret->shape == RING_CLOSED;
}

/* What the records alone call for. */
static void wanted_ring(const struct members *m, const struct view *v, struct ring_order *ret)
{
    struct by_hand hand;
    const struct ring_order *best = best_ring(m, &v->graph);
    read_by_hand(m, v, best, &hand);
    *ret = hand.holds ? hand.order : *best;
}

struct instant members_settle(struct members *m, struct instant now)
{
    struct members_orders *o = m->orders;
    struct view v;
    struct ring_order wanted, standing;
    bool busy = false;
    look(m, &v);
    wanted_ring(m, &v, &wanted);
    for (size_t i = 0; i < v.graph.n; i++)
        busy |= seen_at(m, &v, i)->nstages > 0;
    bool can_stay = goes_on(&o->standing, &v, &standing);
    if (can_stay && !busy && !is_order(&o->standing, &v, &wanted)) {
        if (!is_order(&o->coming, &v, &wanted)) {
            keep_order(&o->coming, &v, &wanted);
            o->coming_since = now;
        }
        if (now.us < o->coming_since.us + MEMBERS_SETTLE_US)
            return (struct instant){o->coming_since.us + MEMBERS_SETTLE_US};
        can_stay = false;
    }
    o->coming.n = 0;
    if (!can_stay)
        keep_order(&o->standing, &v, &wanted);
    return (struct instant){UINT64_MAX};
}

void members_ring(const struct members *m, const uint8_t *head, struct members_ring *ret)
{
    struct view v;
    struct by_hand hand;
    struct ring_order order, turned;
    look(m, &v);
    const struct ring_order *best = best_ring(m, &v.graph);
    read_by_hand(m, &v, best, &hand);
    if (!goes_on(&m->orders->standing, &v, &order))
        order = hand.holds ? hand.order : *best;
    bool by_hand =
        hand.holds && order.n == hand.order.n && !memcmp(order.at, hand.order.at, order.n * sizeof *order.at);
    size_t first = head ? place_of(&v, head) : v.graph.n;
    if (first < v.graph.n && !ring_rotate(&turned, &order, first))
        order = turned;
    *ret = (struct members_ring){.shape = order.shape,
                                 .n = order.n,
                                 .class_mbps = order.class_mbps,
                                 .shared = order.shared,
                                 .by_hand = by_hand};
    for (size_t i = 0; i < order.n; i++)
        ret->at[i] = seen_at(m, &v, order.at[i]);
}

size_t members_missing(const struct members *m, struct members_gap *ret, size_t cap)
{
    struct view v;
    struct ring_pair pair[RING_MAX_NODES];
    look(m, &v);
    const struct ring_order *best = best_ring(m, &v.graph);
    int n = ring_missing(&v.graph, best, pair, RING_MAX_NODES);
    for (size_t i = 0; n > 0 && i < (size_t)n && i < cap; i++)
        ret[i] = (struct members_gap){seen_at(m, &v, pair[i].a), seen_at(m, &v, pair[i].b)};
    return n > 0 ? (size_t)n : 0;
}

static void describe_gaps(const struct members *m, char *buf, size_t n)
{
    struct members_gap gap[RING_MAX_NODES];
    size_t gaps = members_missing(m, gap, RING_MAX_NODES);
    for (size_t i = 0; i < gaps && i < RING_MAX_NODES; i++)
        add(buf, n, "%s%s and %s",
            i == 0         ? "between "
            : i + 1 < gaps ? ", "
                           : " and between ",
            gap[i].a->name, gap[i].b->name);
}

void members_describe(const struct members *m, char *buf, size_t n)
{
    struct members_ring r;
    char names[512] = "", ring[MEMBER_RING_TEXT], trouble[400];
    members_ring(m, NULL, &r);
    for (size_t i = 0; i < r.n; i++)
        add(names, sizeof names, "%s%s", i ? ", " : "", r.at[i]->name);
    *buf = 0;
    switch (r.shape) {
    case RING_ALONE: add(buf, n, "%s is alone", names); break;
    case RING_CLOSED: add(buf, n, "a ring of %zu: %s", r.n, names); break;
    case RING_CHAIN:
        add(buf, n, "a chain of %zu: %s; a connection ", r.n, names);
        describe_gaps(m, buf, n);
        add(buf, n, " would close the ring");
        break;
    case RING_BROKEN:
        add(buf, n, "no path visits all nodes; connections ");
        describe_gaps(m, buf, n);
        add(buf, n, " would make a ring");
        break;
    }
    members_override(m, ring, trouble, sizeof trouble);
    if (*trouble)
        add(buf, n, ". %s", trouble);
}
