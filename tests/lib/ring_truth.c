/* SPDX-License-Identifier: MIT
 *
 * What should be in the fake network of whole nodes, and whether it is. */
#include "tests/lib/ring_world_impl.h"

#include <stdio.h>
#include <string.h>

struct truth { /* who has a cable with whom that works in both directions */
    bool joined[RING_NODES][RING_NODES];
};

static void look(const struct ring_world *w, struct truth *ret)
{
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; i < w->nports; i++)
        for (size_t k = 0; k < i; k++) {
            size_t a = w->ports[i].node, b = w->ports[k].node;
            if (w->ports[i].segment == w->ports[k].segment && a != b && w->nodes[a].is_on &&
                w->nodes[b].is_on && ring_passes(w, i, k) && ring_passes(w, k, i))
                ret->joined[a][b] = ret->joined[b][a] = true;
        }
}

static bool lists(const struct member *m, const uint8_t id[16])
{
    for (size_t i = 0; i < m->nlinks; i++)
        if (!memcmp(m->links[i].id, id, 16))
            return true;
    return false;
}

static bool has_true_links(const struct ring_world *w, const struct truth *t, size_t a)
{
    const struct member *self = members_self(w->nodes[a].members);
    for (size_t b = 0; b < w->nnodes; b++)
        if (t->joined[a][b] != lists(self, w->nodes[b].self.node_id))
            return false;
    return true;
}

static void mark(const struct ring_world *w, const struct truth *t, size_t a, bool reached[RING_NODES])
{
    if (reached[a])
        return;
    reached[a] = true;
    for (size_t b = 0; b < w->nnodes; b++)
        if (t->joined[a][b])
            mark(w, t, b, reached);
}

static bool reaches_the_true(const struct ring_world *w, size_t a, const bool reached[RING_NODES])
{
    for (size_t b = 0; b < w->nnodes; b++)
        if (a != b && members_reachable(w->nodes[a].members, w->nodes[b].self.node_id) != reached[b])
            return false;
    return true;
}

static bool is_same(const struct members_ring *a, const struct members_ring *b)
{
    if (a->shape != b->shape || a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(a->at[i]->id, b->at[i]->id, 16) != 0)
            return false;
    return true;
}

bool ring_world_agrees(const struct ring_world *w)
{
    struct members_ring first, other;
    struct truth truth;
    look(w, &truth);
    for (size_t a = 0; a < w->nnodes; a++)
        if (w->nodes[a].is_on && !has_true_links(w, &truth, a))
            return false;
    for (size_t a = 0; a < w->nnodes; a++) {
        bool reached[RING_NODES] = {false};
        if (!w->nodes[a].is_on)
            continue;
        mark(w, &truth, a, reached);
        if (!reaches_the_true(w, a, reached))
            return false;
        members_ring(w->nodes[a].members, NULL, &first);
        for (size_t b = 0; b < a; b++) {
            if (!reached[b])
                continue;
            members_ring(w->nodes[b].members, NULL, &other);
            if (!is_same(&first, &other))
                return false;
            break; /* which agrees with those before it */
        }
    }
    return true;
}

void ring_world_describe(const struct ring_world *w, char *buf, size_t size)
{
    size_t len = 0;
    struct truth truth;
    look(w, &truth);
    for (size_t a = 0; a < w->nnodes && len + 1 < size; a++) {
        const struct ring_node *n = &w->nodes[a];
        len += (size_t)snprintf(buf + len, size - len, "%s%s:", n->self.name, n->is_on ? "" : " (off)");
        for (size_t b = 0; b < w->nnodes && len + 1 < size; b++)
            if (truth.joined[a][b] || (n->is_on && lists(members_self(n->members), w->nodes[b].self.node_id)))
                len += (size_t)snprintf(buf + len, size - len, " %s%s", w->nodes[b].self.name,
                                        !truth.joined[a][b] ? " (is no more)"
                                        : lists(members_self(n->members), w->nodes[b].self.node_id)
                                            ? ""
                                            : " (missing)");
        for (size_t i = 0; n->is_on && i < n->nways && len + 1 < size; i++)
            len +=
                (size_t)snprintf(buf + len, size - len, " [%s %s %s]", n->ways[i].cable.name,
                                 way_state_name(n->ways[i].way.state), way_timer_name(n->ways[i].way.timer));
        if (n->is_on && len + 1 < size) {
            char ring[256];
            members_describe(n->members, ring, sizeof ring);
            len += (size_t)snprintf(buf + len, size - len, " %s", ring);
        }
        len += (size_t)snprintf(buf + len, len < size ? size - len : 0, "\n");
    }
}
