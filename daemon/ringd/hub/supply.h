/* SPDX-License-Identifier: MIT
 *
 * Models by their names: brought from other nodes or from a hub when somebody asks or a job needs
 * them, on this node and on the others of a job's ring, and kept in this node's folder of models
 * within its quota. A job is planned with a model's outline; then each node gets what its stage
 * lacks. Loop thread. */
#ifndef DAEMON_SUPPLY_H
#define DAEMON_SUPPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct aside;
struct bring_coming;
struct event_base;
struct event_log;
struct link;
struct link_hello;
struct members;
struct members_ring;
struct opts;
struct peers;
struct relay;
struct spawn;
struct supply;

struct supply_setup { /* the pointers are borrowed */
    struct event_base *base;
    const struct opts *opts; /* models-dir, models-quota, fetch-binary, state-dir */
    struct aside *aside;
    struct event_log *events;
    struct members *members;
    struct peers *peers;
    struct relay *relay;
    /* To a member. Takes the reference. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* The models that jobs use now: [{"model", "job"}, …], with what routes call the job; the
     * caller owns it. */
    json_t *(*uses)(void *owner);
    void (*changed)(void *owner); /* what a job waits for may have come */
    /* What was asked for by supply_bring: how far it is, about once a second. */
    void (*coming)(void *owner, const struct bring_coming *c);
    /* It is here; why: a sentence, it does not come. */
    void (*brought)(void *owner, const char *model, const char *why);
    void *owner;
};
struct supply *supply_new(const struct supply_setup *setup);
void supply_free(struct supply *s);

/* An answer to one who asks: a row or a list, borrowed; or why not, a sentence. */
typedef void supply_answer(void *owner, const json_t *answer, int r, const char *why);

/* Begins to pull a model, or joins in. Its row comes back, and events "pull" follow. −EINVAL,
 * −EAGAIN and a sentence. ret: owned by the caller. */
int supply_pull(struct supply *s, const char *name, json_t **ret, struct err *err);
/* Gives the files of a folder, a whole path, a name without a revision. Events "pull" follow.
 * −EINVAL, −EBUSY, −EAGAIN and a sentence. */
int supply_add(struct supply *s, const char *name, const char *folder, json_t **ret, struct err *err);
/* Ends that; what has come stays on the disk. −ENOENT: it is not being pulled. */
int supply_stop(struct supply *s, const char *name);
/* Reads all of its files again, and compares them with the hub's hashes. Events as above. */
int supply_verify(struct supply *s, const char *name, json_t **ret, struct err *err);
/* Copies a model or an adapter that is whole here to other nodes. nodes: a list of their names or
 * ids; empty, or NULL: all that can be reached. Its row comes back, and events "push" follow.
 * −ENOENT, −EBUSY, −EINVAL, −EAGAIN and a sentence. model: exact. ret: owned by the caller. */
int supply_push(struct supply *s, const char *model, const json_t *nodes, json_t **ret, struct err *err);
/* The exact name of a model: {"model"}. */
void supply_resolve(struct supply *s, const char *name, supply_answer *done, void *owner);
/* All models of this node: {"models", "folder", "quota"}; those being pulled among them. */
void supply_list(struct supply *s, supply_answer *done, void *owner);
/* The same, with the jobs that use each and who else holds it (holders.h). */
void supply_survey(struct supply *s, supply_answer *done, void *owner);
/* "remove", "pin" or "unpin"; model: an exact name. */
void supply_do(struct supply *s, const char *what, const char *model, supply_answer *done, void *owner);

/* Is the outline of a job's model on all nodes of the ring? Those that lack it get it, from other
 * nodes where one has it. False: `why` says who is how far. model: exact; what is no name is no
 * matter of this. */
bool supply_is_there(struct supply *s, const char *model, const struct members_ring *ring, char *why,
                     size_t size);
/* Is all of it on this node, as of an adapter on the head of a job? If not it is brought, and `why`
 * says how far that is. What is no exact name is no matter of this. */
bool supply_has_whole(struct supply *s, const char *model, char *why, size_t size);
/* From whom its weights are to be had, of all nodes that were asked: as errands_holders. */
json_t *supply_holders(const struct supply *s, const char *model, bool *ret_parts);
/* Which files a model is, a hash; NULL: it is not on this node, or nothing is known. Until the next
 * call of anything here. */
const char *supply_content(const struct supply *s, const char *model);
/* These blocks of a model whose outline is here are to come: [file, first block, the one after the
 * last], …. holders, parts: as of supply_holders; NULL: who was asked here before. `brought`
 * follows, perhaps at once. */
void supply_bring(struct supply *s, const char *model, const json_t *blocks, const json_t *holders,
                  bool parts);
/* A stage here asks what has to come to the nodes of its plan: as travel_query.h has it. */
void supply_travel(struct supply *s, struct spawn *stage, const json_t *event);
void supply_forget_travel(struct supply *s, const struct spawn *stage);
/* A job begins with it here. */
void supply_used(struct supply *s, const char *model);

/* Messages, whose fields have been checked: "model-want", "model-progress", "model-push",
 * "model-pushed", "model-give", "model-denied", "model-census" and "model-counted". */
void supply_take_want(struct supply *s, const uint8_t from[16], const json_t *body);
void supply_take_told(struct supply *s, const uint8_t from[16], const json_t *body);
void supply_take_push(struct supply *s, const uint8_t from[16], const json_t *body);
void supply_take_pushed(struct supply *s, const uint8_t from[16], const json_t *body);
void supply_take_give(struct supply *s, const uint8_t from[16], const json_t *body);
void supply_take_denied(struct supply *s, const uint8_t from[16], const json_t *body);
void supply_take_census(struct supply *s, const uint8_t from[16], const json_t *body);
void supply_take_counted(struct supply *s, const uint8_t from[16], const json_t *body);

/* A data connection of no job carries a model: its hello (0, or −EPERM and why not), then the
 * connection, which is taken. */
int supply_lane_hello(struct supply *s, const struct link_hello *peer, char *why, size_t size);
void supply_lane_up(struct supply *s, struct link *link);
/* Paths or nodes came or went. */
void supply_paths_changed(struct supply *s);

#endif
