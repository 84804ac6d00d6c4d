/* SPDX-License-Identifier: MIT */
#include "daemon/stage/chat_inbox.h"

#include <time.h>

void chat_inbox_init(struct chat_inbox *t)
{
    pthread_condattr_t attr;
    *t = (struct chat_inbox){0};
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->news, &attr);
    pthread_condattr_destroy(&attr);
}

void chat_inbox_done(struct chat_inbox *t)
{
    json_decref(t->next);
    pthread_cond_destroy(&t->news);
    pthread_mutex_destroy(&t->lock);
}

void chat_inbox_put(struct chat_inbox *t, json_t *turn)
{
    pthread_mutex_lock(&t->lock);
    t->are_over |= !turn;
    if (turn) {
        json_decref(t->next);
        t->next = turn;
    }
    pthread_cond_signal(&t->news);
    pthread_mutex_unlock(&t->lock);
}

json_t *chat_inbox_wait(struct chat_inbox *t, unsigned seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    pthread_mutex_lock(&t->lock);
    for (int r = 0; !r && !t->next && !t->are_over;)
        r = pthread_cond_timedwait(&t->news, &t->lock, &until);
    json_t *turn = t->next;
    t->next = NULL;
    pthread_mutex_unlock(&t->lock);
    return turn;
}
