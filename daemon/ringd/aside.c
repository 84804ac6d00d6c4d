/* SPDX-License-Identifier: MIT
 *
 * Owns what is under way, shared with its threads: the last of them, or the loop, frees it. */
#include "daemon/ringd/aside.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/mailbox.h"

struct aside {
    pthread_mutex_t lock;
    struct mailbox *mailbox; /* borrowed; NULL: the loop has ended. Under lock, as all below */
    struct aside_work *over; /* owned: posted, and not handed back yet */
    size_t running, holders;
};

static void let_go(struct aside *a)
{
    pthread_mutex_lock(&a->lock);
    const bool is_last = --a->holders == 0;
    pthread_mutex_unlock(&a->lock);
    if (!is_last)
        return;
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static void hand_back(void *arg)
{
    struct aside *a = arg;
    struct aside_work *w;
    do {
        pthread_mutex_lock(&a->lock);
        w = a->over;
        if (w)
            a->over = w->next;
        pthread_mutex_unlock(&a->lock);
        if (w)
            (w->is_left ? w->drop : w->done)(w);
    } while (w);
}

static void *thread_main(void *arg)
{
    struct aside_work *w = arg;
    struct aside *a = w->aside;
    w->run(w);
    pthread_mutex_lock(&a->lock);
    a->running--;
    const bool is_posted = a->mailbox;
    if (is_posted) {
        struct aside_work **last = &a->over;
        while (*last)
            last = &(*last)->next;
        *last = w;
        mailbox_post(a->mailbox, hand_back, a);
    }
    pthread_mutex_unlock(&a->lock);
    if (!is_posted)
        w->drop(w);
    let_go(a);
    return NULL;
}

int aside_run(struct aside *a, struct aside_work *w)
{
    pthread_t thread;
    w->aside = a;
    w->next = NULL;
    pthread_mutex_lock(&a->lock);
    const bool has_room = a->running < ASIDE_MOST;
    a->running += has_room;
    a->holders += has_room;
    pthread_mutex_unlock(&a->lock);
    if (!has_room)
        return -EAGAIN;
    if (!pthread_create(&thread, NULL, thread_main, w)) {
        pthread_detach(thread);
        return 0;
    }
    pthread_mutex_lock(&a->lock);
    a->running--;
    pthread_mutex_unlock(&a->lock);
    let_go(a);
    return -EAGAIN;
}

struct aside *aside_new(struct mailbox *mailbox)
{
    struct aside *a = xcalloc(1, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    a->mailbox = mailbox;
    a->holders = 1;
    return a;
}

void aside_free(struct aside *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    struct aside_work *w = a->over;
    mailbox_forget(a->mailbox, a);
    a->mailbox = NULL;
    a->over = NULL;
    pthread_mutex_unlock(&a->lock);
    for (struct aside_work *next; w; w = next) {
        next = w->next;
        w->drop(w);
    }
    let_go(a);
}
