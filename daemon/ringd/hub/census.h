/* SPDX-License-Identifier: MIT
 *
 * How much of some models each of some nodes has: asked of all at once, and within a deadline. At
 * most so many questions are under way, of this node and of others: what is more is refused. Owned
 * by supply.c; loop thread. */
#ifndef DAEMON_CENSUS_H
#define DAEMON_CENSUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aside;
struct model_census;
struct event_base;
struct members;

enum { CENSUS_MODELS = 64 /* in one question */ };

struct census_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct aside *aside;
    struct members *members;
    const char *dir; /* the folder of models */
    /* To a member. Takes the reference. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    json_t *(*ways)(void *owner); /* to this node's neighbours; the caller owns it */
    void *owner;
};
struct model_census *census_new(const struct census_setup *setup);
void census_free(struct model_census *c); /* nobody hears anything more; NULL is fine */

/* answers: [{"id", "node", "models", "ways"}, …] as the nodes were named; of one that says nothing,
 * "why" instead of the last two, a sentence's rest. Borrowed. */
typedef void census_done(void *owner, const json_t *answers);
/* ids: of n nodes, this one may be among them. models: exact names, at most CENSUS_MODELS count.
 * blocks: and which blocks. `done` is called once, later; not when it is forgotten first. −EAGAIN:
 * too much is under way. */
int census_ask(struct model_census *c, const uint8_t (*ids)[16], size_t n, const json_t *models, bool blocks,
               census_done *done, void *owner);
void census_forget(struct model_census *c, const void *owner);

/* Messages, whose fields have been checked: "model-census" and "model-counted". */
void census_take_ask(struct model_census *c, const uint8_t from[16], const json_t *body);
void census_take_counted(struct model_census *c, const uint8_t from[16], const json_t *body);
/* Nodes came or went: who is out of reach is not waited for. */
void census_changed(struct model_census *c);

#endif
