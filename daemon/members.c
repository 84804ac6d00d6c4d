/* SPDX-License-Identifier: MIT */
#include "daemon/members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/identity.h"
#include "daemon/xalloc.h"

enum { FORMER = 4 }; /* lives of a node that are remembered beside the present one */

struct life {
    uint64_t boot, seq;
};
/* Every heartbeat of every node asks for the ring, and the best of sixteen nodes takes a processor some 25 ms: it is found once for
 * each graph. */
struct answer {
    bool known;
    struct ring_graph graph;
    struct ring_order order;
};
struct members {
    struct answer *last;                        /* owned */
    struct life former[RING_MAX_NODES][FORMER]; /* last words of each node's other lives, the latest first */
    uint64_t twin_boot, twin_seq;               /* last word under our own id that was not ours */
    size_t n;
    struct member at[RING_MAX_NODES]; /* 0 = ourselves */
};

struct members *members_new(const struct member *self)
{
    struct members *m = xcalloc(1, sizeof *m);
    m->last = xcalloc(1, sizeof *m->last);
    m->n = 1;
    m->at[0] = *self;
    return m;
}

void members_free(struct members *m)
{
    if (m)
        free(m->last);
    free(m);
}

struct member *members_self(struct members *m)
{
    return &m->at[0];
}

void members_touch(struct members *m)
{
    m->at[0].seq++;
}

/* --- records ---------------------------------------------------------------------------------- */

static json_t *hex(const uint8_t id[16])
{
    char text[33];
    id_hex(text, id);
    return json_string(text);
}

json_t *member_encode(const struct member *who)
{
    json_t *links = json_array();
    for (size_t i = 0; i < who->nlinks; i++)
        json_array_append_new(links, hex(who->links[i]));
    return json_pack("{s:o s:s s:s s:I s:I s:I s:I s:I s:I s:o s:I s:o s:i s:s s:f}", "id", hex(who->id),
                     "name", who->name, "version", who->version, "boot", (json_int_t)who->boot, "seq",
                     (json_int_t)who->seq, "cores", (json_int_t)who->cores, "threads",
                     (json_int_t)who->threads, "memory_total", (json_int_t)who->memory_total,
                     "memory_available", (json_int_t)who->memory_available, "links", links, "job",
                     (json_int_t)who->job, "head", hex(who->head), "rank", who->rank, "doing", who->doing,
                     "seconds", who->seconds);
}

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

static int member_decode(struct member *ret, const json_t *record)
{
    struct member m = {0};
    const char *id, *name, *version, *head, *doing;
    json_t *links;
    json_int_t boot, seq, cores, threads, total, available, job;
    if (json_unpack((json_t *)record, "{s:s s:s s:s s:I s:I s:I s:I s:I s:I s:o s:I s:s s:i s:s s:F}", "id",
                    &id, "name", &name, "version", &version, "boot", &boot, "seq", &seq, "cores", &cores,
                    "threads", &threads, "memory_total", &total, "memory_available", &available, "links",
                    &links, "job", &job, "head", &head, "rank", &m.rank, "doing", &doing, "seconds",
                    &m.seconds))
        return -EBADMSG;
    if (id_parse(m.id, id) || id_parse(m.head, head) || !json_is_array(links) ||
        json_array_size(links) > RING_MAX_NODES)
        return -EBADMSG;
    for (; m.nlinks < json_array_size(links); m.nlinks++)
        if (id_parse(m.links[m.nlinks], json_string_value(json_array_get(links, m.nlinks))))
            return -EBADMSG;
    copy_text(m.name, sizeof m.name, name);
    copy_text(m.version, sizeof m.version, version);
    copy_text(m.doing, sizeof m.doing, doing);
    m.boot = (uint64_t)boot;
    m.seq = (uint64_t)seq;
    m.cores = (unsigned)cores;
    m.threads = (unsigned)threads;
    m.memory_total = (uint64_t)total;
    m.memory_available = (uint64_t)available;
    m.job = (uint64_t)job;
    *ret = m;
    return 0;
}

static struct member *lookup(const struct members *m, const uint8_t id[16])
{
    for (size_t i = 0; i < m->n; i++)
        if (!memcmp(m->at[i].id, id, 16))
            return (struct member *)&m->at[i];
    return NULL;
}

/* A full table forgets the unreachable node it has heard least recently: nodes that were replaced do not fill
 * it for ever. */
static struct member *free_place(struct members *m)
{
    if (m->n < RING_MAX_NODES)
        return &m->at[m->n++];
    struct member *oldest = NULL;
    for (size_t i = 1; i < m->n; i++)
        if (!members_reachable(m, m->at[i].id) && (!oldest || m->at[i].heard.us < oldest->heard.us))
            oldest = &m->at[i];
    return oldest;
}

/* An old record of ours may still go round after a restart; a second machine with our identity goes on talking. */
static bool is_twin(struct members *m, const struct member *news)
{
    if (news->boot == m->at[0].boot)
        return false;
    bool again = news->boot == m->twin_boot && news->seq > m->twin_seq;
    m->twin_boot = news->boot;
    m->twin_seq = news->seq;
    return again;
}

/* A restarted node begins counting anew, with a later boot. A clock that was set back makes it an earlier one: that is believed
 * once the present life of the node is out of reach. Of a life that was heard before, only what is new counts: the last words of
 * several lives would chase each other round the ring for ever. */
static bool is_news(const struct members *m, const struct member *known, const struct member *news)
{
    const struct life *former = m->former[known - m->at];
    if (known->boot == news->boot)
        return news->seq > known->seq;
    for (size_t i = 0; i < FORMER; i++)
        if (former[i].boot == news->boot && news->seq <= former[i].seq)
            return false;
    return news->boot > known->boot || !members_reachable(m, known->id);
}

/* Before `news` takes the place: its present life becomes a former one. */
static void keep_life(struct members *m, const struct member *known, const struct member *news)
{
    struct life *former = m->former[known - m->at];
    size_t at = 0;
    if (known->boot == news->boot)
        return;
    while (at < FORMER - 1 && former[at].boot != news->boot)
        at++;
    memmove(former + 1, former, at * sizeof *former);
    former[0] = (struct life){known->boot, known->seq};
}

int members_learn(struct members *m, const json_t *record, struct instant now)
{
    struct member news;
    int r = member_decode(&news, record);
    if (r)
        return r;
    struct member *known = lookup(m, news.id);
    if (known == &m->at[0])
        return is_twin(m, &news) ? -EEXIST : 0;
    if (known && !is_news(m, known, &news))
        return 0;
    if (known) {
        keep_life(m, known, &news);
    } else {
        if (!(known = free_place(m)))
            return -ENOSPC;
        memset(m->former[known - m->at], 0, sizeof m->former[0]);
    }
    news.heard = now;
    *known = news;
    return 1;
}

size_t members_count(const struct members *m)
{
    return m->n;
}

const struct member *members_at(const struct members *m, size_t i)
{
    return &m->at[i];
}

const struct member *members_find(const struct members *m, const uint8_t id[16])
{
    return lookup(m, id);
}

/* --- what follows from them ------------------------------------------------------------------- */

static bool lists(const struct member *a, const struct member *b)
{
    for (size_t i = 0; i < a->nlinks; i++)
        if (!memcmp(a->links[i], b->id, 16))
            return true;
    return false;
}

static bool linked(const struct members *m, size_t a, size_t b)
{
    return a != b && lists(&m->at[a], &m->at[b]) && lists(&m->at[b], &m->at[a]);
}

bool members_linked(const struct members *m, const uint8_t a[16], const uint8_t b[16])
{
    const struct member *from = lookup(m, a), *to = lookup(m, b);
    return from && to && lists(from, to) && lists(to, from);
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
    const struct member *who = lookup(m, id);
    mark_reachable(m, seen);
    return who && seen[who - m->at];
}

/* The graph of reachable nodes; index[] maps its places to ours. */
static void make_graph(const struct members *m, struct ring_graph *g, size_t index[RING_MAX_NODES])
{
    bool seen[RING_MAX_NODES];
    mark_reachable(m, seen);
    memset(g, 0, sizeof *g);
    for (size_t i = 0; i < m->n; i++)
        if (seen[i]) {
            index[g->n] = i;
            memcpy(g->id[g->n++], m->at[i].id, 16);
        }
    for (size_t a = 0; a < g->n; a++)
        for (size_t b = 0; b < g->n; b++)
            g->edge[a][b].linked = linked(m, index[a], index[b]);
}

const struct member *members_next_hop(const struct members *m, const uint8_t id[16])
{
    struct ring_graph g;
    size_t index[RING_MAX_NODES];
    make_graph(m, &g, index);
    for (size_t i = 0; i < g.n; i++)
        if (!memcmp(g.id[i], id, 16)) {
            int hop = ring_next_hop(&g, 0, i);
            return hop < 0 ? NULL : &m->at[index[hop]];
        }
    return NULL;
}

static void compute(const struct members *m, const struct ring_graph *g, struct ring_order *ret)
{
    struct answer *last = m->last;
    if (!last->known || memcmp(&last->graph, g, sizeof *g)) {
        last->known = !ring_compute(&last->order, g);
        last->graph = *g;
    }
    *ret = last->order;
}

void members_ring(const struct members *m, const uint8_t *head, struct members_ring *ret)
{
    struct ring_graph g;
    struct ring_order order, turned;
    size_t index[RING_MAX_NODES];
    make_graph(m, &g, index);
    compute(m, &g, &order);
    for (size_t i = 0; head && i < g.n; i++)
        if (!memcmp(g.id[i], head, 16) && !ring_rotate(&turned, &order, i))
            order = turned;
    *ret = (struct members_ring){.shape = order.shape, .n = order.n};
    for (size_t i = 0; i < order.n; i++)
        ret->at[i] = &m->at[index[order.at[i]]];
}

const struct member *members_cut_off(const struct members *m)
{
    bool seen[RING_MAX_NODES];
    mark_reachable(m, seen);
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->n && !seen[i]; k++)
            if (seen[k] && lists(&m->at[i], &m->at[k]))
                return &m->at[i];
    return NULL;
}

void members_describe(const struct members *m, char *buf, size_t n)
{
    struct members_ring r;
    char names[512] = "";
    members_ring(m, NULL, &r);
    for (size_t i = 0; i < r.n; i++) {
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", i ? ", " : "", r.at[i]->name);
    }
    switch (r.shape) {
    case RING_ALONE: snprintf(buf, n, "%s is alone", names); break;
    case RING_CLOSED: snprintf(buf, n, "a ring of %zu: %s", r.n, names); break;
    case RING_CHAIN:
        snprintf(buf, n, "a chain of %zu: %s; a connection between %s and %s would close the ring", r.n,
                 names, r.at[0]->name, r.at[r.n - 1]->name);
        break;
    case RING_BROKEN: snprintf(buf, n, "no path visits all nodes: every node needs two neighbours"); break;
    }
}
