/* SPDX-License-Identifier: MIT
 *
 * What is said next in a conversation whose model stays loaded: put there by the thread that
 * listens to the daemon, awaited by the one that computes. */
#ifndef DAEMON_CHAT_INBOX_H
#define DAEMON_CHAT_INBOX_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

struct chat_inbox {
    pthread_mutex_t lock;
    pthread_cond_t news;
    json_t *next;  /* owned: not yet taken, or NULL */
    bool are_over; /* nothing more will come */
};

void chat_inbox_init(struct chat_inbox *t);
void chat_inbox_done(struct chat_inbox *t);
/* Takes the reference; NULL: there will be no more. */
void chat_inbox_put(struct chat_inbox *t, json_t *turn);
/* The next one, owned by the caller; NULL: there is none, or none came within `seconds`. */
json_t *chat_inbox_wait(struct chat_inbox *t, unsigned seconds);

#endif
