/* SPDX-License-Identifier: MIT
 *
 * Owns the deadlines of HTTP connections and the thread that waits for the nearest. Called by
 * http.c from its server's threads. */
#include "daemon/ringd/http/http_guard.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/common/xalloc.h"

struct guard_entry {
    struct guard_entry *next, **at; /* under the guard's lock, as all below */
    uint64_t deadline_us;           /* 0 = none */
    void (*expired)(void *owner);
    void *owner; /* borrowed */
};

struct guard {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct guard_entry *entries; /* owned by their connections; some hundreds, so a list does */
    uint64_t wakes_us;           /* when the thread will look again, 0 = not by itself */
    bool stopping;
};

static uint64_t monotonic_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Fires what is due; returns the nearest deadline left, 0 = none. */
static uint64_t fire_due(struct guard *g)
{
    uint64_t now = monotonic_us(), nearest = 0;
    for (struct guard_entry *e = g->entries; e; e = e->next) {
        if (e->deadline_us && e->deadline_us <= now) {
            e->deadline_us = 0;
            e->expired(e->owner);
        } else if (e->deadline_us && (!nearest || e->deadline_us < nearest)) {
            nearest = e->deadline_us;
        }
    }
    return nearest;
}

static void *guard_thread(void *arg)
{
    struct guard *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->stopping) {
        g->wakes_us = fire_due(g);
        if (!g->wakes_us) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        struct timespec until = {.tv_sec = (time_t)(g->wakes_us / 1000000),
                                 .tv_nsec = (long)(g->wakes_us % 1000000) * 1000};
        pthread_cond_timedwait(&g->changed, &g->lock, &until);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

int guard_start(struct guard **ret)
{
    struct guard *g = xcalloc(1, sizeof *g);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&g->lock, NULL);
    int failed = pthread_create(&g->thread, NULL, guard_thread, g);
    if (failed) {
        free(g);
        return -failed;
    }
    *ret = g;
    return 0;
}

void guard_stop(struct guard *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->stopping = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

struct guard_entry *guard_add(struct guard *g, void (*expired)(void *owner), void *owner)
{
    struct guard_entry *e = xcalloc(1, sizeof *e);
    e->expired = expired;
    e->owner = owner;
    pthread_mutex_lock(&g->lock);
    e->next = g->entries;
    e->at = &g->entries;
    if (e->next)
        e->next->at = &e->next;
    g->entries = e;
    pthread_mutex_unlock(&g->lock);
    return e;
}

void guard_remove(struct guard *g, struct guard_entry *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&g->lock);
    *e->at = e->next;
    if (e->next)
        e->next->at = e->at;
    pthread_mutex_unlock(&g->lock);
    free(e);
}

void guard_set(struct guard *g, struct guard_entry *e, unsigned ms)
{
    pthread_mutex_lock(&g->lock);
    e->deadline_us = ms ? monotonic_us() + (uint64_t)ms * 1000 : 0;
    /* A later deadline than the one waited for costs no wake-up: the thread finds it when it
     * looks. */
    if (ms && (!g->wakes_us || e->deadline_us < g->wakes_us))
        pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}
