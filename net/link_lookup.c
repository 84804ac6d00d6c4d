/* SPDX-License-Identifier: MIT
 *
 * Owns a thread for each name that is looked up: the resolver of the C library, which knows all of
 * this machine's sources of names, can only be waited for. Nobody can end its wait either: a
 * question that is given up is left to the thread, which ends by itself when the resolver does, and
 * whoever of the two lets go last frees it. */
#include "link_lookup.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct lookup_question {
    atomic_int holders; /* the loop's side and the thread */
    int fd;             /* owned: an eventfd, readable once it is answered */
    char host[256], service[8];
    atomic_bool answered;
    int error;              /* the thread's until then, as the next */
    struct addrinfo *found; /* owned */
};

struct lookup {
    struct lookup_question *question; /* held */
    struct event *event;              /* owned */
    void (*done)(void *owner, int error, struct addrinfo *found);
    void *owner; /* borrowed */
};

static void let_go(struct lookup_question *q)
{
    if (atomic_fetch_sub_explicit(&q->holders, 1, memory_order_acq_rel) > 1)
        return;
    if (q->found)
        freeaddrinfo(q->found);
    if (q->fd >= 0)
        close(q->fd);
    free(q);
}

static void *answer(void *arg)
{
    const struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP, .ai_flags = AI_NUMERICSERV};
    struct lookup_question *q = arg;

    q->error = getaddrinfo(q->host, q->service, &hints, &q->found);
    if (q->error)
        q->found = NULL;
    atomic_store_explicit(&q->answered, true, memory_order_release);
    (void)eventfd_write(q->fd, 1); /* cannot fail: it is the first */
    let_go(q);
    return NULL;
}

static void on_answer(evutil_socket_t fd, short what, void *arg)
{
    struct lookup *l = arg;
    struct addrinfo *found;
    eventfd_t ignored;

    (void)what;
    if (eventfd_read(fd, &ignored) || !atomic_load_explicit(&l->question->answered, memory_order_acquire))
        return;
    found = l->question->found;
    l->question->found = NULL;
    l->done(l->owner, l->question->error, found);
}

/* Signals are the loop's. */
static int start_thread(struct lookup_question *q)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int r;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_fetch_add(&q->holders, 1);
    r = -pthread_create(&thread, &attr, answer, q);
    if (r)
        atomic_fetch_sub(&q->holders, 1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return r;
}

int lookup_start(struct lookup **ret, struct event_base *base, const char *host, uint16_t port,
                 void (*done)(void *owner, int error, struct addrinfo *found), void *owner)
{
    struct lookup_question *q = calloc(1, sizeof *q);
    struct lookup *l = calloc(1, sizeof *l);
    int r = -ENOMEM;

    if (!q || !l) {
        free(q);
        free(l);
        return r;
    }
    atomic_init(&q->holders, 1);
    *l = (struct lookup){.question = q, .done = done, .owner = owner};
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    snprintf(q->service, sizeof q->service, "%u", port);
    if (strlen(host) >= sizeof q->host)
        r = -ENAMETOOLONG;
    else if (q->fd < 0)
        r = -errno;
    else if ((l->event = event_new(base, q->fd, EV_READ, on_answer, l)) && !event_add(l->event, NULL)) {
        memcpy(q->host, host, strlen(host));
        r = start_thread(q);
    }
    if (r) {
        lookup_free(l);
        return r;
    }
    *ret = l;
    return 0;
}

void lookup_free(struct lookup *lookup)
{
    if (!lookup)
        return;
    if (lookup->event)
        event_free(lookup->event);
    let_go(lookup->question);
    free(lookup);
}
