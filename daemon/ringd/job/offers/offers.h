/* SPDX-License-Identifier: MIT
 *
 * Adapters that jobs of this node have trained, on their way to deployments (--serve-as), here or
 * on other nodes: the files are opened as they are, so that a save that follows does not change
 * what is fetched; "adapter-offered" lists them for the deployment's head, which fetches them
 * (parts.h) and answers with "adapter-answer". A newer one of a job takes the place of one under
 * way. Loop thread. */
#ifndef DAEMON_OFFERS_H
#define DAEMON_OFFERS_H

#include <jansson.h>
#include <stdint.h>

struct aside;
struct event_base;
struct file_set;
struct offers;

struct offers_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct aside *aside;
    unsigned patience_ms; /* with a deployment that says nothing; 0: ten minutes */
    /* To a member, perhaps this node. Takes the reference. Not 0: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* What became of the adapter of that step; why: NULL where it is served, else a sentence. */
    void (*done)(void *owner, uint64_t job, uint64_t step, const char *why);
    void *owner;
};
struct offers *offers_new(const struct offers_setup *setup);
void offers_free(struct offers *o); /* before aside_free; `done` is called no more */

struct offer_request {   /* borrowed for the call */
    const uint8_t *to;   /* [16] the deployment's head, */
    uint64_t deployment; /* and its number there */
    const char *name;    /* of the adapter there */
    const char *folder;  /* that holds it */
    uint64_t job, step;  /* that has trained it */
};
void offers_give(struct offers *o, const struct offer_request *request);

/* The files of the offer of that number, if that node may have them; borrowed; NULL: none. */
struct file_set *offers_files(const struct offers *o, const uint8_t to[16], uint64_t number);
/* A message, whose fields have been checked. */
void offers_take_answer(struct offers *o, const uint8_t from[16], const json_t *body);

#endif
