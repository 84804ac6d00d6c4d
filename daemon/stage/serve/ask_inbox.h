/* SPDX-License-Identifier: MIT
 *
 * Requests for a model that is served, and words that one is cancelled: put there by the thread
 * that listens to the daemon, taken by the one that computes. The daemon bounds their bytes (the
 * queue "asks"). */
#ifndef DAEMON_ASK_INBOX_H
#define DAEMON_ASK_INBOX_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>

struct ask_note {
    struct ask_note *next;
    json_t *message; /* owned */
};

struct ask_inbox {
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct ask_note *first, **last; /* owned: oldest first */
    bool is_woken, are_over;        /* are_over: nothing more will come */
};

void ask_inbox_init(struct ask_inbox *t);
void ask_inbox_done(struct ask_inbox *t);
/* Takes the reference, also where there is no memory; then the daemon hears nothing, and its
 * patience ends. NULL: there will be no more. */
void ask_inbox_put(struct ask_inbox *t, json_t *message);
/* Who waits looks at what else has changed. */
void ask_inbox_wake(struct ask_inbox *t);
/* The next one, owned by the caller; NULL: there is none. ret_over: and none will come. */
json_t *ask_inbox_take(struct ask_inbox *t, bool *ret_over);
/* Sleeps until there is one, or a word to wake. */
void ask_inbox_wait(struct ask_inbox *t);

#endif
