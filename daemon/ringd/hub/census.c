/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/census.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/hub/shelf.h"
#include "daemon/ringd/timer.h"

enum {
    WITHIN_MS = 4000,  /* a folder is read, and nothing more */
    ROUNDS = 16,       /* of this node, */
    ASKERS_AT_ONCE = 8 /* and of others */
};

struct census_node {
    uint8_t id[16];
    bool is_over;
    json_t *answer; /* owned */
};

struct census_round {
    LIST_ENTRY(census_round) next;
    struct model_census *c;
    struct timer *timer; /* owned */
    json_int_t number;
    census_done *done;
    void *owner;
    size_t n;
    struct census_node node[RING_MAX_NODES];
};

/* A look at this node's folder, for a round here or for another node. */
struct census_look {
    LIST_ENTRY(census_look) next;
    struct model_census *c;
    json_int_t number; /* of the round, here or there */
    uint8_t from[16];  /* all zeros: of a round here */
};

struct model_census {
    struct census_setup setup;
    LIST_HEAD(, census_round) rounds;
    LIST_HEAD(, census_look) looks; /* whose answers have not come */
    size_t nrounds, nothers;
    json_int_t numbers;
};

static const uint8_t nobody[16];

/* --- rounds ----------------------------------------------------------------------------------- */

static void round_free(struct census_round *r)
{
    LIST_REMOVE(r, next);
    r->c->nrounds--;
    timer_free(r->timer);
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->node[i].answer);
    free(r);
}

static bool is_over(const struct census_round *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (!r->node[i].is_over)
            return false;
    return true;
}

static void finish(struct census_round *r)
{
    json_t *answers = json_array();
    census_done *done = r->done;
    void *owner = r->owner;
    for (size_t i = 0; i < r->n; i++)
        json_array_append(answers, r->node[i].answer);
    round_free(r);
    done(owner, answers);
    json_decref(answers);
}

static void give_up(struct census_node *node, const char *why)
{
    if (!node->is_over)
        json_object_set_new(node->answer, "why", json_string(why));
    node->is_over = true;
}

static void on_timer(void *owner)
{
    struct census_round *r = owner;
    for (size_t i = 0; i < r->n; i++)
        give_up(&r->node[i], "does not answer");
    finish(r);
}

static void take(struct model_census *c, const uint8_t from[16], json_int_t number, const json_t *body)
{
    struct census_round *r;
    LIST_FOREACH (r, &c->rounds, next)
        if (r->number == number)
            break;
    for (size_t i = 0; r && i < r->n; i++) {
        struct census_node *node = &r->node[i];
        const char *why = json_string_value(json_object_get(body, "why"));
        char clean[300];
        if (memcmp(node->id, from, 16) != 0 || node->is_over)
            continue;
        if (why) {
            text_clean(clean, sizeof clean, why, false);
            give_up(node, clean);
        } else {
            json_object_set(node->answer, "models", json_object_get(body, "models"));
            json_object_set(node->answer, "ways", json_object_get(body, "ways"));
            node->is_over = true;
        }
        if (is_over(r))
            timer_set_ms(r->timer, 0);
        return;
    }
}

void census_take_counted(struct model_census *c, const uint8_t from[16], const json_t *body)
{
    take(c, from, json_integer_value(json_object_get(body, "round")), body);
}

void census_changed(struct model_census *c)
{
    struct census_round *r;
    LIST_FOREACH (r, &c->rounds, next) {
        for (size_t i = 0; i < r->n; i++)
            if (!members_reachable(c->setup.members, r->node[i].id))
                give_up(&r->node[i], "is gone");
        if (is_over(r))
            timer_set_ms(r->timer, 0);
    }
}

void census_forget(struct model_census *c, const void *owner)
{
    struct census_round *next;
    for (struct census_round *r = LIST_FIRST(&c->rounds); r; r = next) {
        next = LIST_NEXT(r, next);
        if (r->owner == owner)
            round_free(r);
    }
}

/* --- this node's folder ----------------------------------------------------------------------- */

static void answer(const struct census_look *l, json_t *body)
{
    struct model_census *c = l->c;
    if (!memcmp(l->from, nobody, 16)) {
        take(c, members_self(c->setup.members)->id, l->number, body);
    } else {
        json_t *message = json_pack("{s:s s:I}", "kind", "model-counted", "round", l->number);
        json_object_update(message, body);
        c->setup.send(c->setup.owner, l->from, message);
    }
    json_decref(body);
}

static void look_free(struct census_look *l)
{
    l->c->nothers -= memcmp(l->from, nobody, 16) != 0;
    LIST_REMOVE(l, next);
    free(l);
}

static void on_looked(void *owner, const struct shelf_answer *a)
{
    struct census_look *l = owner;
    const struct census_setup *s = &l->c->setup;
    if (a->r)
        answer(l, json_pack("{s:s}", "why", "cannot read its folder of models"));
    else
        answer(l, json_pack("{s:O s:o}", "models", a->list, "ways", s->ways(s->owner)));
    look_free(l);
}

static void look(struct model_census *c, const uint8_t from[16], json_int_t number, const json_t *models,
                 bool blocks)
{
    const struct shelf_order order = {
        .what = SHELF_HAVE, .dir = c->setup.dir, .asked = models, .blocks = blocks};
    struct census_look *l = xcalloc(1, sizeof *l);
    *l = (struct census_look){.c = c, .number = number};
    memcpy(l->from, from, 16);
    const bool is_other = memcmp(from, nobody, 16) != 0;
    LIST_INSERT_HEAD(&c->looks, l, next);
    c->nothers += is_other;
    if ((is_other && c->nothers > ASKERS_AT_ONCE) || json_array_size(models) > CENSUS_MODELS ||
        shelf_ask(c->setup.aside, &order, on_looked, l)) {
        answer(l, json_pack("{s:s}", "why", "is asked too much at once"));
        look_free(l);
    }
}

void census_take_ask(struct model_census *c, const uint8_t from[16], const json_t *body)
{
    look(c, from, json_integer_value(json_object_get(body, "round")), json_object_get(body, "models"),
         json_is_true(json_object_get(body, "blocks")));
}

/* --- asking ----------------------------------------------------------------------------------- */

static void ask(struct census_round *r, struct census_node *node, const json_t *models, bool blocks)
{
    struct model_census *c = r->c;
    if (!memcmp(node->id, members_self(c->setup.members)->id, 16)) {
        look(c, nobody, r->number, models, blocks);
        return;
    }
    const int error = c->setup.send(c->setup.owner, node->id,
                                    json_pack("{s:s s:I s:O s:b}", "kind", "model-census", "round", r->number,
                                              "models", models, "blocks", blocks));
    if (error)
        give_up(node, unsent_why(error));
}

int census_ask(struct model_census *c, const uint8_t (*ids)[16], size_t n, const json_t *models, bool blocks,
               census_done *done, void *owner)
{
    if (c->nrounds == ROUNDS || n > RING_MAX_NODES)
        return -EAGAIN;
    struct census_round *r = xcalloc(1, sizeof *r);
    *r = (struct census_round){.c = c, .number = ++c->numbers, .done = done, .owner = owner, .n = n};
    r->timer = timer_new(c->setup.base, on_timer, r);
    LIST_INSERT_HEAD(&c->rounds, r, next);
    c->nrounds++;
    for (size_t i = 0; i < n; i++) {
        const struct member *m = members_find(c->setup.members, ids[i]);
        memcpy(r->node[i].id, ids[i], 16);
        r->node[i].answer = json_pack("{s:o s:s}", "id", id_json(ids[i]), "node", m ? m->name : "?");
        ask(r, &r->node[i], models, blocks);
    }
    timer_set_ms(r->timer, is_over(r) ? 0 : WITHIN_MS); /* never from inside */
    return 0;
}

/* --- start and end ---------------------------------------------------------------------------- */

struct model_census *census_new(const struct census_setup *setup)
{
    struct model_census *c = xcalloc(1, sizeof *c);
    c->setup = *setup;
    LIST_INIT(&c->rounds);
    LIST_INIT(&c->looks);
    return c;
}

/* The loop has ended: no look's answer comes any more. */
void census_free(struct model_census *c)
{
    if (!c)
        return;
    while (LIST_FIRST(&c->rounds))
        round_free(LIST_FIRST(&c->rounds));
    while (LIST_FIRST(&c->looks))
        look_free(LIST_FIRST(&c->looks));
    free(c);
}
