/* SPDX-License-Identifier: MIT
 *
 * What is said next in a conversation whose model stays loaded: put there by the thread that
 * listens to the daemon, awaited by the one that computes. */
#ifndef DAEMON_STAGE_TURNS_H
#define DAEMON_STAGE_TURNS_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

struct turns {
    pthread_mutex_t lock;
    pthread_cond_t news;
    json_t *next;  /* owned: not yet taken, or NULL */
    bool are_over; /* nothing more will come */
};

void turns_init(struct turns *t);
void turns_done(struct turns *t);
/* Takes the reference; NULL: there will be no more. */
void turns_put(struct turns *t, json_t *turn);
/* The next one, owned by the caller; NULL: there is none, or none came within `seconds`. */
json_t *turns_wait(struct turns *t, unsigned seconds);

#endif
