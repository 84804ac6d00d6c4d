/* SPDX-License-Identifier: MIT
 *
 * Models and adapters that a user of this node copies to others: who takes it from whom
 * (push_route.h), how far each is, and why one has failed; the others go on without it. What
 * became of the last ones is remembered. Owned by supply.c; loop thread. */
#ifndef DAEMON_PUSHES_H
#define DAEMON_PUSHES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"

struct event_base;
struct members;
struct pushes;

/* Of a model that is whole here; borrowed. */
struct push_model {
    const char *model, *content; /* exact */
    const char *list;            /* the hash of its list of blocks; NULL or "": not known */
    bool added;                  /* a user gave it its name */
};

struct pushes_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct members *members;
    /* To a member. Takes the reference. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* row: as docs/API.md has it; borrowed. */
    void (*changed)(void *owner, const json_t *row);
    void *owner;
};
struct pushes *pushes_new(const struct pushes_setup *setup);
void pushes_free(struct pushes *p); /* NULL is fine */

/* nodes: names or ids, or an empty list: all that can be reached. ret: its row, which the caller
 * owns. −EINVAL: one is no member; −EAGAIN: too many are under way; with a sentence. */
int pushes_begin(struct pushes *p, const struct push_model *model, const json_t *nodes, json_t **ret,
                 struct err *err);

/* A message "model-pushed", whose fields have been checked. */
void pushes_take_pushed(struct pushes *p, const uint8_t from[16], const json_t *body);

#endif
