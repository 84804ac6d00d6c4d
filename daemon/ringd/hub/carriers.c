/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/carriers_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/lanes.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/routes.h"
#include "daemon/ringd/timer.h"

static const char *name_of(const struct carriers *c, const uint8_t id[16])
{
    const struct member *m = members_find(c->setup.members, id);
    return m ? m->name : "a node that is gone";
}

/* --- the process ------------------------------------------------------------------------------ */

static void node_free(struct carry_node *n)
{
    lanes_free(n->lanes);
    carrier_lend_stop(n);
    *n = (struct carry_node){0};
}

static void carrier_free(struct carrier *c)
{
    for (size_t i = 0; i < NODES; i++)
        node_free(&c->nodes[i]);
    hub_fetch_stop(c->fetch);
    carrier_hub_stop(c);
    json_decref(c->want);
    timer_free(c->again);
    LIST_REMOVE(c, next);
    c->all->n--;
    free(c);
}

/* Nobody has to be asked for room by one that only gives. */
static void on_room(void *owner, uint64_t bytes)
{
    struct carrier *c = owner;
    if (c->ops)
        c->ops->room(c->owner, bytes);
    else
        hub_fetch_say_room(c->fetch, "nobody on this node takes it any more");
}

static void on_progress(void *owner, uint64_t done, uint64_t total, const char *file)
{
    struct carrier *c = owner;
    if (done != c->done)
        c->moved = clock_now();
    c->done = done;
    if (c->ops)
        c->ops->progress(c->owner, done, total, file);
}

/* The connections to takers stay, and the process with them. What was wanted since is still to
 * come. */
static void on_ready(void *owner, uint64_t want)
{
    struct carrier *c = owner;
    const struct hub_fetch_ops *ops = c->ops;
    if (want != c->wants)
        return;
    json_decref(c->want);
    c->want = NULL;
    c->ops = NULL;
    carrier_hub_stop(c);
    for (size_t i = 0; i < NODES; i++)
        if (c->nodes[i].c && c->nodes[i].is_source)
            node_free(&c->nodes[i]);
    if (ops)
        ops->over(c->owner, NULL, FETCH_LASTS);
}

static void ask_sources(struct carrier *c);

/* It ended for want of takers, just when something was wanted: another one is started. */
static void begin_again(struct carrier *c)
{
    for (size_t i = 0; i < NODES; i++)
        while (c->nodes[i].up)
            lanes_lost(c->nodes[i].lanes, c->nodes[i].ways[--c->nodes[i].up].path);
    carrier_hub_drop(c);
    c->waited = clock_now();
    ask_sources(c);
}

static void on_over(void *owner, const char *why, enum fetch_end end)
{
    struct carrier *c = owner;
    const struct hub_fetch_ops *ops = c->ops;
    void *of = c->owner;
    char both[1000];
    c->fetch = NULL;
    if (!why && ops) {
        begin_again(c);
        return;
    }
    if (!ops && why)
        log_warning("%s is given to no other node any more: %s", c->model, why);
    if (why && *c->hub.why && strcmp(why, c->hub.why) != 0) {
        snprintf(both, sizeof both, "%s; from the hub: %s", why, c->hub.why);
        why = both;
    }
    carrier_free(c);
    if (ops)
        ops->over(of, why, end);
}

static struct carry_node *node_of_way(struct carrier *c, uint64_t number, size_t *ret)
{
    for (size_t i = 0; i < NODES; i++)
        for (size_t k = 0; k < c->nodes[i].up; k++)
            if (c->nodes[i].ways[k].number == number) {
                *ret = k;
                return &c->nodes[i];
            }
    return NULL;
}

/* A taker without any lane is through, or asks again. */
static void on_lost(void *owner, uint64_t number, bool wrong, const char *why)
{
    struct carrier *c = owner;
    size_t k = 0;
    if (carrier_hub_lost(c, number))
        return;
    struct carry_node *n = node_of_way(c, number, &k);
    if (!n)
        return;
    const uint64_t path = n->ways[k].path;
    n->ways[k] = n->ways[--n->up];
    n->since = clock_now();
    snprintf(n->why, sizeof n->why, "%s", why);
    if (n->is_hub && !n->up && c->done == n->done) { /* it cannot ask the hub either */
        n->is_barred = true;
        lanes_stop(n->lanes);
        timer_set_ms(c->again, 0);
    } else if (wrong) {
        log_warning("node %s sends wrong bytes of %s: %s", name_of(c->all, n->id), c->model, why);
        n->is_barred = true;
        lanes_stop(n->lanes);
    } else if (n->is_source || n->up) {
        c->waited = clock_now();
        lanes_lost(n->lanes, path);
    } else {
        lanes_stop(n->lanes);
    }
}

static int start(struct carrier *c)
{
    static const struct hub_fetch_ops ops = {
        .room = on_room, .progress = on_progress, .ready = on_ready, .lost = on_lost, .over = on_over};
    const struct hub_order order = {.what = "carry",
                                    .model = c->model,
                                    .content = c->content,
                                    .list = c->list,
                                    .want = c->want,
                                    .is_of_hub = c->hub.is_wanted};
    struct err err;
    if (c->fetch)
        return 0;
    const int r = hub_fetch_start(&c->fetch, c->all->setup.fetchers, &order, &ops, c, &err);
    if (r)
        log_warning("%s cannot be carried between nodes: %s", c->model, err.text);
    return r;
}

/* --- connections ------------------------------------------------------------------------------ */

static void say_way(const struct carry_node *n)
{
    const char *model = n->c->model, *name = name_of(n->c->all, n->id);
    if (n->is_hub)
        log_info(n->is_source ? "%s comes from the hub through node %s" : "%s goes from the hub to node %s",
                 model, name);
    else
        log_info(n->is_source ? "%s comes from node %s" : "%s goes to node %s", model, name);
}

static void use_link(struct carry_node *n, struct link *link, uint64_t path)
{
    struct carrier *c = n->c;
    struct ipc_lane lane;
    int fd;
    memset(&lane, 0, sizeof lane); /* its padding leaves this process */
    lane.path = ++c->ways;
    lane.rank = !n->is_source ? RANK_TAKER : n->is_hub ? RANK_HUB : RANK_SOURCE;
    const bool is_lent = n->is_hub && !n->is_source;
    if (n->up == PEERS_MAX_PATHS || (!is_lent && start(c)) || link_detach(link, &fd, &lane.tx, &lane.rx)) {
        link_free(link);
        return;
    }
    n->done = c->done;
    if (is_lent ? !carrier_lend(n, &lane, fd) : !hub_fetch_send_lane(c->fetch, &lane, fd))
        n->ways[n->up++] = (struct carry_way){lane.path, path};
    if (n->up == 1)
        say_way(n);
    close(fd);
    seal_wipe(&lane.tx);
    seal_wipe(&lane.rx);
    timer_set_ms(c->again, 0); /* the hub may have waited for this one */
}

static void on_lane_up(void *owner, struct link *link, uint32_t rank, uint64_t path)
{
    (void)rank;
    use_link(owner, link, path);
}

/* The other end may not have heard of it yet: it is dialled again. */
static void on_refused(void *owner, uint32_t rank, const char *text)
{
    struct carry_node *n = owner;
    (void)rank;
    snprintf(n->why, sizeof n->why, "%s", text);
}

static void on_relayed(void *owner, uint32_t rank, const char *through)
{
    (void)owner;
    (void)rank;
    (void)through;
}

struct carry_node *carrier_find_node(struct carrier *c, const uint8_t id[16], bool is_source, bool is_hub)
{
    for (size_t i = 0; i < NODES; i++)
        if (c->nodes[i].c && c->nodes[i].is_source == is_source && c->nodes[i].is_hub == is_hub &&
            !memcmp(c->nodes[i].id, id, 16))
            return &c->nodes[i];
    return NULL;
}

/* A hello has no room for a name, nor for all of the hash. */
static void number_of(const char *content, char ret[NUMBER])
{
    snprintf(ret, NUMBER, "%.*s", NUMBER - 1, content);
}

/* Where no cable leads there, who takes asks for a way through other nodes. */
void carrier_connect(struct carry_node *n)
{
    const uint16_t giver = n->is_hub ? RANK_HUB : RANK_SOURCE;
    struct link_hello hello = {.from_rank = n->is_source ? RANK_TAKER : giver,
                               .to_rank = n->is_source ? giver : RANK_TAKER};
    number_of(n->c->content, hello.fingerprint);
    lanes_start(n->lanes, n->id, &hello, n->is_source);
}

/* NULL: there are too many. */
struct carry_node *carrier_add_node(struct carrier *c, const uint8_t id[16], bool is_source, bool is_hub)
{
    static const struct lanes_ops ops = {on_lane_up, on_refused, on_relayed};
    const struct carriers_setup *s = &c->all->setup;
    for (size_t i = 0; i < NODES; i++) {
        struct carry_node *n = &c->nodes[i];
        if (n->c)
            continue;
        *n = (struct carry_node){.c = c, .is_source = is_source, .is_hub = is_hub, .since = clock_now()};
        memcpy(n->id, id, 16);
        n->lanes = lanes_new(&(struct lanes_setup){.base = s->base,
                                                   .members = s->members,
                                                   .peers = s->peers,
                                                   .relay = s->relay,
                                                   .ops = &ops,
                                                   .owner = n});
        carrier_connect(n);
        return n;
    }
    return NULL;
}

static struct carry_node *node_of_hello(struct carriers *all, const struct link_hello *peer)
{
    struct carrier *c;
    char number[NUMBER];
    LIST_FOREACH (c, &all->list, next) {
        const bool gives = peer->from_rank == RANK_SOURCE || peer->from_rank == RANK_HUB;
        struct carry_node *n =
            carrier_find_node(c, peer->node_id, gives, (gives ? peer->from_rank : peer->to_rank) == RANK_HUB);
        number_of(c->content, number);
        if (n && !n->is_barred && !strcmp(number, peer->fingerprint))
            return n;
    }
    return NULL;
}

int carriers_hello(struct carriers *all, const struct link_hello *peer, char *why, size_t size)
{
    if (node_of_hello(all, peer))
        return 0;
    snprintf(why, size, "%s shares no model of that number with %s", members_self(all->setup.members)->name,
             peer->name);
    return -EPERM;
}

void carriers_up(struct carriers *all, struct link *link)
{
    struct carry_node *n = node_of_hello(all, link_peer(link));
    if (!n) { /* that has changed since it said hello */
        link_free(link);
        return;
    }
    const uint64_t path = peers_path_of(all->setup.peers, link, n->id);
    lanes_came(n->lanes, path);
    use_link(n, link,
             path ? path
                  : paths_at(all->setup.members, all->setup.peers,
                             link_address(link))); /* a relay's, if not the node's own */
}

void carriers_changed(struct carriers *all)
{
    struct carrier *c;
    LIST_FOREACH (c, &all->list, next)
        for (size_t i = 0; i < NODES; i++)
            if (c->nodes[i].c && !c->nodes[i].is_barred)
                lanes_changed(c->nodes[i].lanes);
}

/* --- taking ----------------------------------------------------------------------------------- */

struct carrier *carrier_find(const struct carriers *all, const char *model)
{
    struct carrier *c;
    LIST_FOREACH (c, &all->list, next)
        if (!strcmp(c->model, model))
            return c;
    return NULL;
}

static bool is_stalled(const struct carrier *c)
{
    return clock_since_us(clock_now(), c->moved) >= STALL_S * UINT64_C(1000000);
}

/* No source has given anything for too long: the reason of the last of them. */
static void give_up(struct carrier *c)
{
    const struct hub_fetch_ops *ops = c->ops;
    void *owner = c->owner;
    char why[1000] = "no node that has it can be reached";
    if (is_stalled(c))
        snprintf(why, sizeof why, "nothing has come from other nodes for %d s", STALL_S);
    for (size_t i = 0; i < NODES; i++)
        if (c->nodes[i].c && c->nodes[i].is_source && *c->nodes[i].why)
            snprintf(why, sizeof why, "node %s does not give it: %s", name_of(c->all, c->nodes[i].id),
                     c->nodes[i].why);
    if (*c->hub.why)
        snprintf(why, sizeof why, "%s", c->hub.why);
    carrier_free(c);
    ops->over(owner, why, FETCH_LASTS);
}

static void ask_sources(struct carrier *c)
{
    const struct carriers_setup *s = &c->all->setup;
    for (size_t i = 0; i < NODES; i++) {
        const struct carry_node *n = &c->nodes[i];
        if (n->c && n->is_source && !n->is_barred && !n->up)
            s->send(s->owner, n->id,
                    json_pack("{s:s s:s s:s s:b}", "kind", "model-give", "model", c->model, "content",
                              c->content, "through", (int)n->is_hub));
    }
}

/* Through another node where the hub gives nothing to this one: one after the other. */
static void ask_through(struct carrier *c)
{
    const struct carry_node *next = NULL;
    for (size_t i = 0; i < NODES; i++) {
        const struct carry_node *n = &c->nodes[i];
        if (n->c && n->is_source && n->is_hub && !n->is_barred)
            return;
        if (n->c && n->is_source && !n->is_hub && !n->is_barred && !next &&
            !carrier_find_node(c, n->id, true, true))
            next = n;
    }
    if (next)
        carrier_add_node(c, next->id, true, true);
}

static void look_at_hub(struct carrier *c)
{
    if (c->hub.is_wanted && c->hub.is_vain)
        ask_through(c);
    if (carrier_hub_is_due(c) && !start(c))
        carrier_hub_start(c);
}

static void look_at_sources(struct carrier *c)
{
    look_at_hub(c);
    bool is_heard = c->hub.number, is_hopeless = !c->hub.is_wanted || c->hub.is_vain;
    for (size_t i = 0; i < NODES; i++) {
        const struct carry_node *n = &c->nodes[i];
        is_heard |= n->c && n->is_source && n->up;
        is_hopeless &= !n->c || !n->is_source || n->is_barred;
    }
    if (is_heard)
        c->waited = clock_now();
    if (is_hopeless || is_stalled(c) ||
        clock_since_us(clock_now(), c->waited) >= PATIENCE_S * UINT64_C(1000000)) {
        give_up(c);
        return;
    }
    ask_sources(c);
    timer_set_ms(c->again, AGAIN_MS);
}

/* Takers that have left are forgotten; without any, and without a process, there is nothing to
 * give. */
static void look_at_takers(struct carrier *c)
{
    const struct instant now = clock_now();
    bool is_used = c->fetch;
    for (size_t i = 0; i < NODES; i++) {
        struct carry_node *n = &c->nodes[i];
        if (n->c && !n->up && clock_since_us(now, n->since) >= PATIENCE_S * UINT64_C(1000000))
            node_free(n);
        is_used |= n->c != NULL;
    }
    if (is_used)
        timer_set_ms(c->again, AGAIN_MS);
    else
        carrier_free(c);
}

static void on_again(void *owner)
{
    struct carrier *c = owner;
    if (c->ops)
        look_at_sources(c);
    else
        look_at_takers(c);
}

struct carrier *carrier_new(struct carriers *all, const char *model, const char *content, const char *list)
{
    struct carrier *c = xcalloc(1, sizeof *c);
    c->all = all;
    c->soon_ms = SOON_MS;
    snprintf(c->model, sizeof c->model, "%s", model);
    snprintf(c->content, sizeof c->content, "%s", content);
    snprintf(c->list, sizeof c->list, "%s", list);
    c->again = timer_new(all->setup.base, on_again, c);
    timer_set_ms(c->again, AGAIN_MS);
    LIST_INSERT_HEAD(&all->list, c, next);
    all->n++;
    return c;
}

static void set_sources(struct carrier *c, const struct carry_order *order)
{
    for (size_t i = 0; i < NODES; i++) {
        struct carry_node *n = &c->nodes[i];
        bool stays = !n->c || !n->is_source;
        for (size_t k = 0; k < order->nfrom; k++)
            stays |= !memcmp(n->id, order->from[k], 16);
        if (!stays && !n->up) /* one that gives may go on: its cable is there */
            node_free(n);
    }
    for (size_t k = 0; k < order->nfrom; k++)
        if (!carrier_find_node(c, order->from[k], true, false))
            carrier_add_node(c, order->from[k], true, false);
}

/* The process hears it at once, or when it is started. */
static void want(struct carrier *c, const struct carry_order *order)
{
    size_t i;
    json_t *row;
    if (!c->want)
        c->want = json_pack("{s:s s:[]}", "do", "want", "blocks");
    if (order->whole)
        json_object_set_new(c->want, "whole", json_true());
    json_array_foreach (order->blocks, i, row)
        json_array_append(json_object_get(c->want, "blocks"), row);
    json_object_set_new(c->want, "number", json_integer((json_int_t)++c->wants));
    if (c->fetch)
        hub_fetch_want(c->fetch, c->want);
}

void carriers_take(struct carriers *all, const struct carry_order *order, const struct hub_fetch_ops *ops,
                   void *owner)
{
    struct carrier *c = carrier_find(all, order->model);
    if (c && strcmp(c->content, order->content) != 0) { /* of files that are gone */
        carriers_leave(all, order->model);
        c = NULL;
    }
    if (!c)
        c = carrier_new(all, order->model, order->content, order->list ? order->list : "");
    const bool takes = c->ops;
    if (!takes) {
        c->ops = ops;
        c->owner = owner;
        c->moved = clock_now();
    }
    c->waited = clock_now();
    if (!takes || !c->hub.is_wanted)
        c->hub = (struct carry_hub){.is_wanted = order->hub, .since = c->waited};
    if (!takes || order->blocks || order->whole)
        want(c, order);
    set_sources(c, order);
    ask_sources(c);
    look_at_hub(c);
}

void carriers_say_room(struct carriers *all, const char *model, const char *why)
{
    const struct carrier *c = carrier_find(all, model);
    if (c && c->fetch)
        hub_fetch_say_room(c->fetch, why);
}

void carriers_leave(struct carriers *all, const char *model)
{
    struct carrier *c = carrier_find(all, model);
    if (c)
        carrier_free(c);
}

void carriers_take_denied(struct carriers *all, const uint8_t from[16], const json_t *body)
{
    struct carrier *c = carrier_find(all, json_string_value(json_object_get(body, "model")));
    struct carry_node *n =
        c ? carrier_find_node(c, from, true, json_is_true(json_object_get(body, "through"))) : NULL;
    if (!n)
        return;
    snprintf(n->why, sizeof n->why, "%s", json_string_value(json_object_get(body, "why")));
    if (!json_is_true(json_object_get(body, "soon")))
        return;
    c->waited = clock_now();
    timer_set_ms(c->again, c->soon_ms);
    c->soon_ms = c->soon_ms < AGAIN_MS / 2 ? 2 * c->soon_ms : AGAIN_MS;
}

/* --- all -------------------------------------------------------------------------------------- */

struct carriers *carriers_new(const struct carriers_setup *setup)
{
    struct carriers *all = xcalloc(1, sizeof *all);
    all->setup = *setup;
    LIST_INIT(&all->list);
    return all;
}

void carriers_free(struct carriers *all)
{
    if (!all)
        return;
    while (LIST_FIRST(&all->list))
        carrier_free(LIST_FIRST(&all->list));
    free(all);
}
