/* SPDX-License-Identifier: MIT
 *
 * Owns the queue between other threads and the loop: a list under a mutex, and an eventfd that
 * wakes the loop. Posting is for any thread; everything else, and every call, happens on the loop
 * thread. */
#include "daemon/ringd/mailbox.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"

struct letter {
    struct letter *next;
    void (*fn)(void *arg);
    void *arg; /* borrowed */
};

struct mailbox {
    pthread_mutex_t lock;
    struct letter *first, **last; /* owned, under lock */
    size_t n;                     /* under lock */
    int fd;
    struct event *event; /* owned */
};

static struct letter *take_first(struct mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    struct letter *l = box->first;
    if (l) {
        box->first = l->next;
        box->n--;
        if (!box->first)
            box->last = &box->first;
    }
    pthread_mutex_unlock(&box->lock);
    return l;
}

static void wake(struct mailbox *box)
{
    uint64_t one = 1;
    /* It can only fail when the counter is full, and then the loop is awake already. */
    while (write(box->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Calls what was there on entry, one at a time so that mailbox_forget reaches the rest; what these
 * calls post waits for the next turn of the loop, so that a chatty thread cannot keep it from its
 * sockets. */
static void on_wake(evutil_socket_t fd, short what, void *owner)
{
    (void)what;
    struct mailbox *box = owner;
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&box->lock);
    size_t n = box->n;
    pthread_mutex_unlock(&box->lock);
    struct letter *l;
    while (n-- > 0 && (l = take_first(box))) {
        l->fn(l->arg);
        free(l);
    }
    pthread_mutex_lock(&box->lock);
    bool more = box->first;
    pthread_mutex_unlock(&box->lock);
    if (more)
        wake(box);
}

int mailbox_new(struct mailbox **ret, struct event_base *base)
{
    struct mailbox *box = xcalloc(1, sizeof *box);
    pthread_mutex_init(&box->lock, NULL);
    box->last = &box->first;
    box->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = box->fd < 0 ? -errno : 0;
    if (!rc) {
        box->event = event_new(base, box->fd, EV_READ | EV_PERSIST, on_wake, box);
        if (!box->event || event_add(box->event, NULL))
            rc = -ENOMEM;
    }
    if (rc) {
        mailbox_free(box);
        return rc;
    }
    *ret = box;
    return 0;
}

void mailbox_free(struct mailbox *box)
{
    if (!box)
        return;
    if (box->event)
        event_free(box->event);
    for (struct letter *l; (l = take_first(box));)
        free(l);
    if (box->fd >= 0)
        close(box->fd);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

void mailbox_post(struct mailbox *box, void (*fn)(void *arg), void *arg)
{
    struct letter *l = xmalloc(sizeof *l);
    *l = (struct letter){.fn = fn, .arg = arg};
    pthread_mutex_lock(&box->lock);
    *box->last = l;
    box->last = &l->next;
    box->n++;
    pthread_mutex_unlock(&box->lock);
    wake(box);
}

void mailbox_forget(struct mailbox *box, const void *arg)
{
    pthread_mutex_lock(&box->lock);
    struct letter **at = &box->first;
    while (*at) {
        struct letter *l = *at;
        if (l->arg != arg) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        box->n--;
        free(l);
    }
    box->last = at;
    pthread_mutex_unlock(&box->lock);
}
