/* SPDX-License-Identifier: MIT
 *
 * Models that a job needs on the nodes of its ring: their outlines, with which it can be planned.
 * The head's daemon asks who has one, says to each of the others from where to get it
 * (model_route.h), and hears how far they are. Owned by supply.c; loop thread. */
#ifndef DAEMON_ERRANDS_H
#define DAEMON_ERRANDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct errands;
struct event_base;
struct members;
struct members_ring;
struct pulls;

struct errands_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct members *members;
    struct pulls *pulls;
    /* To a member. Takes the reference. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* Which files a model is whose outline is here, "" where that is not known; NULL: it is not. */
    const char *(*content)(void *owner, const char *model);
    /* The hash of its list of blocks; NULL or "": not known. */
    const char *(*list)(void *owner, const char *model);
    bool (*is_whole)(void *owner, const char *model);
    void (*changed)(void *owner); /* what a job waits for may have come */
    void *owner;
};
struct errands *errands_new(const struct errands_setup *setup);
void errands_free(struct errands *e);

/* As supply_is_there. */
bool errands_are_done(struct errands *e, const char *model, const struct members_ring *ring, char *why,
                      size_t size);
/* The nodes from which the weights of a model are to be had, as far as this one knows: itself too.
 * A list of ids in hex, of those that have all of it, or, where nobody has (then ret_parts), of all
 * that have its outline. The caller owns it. */
json_t *errands_holders(const struct errands *e, const char *model, bool *ret_parts);
/* How much of a model is here has changed: those that wait for it hear so. */
void errands_tell(struct errands *e, const char *model);

/* Messages, whose fields have been checked: "model-want" and "model-progress". */
void errands_take_want(struct errands *e, const uint8_t from[16], const json_t *body);
void errands_take_told(struct errands *e, const uint8_t from[16], const json_t *body);

#endif
