/* SPDX-License-Identifier: MIT
 *
 * What other nodes push to this one: each is taken whole from the nodes that the message names,
 * gets its name here, and who pushes it hears how far it is. No hub is asked. Owned by supply.c;
 * loop thread. */
#ifndef DAEMON_PUSH_TAKES_H
#define DAEMON_PUSH_TAKES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct aside;
struct event_base;
struct members;
struct pull;
struct pulls;
struct push_takes;

struct push_takes_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct aside *aside;
    struct members *members;
    struct pulls *pulls;
    const char *dir; /* the folder of models */
    /* To a member. Takes the reference. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* As of errands.h. */
    const char *(*content)(void *owner, const char *model);
    bool (*is_whole)(void *owner, const char *model);
    void *owner;
};
struct push_takes *push_takes_new(const struct push_takes_setup *setup);
void push_takes_free(struct push_takes *t); /* NULL is fine */

/* A message "model-push", whose fields have been checked. */
void push_takes_take(struct push_takes *t, const uint8_t from[16], const json_t *body);
/* Something of a pull has changed. One that is over may be gone afterwards. */
void push_takes_changed(struct push_takes *t, const struct pull *p);
/* What is here has been looked at on the disk. */
void push_takes_looked(struct push_takes *t);

#endif
