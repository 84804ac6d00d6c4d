/* SPDX-License-Identifier: MIT
 *
 * Owns what the nodes said. */
#include "daemon/stage/plan/cost_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/common/ipc.h"

static const double HOP_S = 300e-6;    /* from the end of a message to its being taken, but for the cable */
static const double USABLE = 0.9;      /* of what a cable is said to carry */
static const double MESSAGE_S = 50e-6; /* sealing, chunks, acknowledgements */
static const double LEAST_MBPS = 1e-3; /* of a cable: less is not believed */

struct timed *timed_new(struct head *h)
{
    struct timed *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->h = h;
    t->nodes = json_incref(h->nodes);
    t->node = calloc(h->plan.ranks, sizeof *t->node);
    if (t->node)
        return t;
    timed_free(t);
    return NULL;
}

void timed_free(struct timed *t)
{
    if (!t)
        return;
    free(t->node);
    json_decref(t->nodes);
    json_decref(t->answers);
    free(t);
}

/* --- the nodes -------------------------------------------------------------------------------- */

static const json_t *about(const struct timed *t, size_t rank, const char *key)
{
    return json_object_get(json_array_get(t->nodes, rank), key);
}

double timed_number(const struct timed *t, size_t rank, const char *key)
{
    return json_number_value(about(t, rank, key));
}

double timed_threads(const struct timed *t, size_t rank)
{
    return fmax(timed_number(t, rank, "speed"), 1);
}

const char *timed_name(const struct timed *t, size_t rank)
{
    const char *name = json_string_value(about(t, rank, "name"));
    return name ? name : "?";
}

/* --- timing ----------------------------------------------------------------------------------- */

/* {"ev":"survey"}: the daemon hears all other nodes and always answers. NULL: nobody was asked. */
static json_t *ask_nodes(const struct timed *t)
{
    json_t *ids = json_array(), *msg = NULL, *answers = NULL;
    const size_t ranks = t->h->plan.ranks;
    for (size_t r = 0; r < ranks; r++)
        json_array_append(ids, json_object_get(json_array_get(t->nodes, r), "id"));
    if (ranks < 2 || json_array_size(ids) != ranks) {
        json_decref(ids);
        return NULL;
    }
    head_event(t->h, "survey",
               json_pack("{s:o s:o}", "nodes", ids, "question", units_encode(&t->list, &t->h->plan)));
    int fd = -1, r = ipc_receive(t->h->sock, &msg, NULL, &fd);
    if (fd >= 0)
        close(fd);
    if (!r)
        answers = json_incref(json_object_get(msg, "answers"));
    if (r >= 0)
        json_decref(msg);
    return answers;
}

static void take_answer(struct timed_node *node, size_t n, const json_t *answer)
{
    const char *why = json_string_value(json_object_get(answer, "why"));
    units_decode_answer(node->cost, node->have, n, answer);
    for (size_t i = 0; i < n; i++)
        node->any = node->any || node->have[i];
    snprintf(node->why, sizeof node->why, "%s", why ? why : "");
}

int timed_take(struct timed *t, struct err *err)
{
    struct timed_node *own = &t->node[0];
    int e = units_time(own->cost, own->have, &t->list, &t->h->plan, &t->h->config, (int)timed_threads(t, 0),
                       !t->h->must_not_time, err);
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

double timed_slowness(const struct timed *t, size_t rank)
{
    const struct timed_node *own = &t->node[0], *node = &t->node[rank];
    double mine = 0, its = 0;
    for (size_t i = 0; i < t->list.n; i++)
        if (own->have[i] && node->have[i]) {
            mine += sum_of(&own->cost[i]);
            its += sum_of(&node->cost[i]);
        }
    return mine > 0 && its > 0 ? its / mine : timed_threads(t, 0) / timed_threads(t, rank);
}

struct sched_cost timed_cost(const struct timed *t, size_t rank, size_t at)
{
    const struct sched_cost *c = &t->node[t->node[rank].have[at] ? rank : 0].cost[at];
    const double slow = t->node[rank].have[at] ? 1 : timed_slowness(t, rank);
    return (struct sched_cost){c->f * slow, c->i * slow, c->w * slow, c->r * slow};
}

struct sched_link timed_link(const struct timed *t, size_t from, size_t to, double bytes)
{
    const json_t *id = about(t, to, "id"), *ways = json_object_get(json_array_get(t->answers, from), "ways"),
                 *way;
    double mbps = timed_number(t, from, "mbps"), rtt_us = 0;
    size_t i;
    json_array_foreach (ways, i, way) {
        const double is = json_number_value(json_object_get(way, "mbps"));
        if (!json_equal(json_object_get(way, "id"), id))
            continue;
        mbps = is >= LEAST_MBPS ? is : mbps;
        rtt_us = json_number_value(json_object_get(way, "rtt_us"));
    }
    return (struct sched_link){(mbps >= LEAST_MBPS ? bytes * 8 / (mbps * 1e6 * USABLE) : 0) + MESSAGE_S,
                               HOP_S + fmin(fmax(rtt_us, 0), 1e6) / 2e6};
}

void timed_tell(const struct timed *t)
{
    for (size_t r = 1; r < t->h->plan.ranks; r++) {
        const struct timed_node *node = &t->node[r];
        const double fast = 1 / timed_slowness(t, r);
        if (!node->any)
            head_say(t->h, "%s was not timed%s%s: taken to be %.3g times as fast as %s, by its %.0f threads",
                     timed_name(t, r), *node->why ? ", for " : "", node->why, fast, timed_name(t, 0),
                     timed_threads(t, r));
        else if (*node->why)
            head_say(t->h,
                     "%s could not time all of it (%s): the rest is taken to be %.3g times as fast as %s",
                     timed_name(t, r), node->why, fast, timed_name(t, 0));
    }
}
