/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/syncer.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"

struct sync_waiting {
    TAILQ_ENTRY(sync_waiting) next;
    struct sync_order order;
    uint8_t *bytes; /* owned: of the note */
};

struct syncer {
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    TAILQ_HEAD(orders, sync_waiting) orders; /* owned */
    int busy;                                /* the file that is being synced; −1: none */
    uint64_t unsafe;                         /* bytes that have come, and are not safe yet */
    int r;                                   /* of the first sync that failed */
    bool ends;
};

int sync_note(int note, const void *bytes, size_t n, uint64_t at)
{
    const ssize_t put = pwrite(note, bytes, n, (off_t)at);
    if (put != (ssize_t)n)
        return put < 0 ? -errno : -EIO;
    return fdatasync(note) ? -errno : 0;
}

static int sync_it(const struct sync_order *o)
{
    if ((o->before >= 0 && fdatasync(o->before)) || fdatasync(o->file))
        return -errno;
    return sync_note(o->note, o->bytes, o->n, o->at);
}

static void drop(struct sync_waiting *w)
{
    free(w->bytes);
    free(w);
}

/* Holds the lock, but not while it syncs. */
static void sync_first(struct syncer *s)
{
    struct sync_waiting *w = TAILQ_FIRST(&s->orders);
    TAILQ_REMOVE(&s->orders, w, next);
    s->busy = w->order.file;
    pthread_mutex_unlock(&s->lock);
    const int r = sync_it(&w->order);
    pthread_mutex_lock(&s->lock);
    s->busy = -1;
    s->unsafe -= w->order.fresh;
    s->r = s->r ? s->r : r;
    pthread_cond_broadcast(&s->changed);
    drop(w);
}

static void *sync_all(void *arg)
{
    struct syncer *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->ends || !TAILQ_EMPTY(&s->orders))
        if (TAILQ_EMPTY(&s->orders))
            pthread_cond_wait(&s->changed, &s->lock);
        else
            sync_first(s);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int syncer_new(struct syncer **ret)
{
    struct syncer *s = xcalloc(1, sizeof *s);
    TAILQ_INIT(&s->orders);
    s->busy = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    const int r = -pthread_create(&s->thread, NULL, sync_all, s);
    if (r) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return r;
    }
    *ret = s;
    return 0;
}

static struct sync_waiting *find(struct syncer *s, int file)
{
    struct sync_waiting *w;
    TAILQ_FOREACH(w, &s->orders, next)
    if (w->order.file == file)
        return w;
    w = xcalloc(1, sizeof *w);
    TAILQ_INSERT_TAIL(&s->orders, w, next);
    return w;
}

static void put(struct sync_waiting *w, const struct sync_order *o)
{
    const uint64_t fresh = w->order.fresh + o->fresh;
    free(w->bytes);
    w->bytes = xmalloc(o->n);
    memcpy(w->bytes, o->bytes, o->n);
    w->order = *o;
    w->order.bytes = w->bytes;
    w->order.fresh = fresh;
}

int syncer_ask(struct syncer *s, const struct sync_order *o)
{
    pthread_mutex_lock(&s->lock);
    put(find(s, o->file), o);
    s->unsafe += o->fresh;
    pthread_cond_broadcast(&s->changed);
    while (s->unsafe > SYNC_MOST && !s->r)
        pthread_cond_wait(&s->changed, &s->lock);
    const int r = s->r;
    pthread_mutex_unlock(&s->lock);
    return r;
}

void syncer_wait(struct syncer *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->busy >= 0 || !TAILQ_EMPTY(&s->orders))
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

int syncer_forget(struct syncer *s, int file)
{
    pthread_mutex_lock(&s->lock);
    while (s->busy == file)
        pthread_cond_wait(&s->changed, &s->lock);
    struct sync_waiting *w = TAILQ_FIRST(&s->orders);
    while (w && w->order.file != file)
        w = TAILQ_NEXT(w, next);
    if (w) {
        TAILQ_REMOVE(&s->orders, w, next);
        s->unsafe -= w->order.fresh;
        drop(w);
    }
    const int r = s->r;
    pthread_mutex_unlock(&s->lock);
    return r;
}

void syncer_free(struct syncer *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
