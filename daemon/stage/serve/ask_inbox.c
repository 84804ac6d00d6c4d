/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/ask_inbox.h"

#include <stdlib.h>

void ask_inbox_init(struct ask_inbox *t)
{
    *t = (struct ask_inbox){0};
    t->last = &t->first;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->news, NULL);
}

static json_t *pop(struct ask_inbox *t)
{
    struct ask_note *note = t->first;
    if (!note)
        return NULL;
    json_t *message = note->message;
    t->first = note->next;
    if (!t->first)
        t->last = &t->first;
    free(note);
    return message;
}

void ask_inbox_done(struct ask_inbox *t)
{
    while (t->first)
        json_decref(pop(t));
    pthread_cond_destroy(&t->news);
    pthread_mutex_destroy(&t->lock);
}

void ask_inbox_put(struct ask_inbox *t, json_t *message)
{
    struct ask_note *note = message ? malloc(sizeof *note) : NULL;
    pthread_mutex_lock(&t->lock);
    t->are_over |= !message;
    if (note) {
        *note = (struct ask_note){.message = message};
        *t->last = note;
        t->last = &note->next;
    } else {
        json_decref(message);
    }
    pthread_cond_signal(&t->news);
    pthread_mutex_unlock(&t->lock);
}

void ask_inbox_wake(struct ask_inbox *t)
{
    pthread_mutex_lock(&t->lock);
    t->is_woken = true;
    pthread_cond_signal(&t->news);
    pthread_mutex_unlock(&t->lock);
}

json_t *ask_inbox_take(struct ask_inbox *t, bool *ret_over)
{
    pthread_mutex_lock(&t->lock);
    json_t *message = pop(t);
    *ret_over = t->are_over;
    pthread_mutex_unlock(&t->lock);
    return message;
}

void ask_inbox_wait(struct ask_inbox *t)
{
    pthread_mutex_lock(&t->lock);
    while (!t->first && !t->are_over && !t->is_woken)
        pthread_cond_wait(&t->news, &t->lock);
    t->is_woken = false;
    pthread_mutex_unlock(&t->lock);
}
