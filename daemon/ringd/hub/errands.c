/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/errands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/model_route.h"
#include "daemon/ringd/hub/pulls.h"
#include "daemon/ringd/timer.h"
#include "engine/err.h"

enum {
    AGAIN_MS = 3000,  /* a node that has not said that it has a model is asked again */
    ASKERS = 16,      /* models of this node that another one hears of, */
    HEARD_MOST = 256, /* models of other nodes that are remembered */
    ASKERS_MOST = 64, /* and all of them together */
};

static const char *const ways[] = {
    [ROUTE_HAS] = "ask", [ROUTE_TAKES] = "take", [ROUTE_PULLS] = "pull", [ROUTE_WAITS] = "ask"};

/* What another node has said of a model. */
struct errand_heard {
    TAILQ_ENTRY(errand_heard) next;
    uint8_t id[16];
    char model[MODEL_NAME], content[MODEL_CONTENT + 1], list[MODEL_CONTENT + 1];
    bool is_ready, is_whole, has_said;
    uint64_t boot; /* of that node's life: another may have lost it */
    uint64_t done, total;
    double rate;
    char why[400]; /* "": it is on its way */
    struct instant first_asked, asked;
    struct route_step step; /* what it was asked to do */
};

/* A node that hears when a model comes to this one, or goes. */
struct errand_asker {
    TAILQ_ENTRY(errand_asker) next;
    uint8_t id[16];
    char model[MODEL_NAME];
};

struct errands {
    struct errands_setup setup;
    TAILQ_HEAD(errands_heard, errand_heard) heard;
    size_t nheard;
    TAILQ_HEAD(errand_askers, errand_asker) askers; /* the oldest first */
    size_t naskers;
    struct timer *again, *soon; /* owned */
};

static const char *content_here(const struct errands *e, const char *model)
{
    return e->setup.content(e->setup.owner, model);
}

/* NULL: not known. */
static const char *list_here(const struct errands *e, const char *model)
{
    const char *list = content_here(e, model) ? e->setup.list(e->setup.owner, model) : NULL;
    return list && *list ? list : NULL;
}

/* --- how far this node is --------------------------------------------------------------------- */

static json_t *told_message(const struct errands *e, const char *model)
{
    struct pull *p = pulls_find(e->setup.pulls, model);
    const char *content = content_here(e, model);
    uint64_t done = 0, total = 0;
    double rate = 0;
    const bool failed = !content && p && pull_state(p) == PULL_FAILED;
    if (p)
        pull_amounts(p, &done, &total, &rate);
    return json_pack("{s:s s:s s:b s:b s:I s:I s:I s:s* s:s* s:s*}", "kind", "model-progress", "model", model,
                     "ready", content != NULL, "whole", e->setup.is_whole(e->setup.owner, model), "done",
                     (json_int_t)done, "total", (json_int_t)total, "rate", (json_int_t)rate, "why",
                     failed ? pull_why(p) : NULL, "content", content && *content ? content : NULL, "list",
                     list_here(e, model));
}

static void asker_free(struct errands *e, struct errand_asker *a)
{
    TAILQ_REMOVE(&e->askers, a, next);
    e->naskers--;
    free(a);
}

void errands_tell(struct errands *e, const char *model)
{
    const struct errand_asker *a;
    TAILQ_FOREACH(a, &e->askers, next)
    if (!strcmp(a->model, model))
        e->setup.send(e->setup.owner, a->id, told_message(e, model));
    if (!timer_is_pending(e->soon)) /* once the present callback is over */
        timer_set_ms(e->soon, 0);
}

/* "31 %, 4 s left" */
static void describe_progress(char *to, size_t size, uint64_t done, uint64_t total, double rate)
{
    const struct err_amounts a = err_amounts(total, done);
    if (!total)
        snprintf(to, size, "it begins");
    else if (rate <= 0)
        snprintf(to, size, "%s of %s", a.have, a.need);
    else
        snprintf(to, size, "%s of %s, %.0f s left", a.have, a.need, (double)(total - done) / rate);
}

/* --- what this node is to do ------------------------------------------------------------------ */

static void obey(struct errands *e, enum route_way way, const struct carry_order *order, char *how,
                 size_t size)
{
    struct pull *p = pulls_find(e->setup.pulls, order->model);
    const bool rests = !p || pull_may_retry(p, way == ROUTE_TAKES),
               runs = p && (pull_state(p) == PULL_WAITS || pull_state(p) == PULL_RUNS);
    struct err err;
    uint64_t done, total;
    double rate;
    int r = 0;
    if (way == ROUTE_TAKES && (rests || runs))
        r = pulls_take(e->setup.pulls, order, &p, &err);
    else if (way == ROUTE_PULLS && rests)
        r = pulls_begin(e->setup.pulls, "outline", order->model, &p, &err);
    if (r && r != -EBUSY) {
        snprintf(how, size, "%s", err.text);
    } else if (!p) {
        snprintf(how, size, "it waits");
    } else if (pull_state(p) == PULL_FAILED) {
        snprintf(how, size, "%s", pull_why(p));
    } else {
        pull_amounts(p, &done, &total, &rate);
        describe_progress(how, size, done, total, rate);
    }
}

/* --- what others are to do -------------------------------------------------------------------- */

static struct errand_heard *find_heard(const struct errands *e, const uint8_t id[16], const char *model)
{
    struct errand_heard *h;
    TAILQ_FOREACH(h, &e->heard, next)
    if (!memcmp(h->id, id, 16) && !strcmp(h->model, model))
        return h;
    return NULL;
}

static struct errand_heard *add_heard(struct errands *e, const uint8_t id[16], const char *model)
{
    struct errand_heard *h = TAILQ_FIRST(&e->heard);
    if (e->nheard == HEARD_MOST) {
        TAILQ_REMOVE(&e->heard, h, next);
        free(h);
        e->nheard--;
    }
    h = xcalloc(1, sizeof *h);
    memcpy(h->id, id, 16);
    snprintf(h->model, sizeof h->model, "%s", model);
    TAILQ_INSERT_TAIL(&e->heard, h, next);
    e->nheard++;
    return h;
}

static struct errand_heard *heard_of(struct errands *e, const struct member *who, const char *model)
{
    struct errand_heard *h = find_heard(e, who->id, model);
    if (!h)
        h = add_heard(e, who->id, model);
    if (h->boot != who->boot) {
        h->boot = who->boot;
        h->is_ready = h->is_whole = h->has_said = false;
        h->asked.us = h->first_asked.us = 0;
    }
    return h;
}

static bool is_same_step(const struct route_step *a, const struct route_step *b)
{
    bool same = a->way == b->way && a->nfrom == b->nfrom;
    for (size_t i = 0; same && i < a->nfrom; i++)
        same = a->from[i] == b->from[i];
    return same;
}

/* All that one job needs of one model. */
struct model_errand {
    const char *model, *content; /* content: "" while nobody has it */
    const struct members_ring *ring;
    struct errand_heard *heard[RING_MAX_NODES]; /* NULL: of this node */
    struct route_node nodes[RING_MAX_NODES];
    struct route_step steps[RING_MAX_NODES];
    const struct errand_heard *outside; /* who pulls takes it from there, if there is such a node */
};

static bool is_in_ring(const struct members_ring *ring, const uint8_t id[16])
{
    for (size_t i = 0; i < ring->n; i++)
        if (!memcmp(ring->at[i]->id, id, 16))
            return true;
    return false;
}

/* Nodes beside the ring may have what no node of it has: one that is drained, say. They answer at
 * once, or are not waited for. */
static bool have_others_said(struct errands *e, const struct model_errand *all, char *why, size_t size)
{
    bool have = true;
    for (size_t i = 1; i < members_count(e->setup.members); i++) {
        const struct member *m = members_at(e->setup.members, i);
        if (is_in_ring(all->ring, m->id) || !members_reachable(e->setup.members, m->id))
            continue;
        struct errand_heard *h = heard_of(e, m, all->model);
        if (!h->first_asked.us) {
            h->first_asked = clock_now();
            e->setup.send(
                e->setup.owner, h->id,
                json_pack("{s:s s:s s:s}", "kind", "model-want", "model", all->model, "how", "ask"));
        }
        if (h->has_said || clock_since_us(clock_now(), h->first_asked) >= AGAIN_MS * UINT64_C(1000))
            continue;
        snprintf(why, size, "node %s is asked whether it has %s", m->name, all->model);
        have = false;
    }
    if (!have && !timer_is_pending(e->again))
        timer_set_ms(e->again, AGAIN_MS);
    return have;
}

/* Where no node of the ring has the outline: one beside it that has, or NULL. */
static const struct errand_heard *find_outside(const struct errands *e, const struct model_errand *all)
{
    const struct errand_heard *h;
    TAILQ_FOREACH(h, &e->heard, next)
    if (!*all->content && h->is_ready && *h->content && !strcmp(h->model, all->model) &&
        !is_in_ring(all->ring, h->id) && members_reachable(e->setup.members, h->id))
        return h;
    return NULL;
}

static const char *said_list(const struct errand_heard *h)
{
    return *h->list ? h->list : NULL;
}

/* The list that a node is to take: the one known here, else that of its first source. NULL: not all
 * of its sources know theirs, so none can be compared. */
static const char *list_of(const struct errands *e, const struct model_errand *all,
                           const struct route_step *step)
{
    const char *list = list_here(e, all->model);
    for (size_t k = 0; k < step->nfrom; k++) {
        const struct errand_heard *h = all->heard[step->from[k]];
        const char *its = h ? h->list : list ? list : "";
        if (!*its)
            return NULL;
        list = list ? list : its;
    }
    return step->nfrom ? list : NULL;
}

/* At once where it is another wish than before. */
static void ask(struct errands *e, const struct model_errand *all, size_t i)
{
    struct errand_heard *h = all->heard[i];
    const struct route_step *step = &all->steps[i];
    const struct instant now = clock_now();
    char id[33];
    if (is_same_step(&h->step, step) && h->asked.us &&
        clock_since_us(now, h->asked) < AGAIN_MS * UINT64_C(1000))
        return;
    const struct errand_heard *outside = step->way == ROUTE_PULLS ? all->outside : NULL;
    const char *content = outside ? outside->content : all->content;
    json_t *from = json_array();
    for (size_t k = 0; k < step->nfrom && step->way == ROUTE_TAKES; k++) {
        id_hex(id, all->ring->at[step->from[k]]->id);
        json_array_append_new(from, json_string(id));
    }
    if (outside) {
        id_hex(id, outside->id);
        json_array_append_new(from, json_string(id));
    }
    h->asked = now;
    h->step = *step;
    e->setup.send(e->setup.owner, h->id,
                  json_pack("{s:s s:s s:s s:s* s:s* s:o}", "kind", "model-want", "model", all->model, "how",
                            ways[outside ? ROUTE_TAKES : step->way], "content", *content ? content : NULL,
                            "list", outside ? said_list(outside) : list_of(e, all, step), "from", from));
}

static void do_here(struct errands *e, const struct model_errand *all, size_t i, char *how, size_t size)
{
    const struct route_step *step = &all->steps[i];
    struct carry_order order = {.model = all->model, .content = all->content, .list = list_of(e, all, step)};
    for (size_t k = 0; k < step->nfrom && step->way == ROUTE_TAKES; k++)
        memcpy(order.from[order.nfrom++], all->ring->at[step->from[k]]->id, 16);
    const bool takes = step->way == ROUTE_PULLS && all->outside;
    if (takes) {
        order.content = all->outside->content;
        order.list = said_list(all->outside);
        memcpy(order.from[order.nfrom++], all->outside->id, 16);
    }
    obey(e, takes ? ROUTE_TAKES : step->way, &order, how, size);
}

/* --- the ring --------------------------------------------------------------------------------- */

/* What each node says that it has: this one's word comes before that of others, then that of the
 * first in the ring. */
static const char *said_content(const struct errands *e, const struct model_errand *all, size_t i)
{
    const struct errand_heard *h = all->heard[i];
    return !h ? content_here(e, all->model) : h->is_ready ? h->content : NULL;
}

static void find_content(const struct errands *e, struct model_errand *all)
{
    all->content = "";
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < all->ring->n; i++) {
            const char *c = said_content(e, all, i);
            if (!*all->content && c && *c && (turn || !all->heard[i]))
                all->content = c;
        }
}

static void look(struct errands *e, struct model_errand *all)
{
    const struct members_ring *ring = all->ring;
    const uint8_t *self = members_self(e->setup.members)->id;
    for (size_t i = 0; i < ring->n; i++)
        all->heard[i] = memcmp(ring->at[i]->id, self, 16) ? heard_of(e, ring->at[i], all->model) : NULL;
    find_content(e, all);
    for (size_t i = 0; i < ring->n; i++) {
        const char *c = said_content(e, all, i);
        const struct pull *p = all->heard[i] ? NULL : pulls_find(e->setup.pulls, all->model);
        all->nodes[i] = (struct route_node){
            .has = c && *c && !strcmp(c, all->content),
            .cannot = all->heard[i] ? *all->heard[i]->why : p && pull_state(p) == PULL_FAILED,
            .joined = members_linked(e->setup.members, ring->at[i]->id, ring->at[(i + 1) % ring->n]->id)};
    }
}

static bool have_all_said(struct errands *e, struct model_errand *all, char *why, size_t size)
{
    const char *name = NULL;
    for (size_t i = 0; i < all->ring->n; i++)
        if (all->heard[i] && !all->heard[i]->has_said) {
            all->steps[i] = (struct route_step){.way = ROUTE_WAITS};
            ask(e, all, i);
            name = all->ring->at[i]->name;
        }
    if (name)
        snprintf(why, size, "node %s is asked whether it has %s", name, all->model);
    return !name;
}

static void say_where(const struct errands *e, const struct model_errand *all, size_t i, const char *how,
                      size_t others, char *why, size_t size)
{
    const struct member *m = all->outside ? members_find(e->setup.members, all->outside->id) : NULL;
    const struct route_step *step = &all->steps[i];
    const char *from = m ? m->name : step->nfrom ? all->ring->at[step->from[0]]->name : "";
    const int n = (int)strcspn(all->model, "@");
    char more[40] = "";
    if (others)
        snprintf(more, sizeof more, ", and then to %zu more", others);
    if (step->way == ROUTE_TAKES || all->outside)
        snprintf(why, size, "%.*s comes from node %s to node %s%s: %s", n, all->model, from,
                 all->ring->at[i]->name, more, how);
    else
        snprintf(why, size, "%.*s comes from the hub to node %s%s: %s", n, all->model, all->ring->at[i]->name,
                 more, how);
}

/* What a node has done of its step, or why not; it is asked where it is another. */
static void follow(struct errands *e, const struct model_errand *all, size_t i, char *how, size_t size)
{
    const struct errand_heard *h = all->heard[i];
    if (!h) {
        do_here(e, all, i, how, size);
        return;
    }
    ask(e, all, i);
    if (*h->why)
        snprintf(how, size, "%s", h->why);
    else
        describe_progress(how, size, h->done, h->total, h->rate);
}

/* A node that has it, but other files than the rest: no stage would start with them. */
static bool has_others(const struct errands *e, const struct model_errand *all, size_t i, char *why,
                       size_t size)
{
    const char *c = said_content(e, all, i);
    if (!c || !*c || !*all->content || all->nodes[i].has)
        return false;
    snprintf(why, size,
             "node %s has other files under the name of %s: `ringctl models verify` there says whether they "
             "are right, and `models remove` lets them come again",
             all->ring->at[i]->name, all->model);
    return true;
}

/* Then all weights are to be had. */
static bool has_whole_one(const struct errands *e, const char *model)
{
    bool parts;
    json_decref(errands_holders(e, model, &parts));
    return !parts;
}

bool errands_are_done(struct errands *e, const char *model, const struct members_ring *ring, char *why,
                      size_t size)
{
    struct model_errand all = {.model = model, .ring = ring};
    char how[500];
    size_t lack = 0, first = 0;
    look(e, &all);
    for (size_t i = 0; i < ring->n; i++) {
        const bool is_first = !lack;
        if (has_others(e, &all, i, why, size))
            return false;
        lack += !said_content(e, &all, i);
        first = lack && is_first ? i : first;
    }
    if (!lack)
        return has_whole_one(e, model) || have_others_said(e, &all, why, size);
    if (!timer_is_pending(e->again))
        timer_set_ms(e->again, AGAIN_MS);
    if (!have_all_said(e, &all, why, size) || (!*all.content && !have_others_said(e, &all, why, size)))
        return false;
    all.outside = find_outside(e, &all);
    model_route(all.nodes, ring->n, all.steps);
    for (size_t i = 0; i < ring->n; i++) {
        if (said_content(e, &all, i))
            continue;
        follow(e, &all, i, how, sizeof how);
        if (i == first || all.steps[first].way == ROUTE_WAITS) {
            first = i;
            say_where(e, &all, i, how, lack - 1, why, size);
        }
    }
    return false;
}

static void on_timer(void *owner)
{
    const struct errands *e = owner;
    e->setup.changed(e->setup.owner);
}

/* --- messages --------------------------------------------------------------------------------- */

static void add_asker(struct errands *e, const uint8_t from[16], const char *model)
{
    struct errand_asker *a, *oldest = NULL;
    size_t own = 0;
    TAILQ_FOREACH(a, &e->askers, next)
    {
        const bool is_its = !memcmp(a->id, from, 16);
        if (is_its && !strcmp(a->model, model))
            return;
        own += is_its;
        oldest = is_its && !oldest ? a : oldest;
    }
    if (own == ASKERS)
        asker_free(e, oldest);
    else if (e->naskers == ASKERS_MOST)
        asker_free(e, TAILQ_FIRST(&e->askers));
    a = xcalloc(1, sizeof *a);
    memcpy(a->id, from, 16);
    snprintf(a->model, sizeof a->model, "%s", model);
    TAILQ_INSERT_TAIL(&e->askers, a, next);
    e->naskers++;
}

/* Progress that is said to another node, and wishes of it, are bounded: it may be anybody's. */
void errands_take_want(struct errands *e, const uint8_t from[16], const json_t *body)
{
    const char *how = json_string_value(json_object_get(body, "how"));
    struct carry_order order;
    char quiet[500];
    if (carry_order_read(&order, e->setup.members, body))
        return;
    add_asker(e, from, order.model);
    if (!content_here(e, order.model)) {
        if (!strcmp(how, "pull"))
            obey(e, ROUTE_PULLS, &order, quiet, sizeof quiet);
        else if (!strcmp(how, "take") && order.nfrom && *order.content)
            obey(e, ROUTE_TAKES, &order, quiet, sizeof quiet);
    }
    e->setup.send(e->setup.owner, from, told_message(e, order.model));
}

void errands_take_told(struct errands *e, const uint8_t from[16], const json_t *body)
{
    const char *model = json_string_value(json_object_get(body, "model")),
               *why = json_string_value(json_object_get(body, "why")),
               *content = json_string_value(json_object_get(body, "content")),
               *list = json_string_value(json_object_get(body, "list"));
    struct errand_heard *h = find_heard(e, from, model);
    if (!h) /* not asked, or long ago */
        return;
    h->has_said = true;
    h->is_ready = json_is_true(json_object_get(body, "ready"));
    h->is_whole = json_is_true(json_object_get(body, "whole"));
    h->total = (uint64_t)json_integer_value(json_object_get(body, "total"));
    h->done = (uint64_t)json_integer_value(json_object_get(body, "done"));
    if (h->done > h->total)
        h->done = h->total;
    h->rate = (double)json_integer_value(json_object_get(body, "rate"));
    text_clean(h->why, sizeof h->why, why ? why : "", false);
    snprintf(h->content, sizeof h->content, "%s", model_content_is(content) ? content : "");
    snprintf(h->list, sizeof h->list, "%s", model_content_is(list) ? list : "");
    if (!timer_is_pending(e->soon))
        timer_set_ms(e->soon, 0);
}

/* --- weights ---------------------------------------------------------------------------------- */

static void add_holder(json_t *list, const uint8_t id[16])
{
    char hex[33];
    id_hex(hex, id);
    json_array_append_new(list, json_string(hex));
}

static void add_holders(const struct errands *e, const char *model, bool whole, json_t *list)
{
    const char *content = content_here(e, model);
    const struct errand_heard *h;
    if (content && (!whole || e->setup.is_whole(e->setup.owner, model)))
        add_holder(list, members_self(e->setup.members)->id);
    TAILQ_FOREACH(h, &e->heard, next)
    if (h->is_ready && !strcmp(h->model, model) && (!whole || h->is_whole) &&
        (!content || !strcmp(h->content, content)) && members_reachable(e->setup.members, h->id))
        add_holder(list, h->id);
}

json_t *errands_holders(const struct errands *e, const char *model, bool *ret_parts)
{
    json_t *list = json_array();
    add_holders(e, model, true, list);
    *ret_parts = !json_array_size(list);
    if (*ret_parts)
        add_holders(e, model, false, list);
    return list;
}

/* --- start and end ---------------------------------------------------------------------------- */

struct errands *errands_new(const struct errands_setup *setup)
{
    struct errands *e = xcalloc(1, sizeof *e);
    e->setup = *setup;
    TAILQ_INIT(&e->heard);
    TAILQ_INIT(&e->askers);
    e->again = timer_new(setup->base, on_timer, e);
    e->soon = timer_new(setup->base, on_timer, e);
    return e;
}

void errands_free(struct errands *e)
{
    if (!e)
        return;
    for (struct errand_heard *h; (h = TAILQ_FIRST(&e->heard));) {
        TAILQ_REMOVE(&e->heard, h, next);
        free(h);
    }
    while (TAILQ_FIRST(&e->askers))
        asker_free(e, TAILQ_FIRST(&e->askers));
    timer_free(e->again);
    timer_free(e->soon);
    free(e);
}
