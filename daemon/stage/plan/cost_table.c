/* SPDX-License-Identifier: MIT
 *
 * Owns what the nodes said. */
#include "daemon/stage/plan/cost_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/pipe/cable_use.h"
#include "daemon/common/ipc.h"
#include "daemon/stage/exchange/exchange.h"

static const double HOP_S = 300e-6;    /* from the end of a message to its being taken, but for the cable */
static const double GATHER_S = 15e-6;  /* of a small message that its receiver reads itself, */
static const double WOKEN_S = 180e-6;  /* and of a large one, that a thread reads for it */
static const double MESSAGE_S = 50e-6; /* sealing, chunks, acknowledgements */

struct cost_table *cost_table_new(struct head *h)
{
    struct cost_table *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->h = h;
    t->nodes = json_incref(h->planning.nodes);
    t->node = calloc(h->plan.ranks, sizeof *t->node);
    if (t->node)
        return t;
    cost_table_free(t);
    return NULL;
}

void cost_table_free(struct cost_table *t)
{
    if (!t)
        return;
    free(t->node);
    json_decref(t->nodes);
    json_decref(t->answers);
    free(t);
}

/* --- the units -------------------------------------------------------------------------------- */

size_t cost_table_like(const struct head *h, size_t unit, size_t lowest)
{
    const struct config *c = &h->config;
    if (unit == 0 || unit > c->layers)
        return unit;
    for (size_t u = 1; u < unit; u++)
        if (config_has_experts(c, u - 1) == config_has_experts(c, unit - 1) &&
            tune_unit_elements(&h->plan.tune, h->family, c, u) ==
                tune_unit_elements(&h->plan.tune, h->family, c, unit) &&
            (u >= lowest) == (unit >= lowest) &&
            family_cost(h->family, c, u, h->plan.positions) ==
                family_cost(h->family, c, unit, h->plan.positions))
            return u;
    return unit;
}

/* --- the nodes -------------------------------------------------------------------------------- */

static const json_t *about(const struct cost_table *t, size_t rank, const char *key)
{
    return json_object_get(json_array_get(t->nodes, rank), key);
}

double cost_table_number(const struct cost_table *t, size_t rank, const char *key)
{
    return json_number_value(about(t, rank, key));
}

double cost_table_threads(const struct cost_table *t, size_t rank)
{
    return fmax(cost_table_number(t, rank, "speed"), 1);
}

const char *cost_table_name(const struct cost_table *t, size_t rank)
{
    const char *name = json_string_value(about(t, rank, "name"));
    return name ? name : "?";
}

/* --- timing ----------------------------------------------------------------------------------- */

/* {"ev":"survey"}: the daemon hears all other nodes and always answers. NULL: nobody was asked. */
static json_t *ask_nodes(const struct cost_table *t)
{
    json_t *ids = json_array(), *msg = NULL, *answers = NULL;
    const size_t ranks = t->h->plan.ranks;
    for (size_t r = 0; r < ranks; r++)
        json_array_append(ids, json_object_get(json_array_get(t->nodes, r), "id"));
    if (ranks < 2 || json_array_size(ids) != ranks) {
        json_decref(ids);
        return NULL;
    }
    stage_event(t->h->events, "survey",
                json_pack("{s:o s:o}", "nodes", ids, "question", units_encode(&t->list, &t->h->plan)));
    int fd = -1, r = ipc_receive(t->h->events->sock, &msg, NULL, &fd);
    if (fd >= 0)
        close(fd);
    if (!r)
        answers = json_incref(json_object_get(msg, "answers"));
    if (r >= 0)
        json_decref(msg);
    return answers;
}

static void take_answer(struct cost_table_node *node, size_t n, const json_t *answer)
{
    const char *why = json_string_value(json_object_get(answer, "why"));
    units_decode_answer(node->cost, node->have, n, answer);
    for (size_t i = 0; i < n; i++)
        node->any = node->any || node->have[i];
    snprintf(node->why, sizeof node->why, "%s", why ? why : "");
}

int cost_table_take(struct cost_table *t, struct err *err)
{
    struct cost_table_node *own = &t->node[0];
    int e = units_time(own->cost, own->have, &t->list, &t->h->plan, &t->h->config,
                       (int)cost_table_threads(t, 0), !t->h->planning.must_not_time, err);
    for (size_t i = 0; i < t->list.n; i++)
        if (!own->have[i] && t->list.at[i].needed)
            return e ? e : err_set(err, -EIO, "the units of the model could not be timed");
    own->any = true;
    t->answers = ask_nodes(t);
    for (size_t r = 1; r < t->h->plan.ranks; r++)
        take_answer(&t->node[r], t->list.n, json_array_get(t->answers, r));
    return 0;
}

/* --- what follows ----------------------------------------------------------------------------- */

static double sum_of(const struct sched_cost *c)
{
    return c->f + c->i + c->w;
}

double cost_table_slowness(const struct cost_table *t, size_t rank)
{
    const struct cost_table_node *own = &t->node[0], *node = &t->node[rank];
    double mine = 0, its = 0;
    for (size_t i = 0; i < t->list.n; i++)
        if (own->have[i] && node->have[i]) {
            mine += sum_of(&own->cost[i]);
            its += sum_of(&node->cost[i]);
        }
    return mine > 0 && its > 0 ? its / mine : cost_table_threads(t, 0) / cost_table_threads(t, rank);
}

struct sched_cost cost_table_cost(const struct cost_table *t, size_t rank, size_t at)
{
    const struct sched_cost *c = &t->node[t->node[rank].have[at] ? rank : 0].cost[at];
    const double slow = t->node[rank].have[at] ? 1 : cost_table_slowness(t, rank);
    return (struct sched_cost){c->f * slow, c->i * slow, c->w * slow, c->r * slow, c->u * slow};
}

/* Seconds of the bytes, and of the cable alone. */
static struct sched_link cable_between(const struct cost_table *t, size_t from, size_t to, double bytes)
{
    const json_t *id = about(t, to, "id"), *ways = json_object_get(json_array_get(t->answers, from), "ways"),
                 *way;
    double mbps = cost_table_number(t, from, "mbps"), rtt_us = 0;
    size_t i;
    json_array_foreach (ways, i, way) {
        const double is = json_number_value(json_object_get(way, "mbps"));
        if (!json_equal(json_object_get(way, "id"), id))
            continue;
        mbps = is >= CABLE_LEAST_MBPS ? is : mbps;
        rtt_us = json_number_value(json_object_get(way, "rtt_us"));
    }
    return (struct sched_link){mbps >= CABLE_LEAST_MBPS ? bytes * 8 / (mbps * 1e6 * CABLE_USABLE) : 0,
                               fmin(fmax(rtt_us, 0), 1e6) / 2e6};
}

struct sched_link cost_table_link(const struct cost_table *t, size_t from, size_t to, double bytes)
{
    const struct sched_link cable = cable_between(t, from, to, bytes);
    return (struct sched_link){cable.transfer + MESSAGE_S, cable.latency + HOP_S};
}

/* The round trip is that of daemons, who sleep until a message wakes them: half of it is more than
 * the cable's own. */
struct gather_way cost_table_gather(const struct cost_table *t, size_t from, size_t to)
{
    const struct sched_link cable = cable_between(t, from, to, 1);
    const double latency = fmax(cable.latency - WOKEN_S, 0);
    return (struct gather_way){cable.transfer, latency + GATHER_S, latency + WOKEN_S};
}

double gather_way_seconds(const struct gather_way *way, double bytes)
{
    return bytes * way->byte + (bytes < EXCHANGE_SMALL ? way->small : way->large);
}

void cost_table_say(const struct cost_table *t)
{
    for (size_t r = 1; r < t->h->plan.ranks; r++) {
        const struct cost_table_node *node = &t->node[r];
        const double fast = 1 / cost_table_slowness(t, r);
        if (!node->any)
            stage_say(t->h->events,
                      "%s was not timed%s%s: the forecast takes it as %.3g times as fast as %s, by its %.0f "
                      "threads",
                      cost_table_name(t, r), *node->why ? ", for " : "", node->why, fast,
                      cost_table_name(t, 0), cost_table_threads(t, r));
        else if (*node->why)
            stage_say(
                t->h->events,
                "%s could not time all units (%s): the forecast takes the rest as %.3g times as fast as %s",
                cost_table_name(t, r), node->why, fast, cost_table_name(t, 0));
    }
}
