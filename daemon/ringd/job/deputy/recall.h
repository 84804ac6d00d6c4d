/* SPDX-License-Identifier: MIT
 *
 * Before a head goes on with a job that another node could take over: may it? Who takes part hears
 * of the next attempt by itself. Of the others that may have a dossier, those in reach let go of it
 * first. Of one that is out of reach nothing can be known: then at least half of the job's nodes
 * must be here, for the others are no majority (ballots.h); and a head that was started again asks
 * every one of them, because somebody may have let one of them take over by hand. Loop thread. */
#ifndef DAEMON_RECALL_H
#define DAEMON_RECALL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster;
struct event_base;
struct job;
struct members;
struct members_ring;
struct recall;

struct recall_setup { /* the pointers are borrowed */
    struct event_base *base;
    const struct cluster *cluster;
    const struct members *members;
    /* Takes the reference. Not 0: it was not sent. */
    int (*send)(void *owner, const uint8_t to[16], json_t *message);
    /* A dossier is gone, or it is time to look again. */
    void (*look)(void *owner);
    void *owner;
};
struct recall *recall_new(const struct recall_setup *setup);
void recall_free(struct recall *r);

/* May the job go on with the nodes of that ring? False: `why` is a sentence without a full stop,
 * and `look` comes when something has changed. */
bool recall_is_done(struct recall *r, struct job *job, const struct members_ring *ring, char *why,
                    size_t size);
/* That node has no dossier of the job any more. True: the job's deputies are others now. */
bool recall_held(struct recall *r, struct job *job, const uint8_t from[16]);
/* The job has ended: whoever has a dossier lets go of it, now or when it is back. */
void recall_all(struct recall *r, const struct job *job);
void recall_from(struct recall *r, const uint8_t from[16], uint64_t job);

#endif
