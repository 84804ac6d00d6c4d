/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/travel_query.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "engine/pipe/cable_use.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/census.h"
#include "daemon/ringd/hub/travel.h"
#include "daemon/ringd/job/spawn.h"

struct travel_query {
    LIST_ENTRY(travel_query) next;
    struct travel_queries *all;
    struct spawn *stage; /* borrowed: whose question it is */
    json_t *event;       /* owned */
};

struct travel_queries {
    struct model_census *census;
    struct members *members;
    LIST_HEAD(, travel_query) list;
};

/* --- what is known ---------------------------------------------------------------------------- */

static bool is_node(const json_t *answer, const json_t *id)
{
    return json_equal(json_object_get(answer, "id"), id);
}

/* As its own record has it, for a cable that nobody has measured. */
static double class_of(const struct member *from, const struct member *to)
{
    for (size_t i = 0; from && to && i < from->nlinks; i++)
        if (!memcmp(from->links[i].id, to->id, 16))
            return from->links[i].class_mbps;
    return 0;
}

static double measured(const json_t *from, const json_t *to)
{
    const json_t *way;
    size_t i;
    json_array_foreach (json_object_get(from, "ways"), i, way)
        if (is_node(to, json_object_get(way, "id")))
            return json_number_value(json_object_get(way, "mbps"));
    return 0;
}

static const struct member *member_of(const struct members *members, const json_t *answer)
{
    const char *text = json_string_value(json_object_get(answer, "id"));
    uint8_t id[16];
    return text && !id_parse(id, text) ? members_find(members, id) : NULL;
}

static void read_cables(struct travel_world *w, const struct members *members, const json_t *answers)
{
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->n; k++) {
            const json_t *from = json_array_get(answers, i), *to = json_array_get(answers, k);
            const struct member *a = member_of(members, from), *b = member_of(members, to);
            const double mbps = measured(from, to);
            w->joined[i][k] = a && b && i != k && members_linked(members, a->id, b->id);
            w->mbps[i][k] = mbps >= CABLE_LEAST_MBPS ? mbps : class_of(a, b);
        }
}

/* Other files under the name are of no use. */
static struct travel_node node_of(const json_t *answer, const char *model, const char *content)
{
    const json_t *models = json_object_get(answer, "models"), *have = json_object_get(models, model);
    const char *its = json_string_value(json_object_get(have, "content"));
    const bool is_same = its && (!content || !*content || !strcmp(its, content));
    return (struct travel_node){.is_known = json_is_object(models),
                                .has_outline = is_same,
                                .is_whole = is_same && json_is_true(json_object_get(have, "whole")),
                                .blocks = is_same ? json_object_get(have, "blocks") : NULL};
}

static const char *content_of(const json_t *answer, const char *model)
{
    return json_string_value(
        json_object_get(json_object_get(json_object_get(answer, "models"), model), "content"));
}

/* of: the event, or what it says of a draft model. */
static void read_world(struct travel_world *w, const struct members *members, const json_t *of,
                       const json_t *answers)
{
    const char *model = json_string_value(json_object_get(of, "model"));
    const json_t *shares = json_object_get(of, "shares");
    const char *content = content_of(json_array_get(answers, 0), model);
    w->ranks = json_array_size(shares ? shares : json_object_get(of, "nodes"));
    w->n = json_array_size(answers);
    w->sizes = json_object_get(of, "sizes");
    for (size_t i = 0; i < w->n; i++) {
        w->node[i] = node_of(json_array_get(answers, i), model, content);
        w->node[i].share = json_array_get(shares, i);
    }
    read_cables(w, members, answers);
}

/* --- what is said ----------------------------------------------------------------------------- */

static json_t *show_rank(const struct travel_rank *r, size_t n, const json_t *answers, size_t i)
{
    json_t *from = json_array(),
           *shown = json_pack("{s:O s:I}", "node", json_object_get(json_array_get(answers, i), "node"),
                              "share", (json_int_t)r->share);
    for (size_t k = 0; k < n; k++)
        if (r->from[k])
            json_array_append_new(from, json_pack("{s:O s:I}", "node",
                                                  json_object_get(json_array_get(answers, k), "node"),
                                                  "bytes", (json_int_t)r->from[k]));
    if (r->is_known)
        json_object_update_new(shown, json_pack("{s:I s:O s:I}", "lacks", (json_int_t)r->lacks, "from", from,
                                                "hub", (json_int_t)r->hub));
    else
        json_object_set(shown, "why", json_object_get(json_array_get(answers, i), "why"));
    json_decref(from);
    return shown;
}

static int foresee(struct travel *ret, const struct members *members, const json_t *of, const json_t *answers)
{
    struct travel_world *w = xcalloc(1, sizeof *w);
    read_world(w, members, of, answers);
    const int r = travel_foresee(ret, w);
    free(w);
    return r;
}

/* By rank and unit; NULL: nobody knows. */
static json_t *show_lacks(const struct members *members, const json_t *event, const json_t *answers)
{
    const json_t *units = json_object_get(event, "units");
    const size_t n = json_array_size(units);
    struct travel_world *w = xcalloc(1, sizeof *w);
    read_world(w, members, event, answers);
    uint64_t *lacks = xcalloc(w->ranks * n + 1, sizeof *lacks);
    json_t *shown = travel_lacks(lacks, w, units) ? NULL : json_array();
    for (size_t i = 0; i < w->ranks && shown; i++) {
        json_t *row = json_array();
        for (size_t k = 0; k < n; k++)
            json_array_append_new(row, json_integer((json_int_t)lacks[i * n + k]));
        json_array_append_new(shown, row);
    }
    free(lacks);
    free(w);
    return shown;
}

json_t *travel_show(const struct members *members, const json_t *event, const json_t *answers)
{
    struct travel *t = xcalloc(1, sizeof *t), *more = xcalloc(1, sizeof *more);
    const json_t *draft = json_object_get(event, "draft");
    json_t *shown = NULL, *ranks = json_array();
    bool is_known = true;
    int r = foresee(t, members, event, answers);
    if (!r && draft && !(r = foresee(more, members, draft, answers)))
        travel_add(t, more);
    for (size_t i = 0; i < json_array_size(json_object_get(event, "shares")) && !r; i++) {
        is_known = is_known && t->rank[i].is_known;
        json_array_append_new(ranks, show_rank(&t->rank[i], json_array_size(answers), answers, i));
    }
    if (!r && (t->lacks || !is_known)) {
        shown = json_pack("{s:I s:I s:O}", "bytes", (json_int_t)t->lacks, "hub", (json_int_t)t->hub, "ranks",
                          ranks);
        if (t->is_timed && t->lacks > t->hub)
            json_object_update_new(shown, json_pack("{s:f s:f}", "seconds", t->seconds, "mbps", t->mbps));
    }
    json_decref(ranks);
    free(more);
    free(t);
    return shown;
}

/* --- questions -------------------------------------------------------------------------------- */

static void query_free(struct travel_query *q)
{
    census_forget(q->all->census, q);
    LIST_REMOVE(q, next);
    json_decref(q->event);
    free(q);
}

/* A stage that gets no answer would wait for ever. */
static void answer(struct spawn *stage, const char *key, json_t *value)
{
    if (spawn_send(stage, json_pack("{s:s s:o*}", "do", "travel", key, value)))
        spawn_kill(stage, "does not take messages");
}

static void on_counted(void *owner, const json_t *answers)
{
    struct travel_query *q = owner;
    struct spawn *stage = q->stage;
    const bool is_by_unit = json_object_get(q->event, "units");
    json_t *value = (is_by_unit ? show_lacks : travel_show)(q->all->members, q->event, answers);
    query_free(q);
    answer(stage, is_by_unit ? "lacks" : "travel", value);
}

/* The ranks, and after them all others that can be reached: one may have what no rank has. */
static size_t list_nodes(const struct members *members, const json_t *ranks, uint8_t (*ret)[16])
{
    size_t n = 0, i;
    json_t *id;
    json_array_foreach (ranks, i, id)
        if (n == RING_MAX_NODES || id_parse(ret[n++], json_string_value(id)))
            return 0;
    for (i = 0; i < members_count(members) && n < RING_MAX_NODES; i++) {
        const struct member *m = members_at(members, i);
        bool is_listed = false;
        for (size_t k = 0; k < n; k++)
            is_listed |= !memcmp(ret[k], m->id, 16);
        if (!is_listed && members_reachable(members, m->id))
            memcpy(ret[n++], m->id, 16);
    }
    return n;
}

static bool is_of_model(const json_t *of, size_t ranks)
{
    return json_is_string(json_object_get(of, "model")) &&
           json_array_size(json_object_get(of, "shares")) == ranks;
}

static bool is_whole_question(const json_t *event)
{
    const json_t *nodes = json_object_get(event, "nodes"), *draft = json_object_get(event, "draft"), *id;
    const size_t ranks = json_array_size(nodes);
    size_t i;
    bool is_list = true;
    json_array_foreach (nodes, i, id)
        is_list &= json_is_string(id);
    const bool is_by_unit =
        json_is_string(json_object_get(event, "model")) && json_is_array(json_object_get(event, "units"));
    return is_list && ranks && ranks <= RING_MAX_NODES && (is_by_unit || is_of_model(event, ranks)) &&
           (!draft || is_of_model(draft, ranks));
}

void travel_query_ask(struct travel_queries *t, struct spawn *stage, const json_t *event)
{
    uint8_t ids[RING_MAX_NODES][16];
    travel_query_forget(t, stage); /* one question at a time */
    const size_t n =
        is_whole_question(event) ? list_nodes(t->members, json_object_get(event, "nodes"), ids) : 0;
    struct travel_query *q = xcalloc(1, sizeof *q);
    *q = (struct travel_query){.all = t, .stage = stage, .event = json_deep_copy(event)};
    LIST_INSERT_HEAD(&t->list, q, next);
    json_t *models = json_pack("[O O*]", json_object_get(event, "model"),
                               json_object_get(json_object_get(event, "draft"), "model"));
    if (!n || census_ask(t->census, ids, n, models, true, on_counted, q)) {
        query_free(q);
        answer(stage, "travel", NULL);
    }
    json_decref(models);
}

void travel_query_forget(struct travel_queries *t, const struct spawn *stage)
{
    struct travel_query *next;
    for (struct travel_query *q = LIST_FIRST(&t->list); q; q = next) {
        next = LIST_NEXT(q, next);
        if (q->stage == stage)
            query_free(q);
    }
}

struct travel_queries *travel_queries_new(struct model_census *census, struct members *members)
{
    struct travel_queries *t = xcalloc(1, sizeof *t);
    *t = (struct travel_queries){.census = census, .members = members};
    LIST_INIT(&t->list);
    return t;
}

void travel_queries_free(struct travel_queries *t)
{
    if (!t)
        return;
    while (LIST_FIRST(&t->list))
        query_free(LIST_FIRST(&t->list));
    free(t);
}
