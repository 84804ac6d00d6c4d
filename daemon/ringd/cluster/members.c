/* SPDX-License-Identifier: MIT
 *
 * The table of nodes: records as JSON, which of them are news, which are too old. Called on the
 * loop. */
#include "daemon/ringd/cluster/members_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/common/model/mapped.h"
#include "daemon/common/xalloc.h"
#include "net/wire.h"

enum {
    LATE_US = 500000,   /* from which on it was we who stood still */
    GRACE_US = 2000000, /* for two heartbeats of the others */
};

struct members *members_new(const struct member *self)
{
    struct members *m = xcalloc(1, sizeof *m);
    m->orders = xcalloc(1, sizeof *m->orders);
    m->n = 1;
    m->at[0] = *self;
    return m;
}

void members_free(struct members *m)
{
    if (!m)
        return;
    free(m->orders);
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

static json_t *cable_encode(const struct member_cable *c)
{
    char six[PREFIX_TEXT] = "", four[PREFIX_TEXT] = "";
    if (c->six.family)
        prefix_format(&c->six, six);
    if (c->four.family)
        prefix_format(&c->four, four);
    return json_pack("{s:s s:s s:s}", "port", c->port, "ipv6", six, "ipv4", four);
}

json_t *member_stage_units(const struct member_stage *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->nruns; i++) {
        json_array_append_new(list, json_integer(s->runs[i].from));
        json_array_append_new(list, json_integer(s->runs[i].end));
    }
    return list;
}

static json_t *stage_encode(const struct member_stage *s)
{
    char doing[sizeof s->doing], weights[MAPPED_KEY_TEXT]; /* doing may have been cut within a character */
    wire_copy_text(doing, sizeof doing, s->doing);
    mapped_key_text(weights, s->weights);
    return json_pack("{s:I s:o s:i s:s s:I s:s s:o s:s s:f}", "job", (json_int_t)s->job, "head",
                     id_json(s->head), "rank", s->rank, "class", job_class_name(s->class), "bytes",
                     (json_int_t)s->bytes, "weights", weights, "units", member_stage_units(s), "doing", doing,
                     "seconds", s->seconds);
}

json_t *member_encode(const struct member *who)
{
    json_t *links = json_array();
    for (size_t i = 0; i < who->nlinks; i++)
        json_array_append_new(links, json_pack("{s:o s:I s:b}", "id", id_json(who->links[i].id), "class_mbps",
                                               (json_int_t)who->links[i].class_mbps, "shared",
                                               (int)who->links[i].shared));
    json_t *ended = json_array();
    for (size_t i = 0; i < who->nended; i++)
        json_array_append_new(ended, id_json(who->ended[i]));
    json_t *cables = json_array();
    for (size_t i = 0; i < who->ncables; i++)
        json_array_append_new(cables, cable_encode(&who->cables[i]));
    json_t *stages = json_array();
    for (size_t i = 0; i < who->nstages; i++)
        json_array_append_new(stages, stage_encode(&who->stages[i]));
    return json_pack("{s:o s:s s:s s:I s:I s:I s:I s:I s:I s:o s:o s:o s:s s:s s:I s:o s:s}", "id",
                     id_json(who->id), "name", who->name, "version", who->version, "boot",
                     (json_int_t)who->boot, "seq", (json_int_t)who->seq, "cores", (json_int_t)who->cores,
                     "threads", (json_int_t)who->threads, "memory_total", (json_int_t)who->memory_total,
                     "memory_available", (json_int_t)who->memory_available, "links", links, "ended", ended,
                     "cables", cables, "ring", who->ring, "drained", who->drained, "jobs",
                     (json_int_t)who->jobs, "stages", stages, "kernels", who->kernels);
}

static bool same_links(const struct member *a, const struct member *b)
{
    for (size_t i = 0; i < a->nlinks && i < b->nlinks; i++)
        if (memcmp(a->links[i].id, b->links[i].id, 16) != 0 ||
            a->links[i].class_mbps != b->links[i].class_mbps || a->links[i].shared != b->links[i].shared)
            return false;
    return a->nlinks == b->nlinks;
}

static bool same_cables(const struct member *a, const struct member *b)
{
    for (size_t i = 0; i < a->ncables && i < b->ncables; i++)
        if (strcmp(a->cables[i].port, b->cables[i].port) != 0 ||
            !prefix_equal(&a->cables[i].six, &b->cables[i].six) ||
            !prefix_equal(&a->cables[i].four, &b->cables[i].four))
            return false;
    return a->ncables == b->ncables;
}

static bool same_stages(const struct member *a, const struct member *b)
{
    for (size_t i = 0; i < a->nstages && i < b->nstages; i++) {
        const struct member_stage *x = &a->stages[i], *y = &b->stages[i];
        if (x->job != y->job || memcmp(x->head, y->head, 16) != 0 || x->rank != y->rank ||
            x->class != y->class || x->bytes != y->bytes || x->weights != y->weights ||
            x->nruns != y->nruns || memcmp(x->runs, y->runs, x->nruns * sizeof *x->runs) != 0 ||
            strcmp(x->doing, y->doing) != 0 || x->seconds < y->seconds || x->seconds > y->seconds)
            return false;
    }
    return a->nstages == b->nstages;
}

bool member_says_the_same(const struct member *a, const struct member *b)
{
    uint64_t more = a->memory_available > b->memory_available ? a->memory_available : b->memory_available;
    uint64_t less = a->memory_available + b->memory_available - more;
    return !memcmp(a->id, b->id, 16) && !strcmp(a->name, b->name) && !strcmp(a->version, b->version) &&
           a->boot == b->boot && a->cores == b->cores && a->threads == b->threads &&
           a->memory_total == b->memory_total && more - less <= a->memory_total / 256 && same_links(a, b) &&
           same_cables(a, b) && a->jobs == b->jobs && a->nended == b->nended &&
           !memcmp(a->ended, b->ended, a->nended * sizeof a->ended[0]) && !strcmp(a->ring, b->ring) &&
           !strcmp(a->drained, b->drained) && same_stages(a, b);
}

static int decode_link(struct member_link *ret, const json_t *link)
{
    const char *id;
    json_int_t class_mbps;
    int shared;
    if (json_unpack((json_t *)link, "{s:s s:I s:b}", "id", &id, "class_mbps", &class_mbps, "shared",
                    &shared) ||
        id_parse(ret->id, id) || class_mbps < 0 || class_mbps > UINT32_MAX)
        return -EBADMSG;
    ret->class_mbps = (uint32_t)class_mbps;
    ret->shared = shared;
    return 0;
}

static int decode_address(struct prefix *ret, const char *text, uint8_t family)
{
    return *text && (prefix_parse(ret, text) || ret->family != family) ? -EBADMSG : 0;
}

static int decode_cable(struct member_cable *ret, const json_t *cable)
{
    const char *port, *six, *four;
    if (json_unpack((json_t *)cable, "{s:s s:s s:s}", "port", &port, "ipv6", &six, "ipv4", &four) ||
        strlen(port) >= sizeof ret->port || !wire_is_text(port, strlen(port)) ||
        decode_address(&ret->six, six, AF_INET6) || decode_address(&ret->four, four, AF_INET))
        return -EBADMSG;
    memcpy(ret->port, port, strlen(port));
    return 0;
}

static bool class_read(enum job_class *ret, const char *name)
{
    for (enum job_class c = 0; c < JOB_CLASSES; c++)
        if (!strcmp(name, job_class_name(c))) {
            *ret = c;
            return true;
        }
    return false;
}

/* In order, and none of them empty. */
static int decode_units(struct member_stage *ret, const json_t *units)
{
    const size_t n = json_array_size(units) / 2;
    json_int_t least = 0;
    if (!json_is_array(units) || n > MEMBER_RUNS || json_array_size(units) != 2 * n)
        return -EBADMSG;
    for (; ret->nruns < n; ret->nruns++) {
        const json_int_t from = json_integer_value(json_array_get(units, 2 * ret->nruns)),
                         end = json_integer_value(json_array_get(units, 2 * ret->nruns + 1));
        if (from < least || end <= from || end > UINT32_MAX)
            return -EBADMSG;
        ret->runs[ret->nruns] = (struct member_run){(uint32_t)from, (uint32_t)end};
        least = end;
    }
    return 0;
}

static int decode_stage(struct member_stage *ret, const json_t *stage)
{
    const char *head, *class, *doing, *weights;
    json_t *units;
    json_int_t job, bytes;
    if (json_unpack((json_t *)stage, "{s:I s:s s:i s:s s:I s:s s:o s:s s:F}", "job", &job, "head", &head,
                    "rank", &ret->rank, "class", &class, "bytes", &bytes, "weights", &weights, "units",
                    &units, "doing", &doing, "seconds", &ret->seconds) ||
        id_parse(ret->head, head) || job <= 0 || bytes < 0 || ret->rank < 0 || ret->rank >= RING_MAX_NODES ||
        !class_read(&ret->class, class) || mapped_key_parse(&ret->weights, weights) ||
        decode_units(ret, units))
        return -EBADMSG;
    ret->job = (uint64_t)job;
    ret->bytes = (uint64_t)bytes;
    wire_copy_text(ret->doing, sizeof ret->doing, doing);
    return 0;
}

static int decode_stages(struct member *m, const json_t *stages)
{
    if (!json_is_array(stages) || json_array_size(stages) > MEMBER_STAGES)
        return -EBADMSG;
    for (; m->nstages < json_array_size(stages); m->nstages++)
        if (decode_stage(&m->stages[m->nstages], json_array_get(stages, m->nstages)))
            return -EBADMSG;
    return 0;
}

const struct member_stage *member_stage_of(const struct member *m, const uint8_t head[16], uint64_t job)
{
    for (size_t i = 0; i < m->nstages; i++)
        if (m->stages[i].job == job && !memcmp(m->stages[i].head, head, 16))
            return &m->stages[i];
    return NULL;
}

const struct member_stage *member_trains(const struct member *m)
{
    for (size_t i = 0; i < m->nstages; i++)
        if (m->stages[i].class == JOB_CLASS_TRAIN)
            return &m->stages[i];
    return NULL;
}

static int decode_ended(struct member *m, const json_t *ended)
{
    if (!json_is_array(ended) || json_array_size(ended) > RING_MAX_NODES)
        return -EBADMSG;
    for (; m->nended < json_array_size(ended); m->nended++)
        if (id_parse(m->ended[m->nended], json_string_value(json_array_get(ended, m->nended))))
            return -EBADMSG;
    return 0;
}

/* A list that an earlier version does not tell. */
static int decode_cables(struct member *m, const json_t *cables)
{
    if (cables && (!json_is_array(cables) || json_array_size(cables) > MEMBER_CABLES))
        return -EBADMSG;
    for (; m->ncables < json_array_size(cables); m->ncables++)
        if (decode_cable(&m->cables[m->ncables], json_array_get(cables, m->ncables)))
            return -EBADMSG;
    return 0;
}

int member_decode(struct member *ret, const json_t *record)
{
    struct member m = {0};
    const char *id, *name, *version, *ring, *drained;
    json_t *links;
    const json_t *kernels = json_object_get(record, "kernels"); /* an earlier version does not say it */
    json_int_t boot, seq, cores, threads, total, available, jobs;
    if (json_unpack((json_t *)record, "{s:s s:s s:s s:I s:I s:I s:I s:I s:I s:o s:s s:s s:I}", "id", &id,
                    "name", &name, "version", &version, "boot", &boot, "seq", &seq, "cores", &cores,
                    "threads", &threads, "memory_total", &total, "memory_available", &available, "links",
                    &links, "ring", &ring, "drained", &drained, "jobs", &jobs))
        return -EBADMSG;
    if (id_parse(m.id, id) || (kernels && !json_is_string(kernels)) || !json_is_array(links) ||
        json_array_size(links) > RING_MAX_NODES)
        return -EBADMSG;
    for (; m.nlinks < json_array_size(links); m.nlinks++)
        if (decode_link(&m.links[m.nlinks], json_array_get(links, m.nlinks)))
            return -EBADMSG;
    if (strlen(ring) >= sizeof m.ring || !wire_is_text(ring, strlen(ring)) ||
        decode_ended(&m, json_object_get(record, "ended")) ||
        decode_cables(&m, json_object_get(record, "cables")) ||
        decode_stages(&m, json_object_get(record, "stages")))
        return -EBADMSG;
    memcpy(m.ring, ring, strlen(ring));
    wire_copy_text(m.name, sizeof m.name, name);
    wire_copy_text(m.version, sizeof m.version, version);
    wire_copy_text(m.drained, sizeof m.drained, drained);
    wire_copy_text(m.kernels, sizeof m.kernels, kernels ? json_string_value(kernels) : "");
    m.boot = (uint64_t)boot;
    m.seq = (uint64_t)seq;
    m.cores = (unsigned)cores;
    m.threads = (unsigned)threads;
    m.memory_total = (uint64_t)total;
    m.memory_available = (uint64_t)available;
    m.jobs = (uint64_t)jobs;
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

/* A full table forgets the unreachable node it has heard least recently: nodes that were replaced
 * do not fill it for ever. */
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

/* An old record of ours may still go round after a restart; a second machine with our identity goes
 * on talking. */
static bool is_twin(struct members *m, const struct member *news)
{
    if (news->boot == m->at[0].boot)
        return false;
    bool again = news->boot == m->twin_boot && news->seq > m->twin_seq;
    m->twin_boot = news->boot;
    m->twin_seq = news->seq;
    return again;
}

/* A restarted node begins counting anew, with a later boot. A clock that was set back makes it an
 * earlier one: that is believed once the present life of the node is out of reach. Of a life that
 * was heard before, only what is new counts: the last words of several lives would chase each other
 * round the ring for ever. */
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

bool members_is_news(const struct members *m, const struct member *record)
{
    const struct member *known = lookup(m, record->id);
    return !known || known == &m->at[0] || is_news(m, known, record);
}

int members_take(struct members *m, const struct member *news, struct instant said)
{
    struct member *known = lookup(m, news->id);
    if (known == &m->at[0])
        return is_twin(m, news) ? -EEXIST : 0;
    if (known && !is_news(m, known, news))
        return 0;
    if (known) {
        keep_life(m, known, news);
    } else {
        if (!(known = free_place(m)))
            return -ENOSPC;
        memset(m->former[known - m->at], 0, sizeof m->former[0]);
    }
    *known = *news;
    known->heard = said;
    m->stale[known - m->at] = false;
    return 1;
}

int members_learn(struct members *m, const json_t *record, struct instant said)
{
    struct member news;
    int r = member_decode(&news, record);
    return r ? r : members_take(m, &news, said);
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

const struct member *members_named(const struct members *m, const char *name)
{
    const struct member *found = NULL;
    for (size_t i = 0; i < members_count(m); i++) {
        const struct member *one = members_at(m, i);
        char id[33];
        id_hex(id, one->id);
        if ((!strcmp(name, one->name) || !strcmp(name, id)) && (!found || members_reachable(m, one->id)))
            found = one;
    }
    return found;
}

/* --- age -------------------------------------------------------------------------------------- */

void members_set_patience(struct members *m, uint64_t patience_us)
{
    m->patience_us = patience_us;
}

bool members_expire(struct members *m, struct instant now)
{
    bool any = false;
    struct instant due = members_due(m);
    uint64_t late_us = clock_since_us(now, due);
    for (size_t i = 1; i < m->n && late_us > LATE_US; i++)
        m->at[i].heard.us =
            m->at[i].heard.us + late_us + GRACE_US < now.us ? m->at[i].heard.us + late_us + GRACE_US : now.us;
    for (size_t i = 1; i < m->n && m->patience_us; i++)
        if (!m->stale[i] && now.us >= m->at[i].heard.us + m->patience_us) {
            any |= members_reachable(m, m->at[i].id);
            m->stale[i] = true;
        }
    return any;
}

struct instant members_due(const struct members *m)
{
    struct instant due = {UINT64_MAX};
    for (size_t i = 1; i < m->n && m->patience_us; i++)
        if (!m->stale[i] && m->at[i].heard.us + m->patience_us < due.us)
            due.us = m->at[i].heard.us + m->patience_us;
    return due;
}
