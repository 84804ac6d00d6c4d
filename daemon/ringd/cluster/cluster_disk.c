/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/cluster/cluster_disk.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/private_file.h"
#include "daemon/common/xalloc.h"
#include "daemon/common/xsecret.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/timer.h"
#include "net/base/secret.h"
#include "net/clock.h"

/* Contents of a file are numbered from 1, in the order in which they were put. */
struct trust_bytes {
    uint64_t number; /* 0: none */
    size_t n;
    uint8_t bytes[TRUST_FILE_MAX];
};

struct disk_file {
    char path[4096];
    struct trust_bytes waits; /* under lock */
    uint64_t put, tried;      /* the last number that was put; that was written, or could not be */
    bool failed;              /* the last that was tried; under lock, as put, tried and why */
    struct err why;
};

struct disk_waiter {
    uint64_t wants[TRUST_FILES];
    struct instant until;
    void (*fn)(void *arg, const char *error);
    void *arg; /* borrowed */
};

struct cluster_disk {
    struct disk_file at[TRUST_FILES];
    struct trust_bytes writes; /* of the thread */
    void (*written)(void *owner);
    void *owner;

    struct mailbox *mailbox; /* borrowed; NULL: no thread */
    struct timer *timer;     /* owned */
    unsigned wait_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops; /* under lock */

    size_t n_waiting;
    struct disk_waiter waiting[CLUSTER_WAITING_MAX]; /* the oldest first */
};

/* --- the thread ------------------------------------------------------------------------------- */

static struct disk_file *next_file(struct cluster_disk *d)
{
    for (size_t i = 0; i < TRUST_FILES; i++)
        if (d->at[i].waits.number)
            return &d->at[i];
    return NULL;
}

static void take(struct trust_bytes *to, struct trust_bytes *from)
{
    to->number = from->number;
    to->n = from->n;
    memcpy(to->bytes, from->bytes, from->n);
    sodium_memzero(from->bytes, from->n);
    from->number = 0;
}

static void on_written(void *arg);

static void *run(void *arg)
{
    struct cluster_disk *d = arg;
    struct disk_file *f;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!(f = next_file(d)) && !d->stops)
            pthread_cond_wait(&d->changed, &d->lock);
        if (!f)
            break;
        take(&d->writes, &f->waits);
        pthread_mutex_unlock(&d->lock);
        struct err why = {""};
        const int r = private_write(f->path, d->writes.bytes, d->writes.n, &why);
        sodium_memzero(d->writes.bytes, d->writes.n);
        pthread_mutex_lock(&d->lock);
        f->tried = d->writes.number;
        f->failed = r != 0;
        f->why = why;
        mailbox_post(d->mailbox, on_written, d);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* --- who waits -------------------------------------------------------------------------------- */

static bool is_tried(const struct cluster_disk *d, const struct disk_waiter *w)
{
    for (size_t i = 0; i < TRUST_FILES; i++)
        if (d->at[i].tried < w->wants[i])
            return false;
    return true;
}

/* NULL: all that it wants is on the disk. */
static const char *trouble_of(const struct cluster_disk *d, const struct disk_waiter *w)
{
    for (size_t i = 0; i < TRUST_FILES; i++)
        if (w->wants[i] && d->at[i].failed)
            return d->at[i].why.text;
    return NULL;
}

static void hang_text(const struct cluster_disk *d, const struct disk_waiter *w, char *text, size_t size)
{
    size_t i = 0;
    while (i + 1 < TRUST_FILES && d->at[i].tried >= w->wants[i])
        i++;
    snprintf(
        text, size,
        "%s was not written within %u s: its disk does not answer. The change counts on this node as long "
        "as ringd runs; other nodes hear of it when the disk is back",
        d->at[i].path, d->wait_ms / 1000);
}

static void arm(struct cluster_disk *d)
{
    const struct instant now = clock_now();
    if (!d->n_waiting)
        timer_stop(d->timer);
    else if (d->waiting[0].until.us > now.us)
        timer_set_us(d->timer, d->waiting[0].until.us - now.us);
    else
        timer_set_us(d->timer, 0);
}

static void drop(struct cluster_disk *d, size_t i)
{
    memmove(d->waiting + i, d->waiting + i + 1, (--d->n_waiting - i) * sizeof *d->waiting);
}

/* The first that need not wait any more, and what it hears; `fn` may come back here. */
static bool take_waiter(struct cluster_disk *d, struct disk_waiter *ret, bool *ret_bad, char *text,
                        size_t size)
{
    const struct instant now = clock_now();
    bool found = false;
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_waiting && !found; i++) {
        const struct disk_waiter w = d->waiting[i];
        const char *why = is_tried(d, &w) ? trouble_of(d, &w) : NULL;
        found = is_tried(d, &w) || w.until.us <= now.us || d->stops;
        *ret_bad = why || !is_tried(d, &w);
        if (!found)
            continue;
        if (why)
            snprintf(text, size, "%s", why);
        else if (*ret_bad)
            hang_text(d, &w, text, size);
        drop(d, i);
        *ret = w;
    }
    pthread_mutex_unlock(&d->lock);
    return found;
}

static void call_waiters(struct cluster_disk *d)
{
    struct disk_waiter w = {0};
    char text[4400];
    bool bad;
    while (take_waiter(d, &w, &bad, text, sizeof text))
        w.fn(w.arg, bad ? text : NULL);
    arm(d);
}

static void on_written(void *arg)
{
    struct cluster_disk *d = arg;
    d->written(d->owner);
    call_waiters(d);
}

static void on_late(void *owner)
{
    call_waiters(owner);
}

void cluster_disk_when(struct cluster_disk *d, void (*fn)(void *arg, const char *error), void *arg)
{
    struct disk_waiter w = {.fn = fn, .arg = arg};
    if (!d->mailbox) {
        fn(arg, NULL);
        return;
    }
    if (d->n_waiting == CLUSTER_WAITING_MAX) {
        fn(arg, "too many changes of the cluster wait for the disk of this node: try again later");
        return;
    }
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < TRUST_FILES; i++)
        w.wants[i] = d->at[i].put;
    const bool now = is_tried(d, &w);
    pthread_mutex_unlock(&d->lock);
    w.until = (struct instant){clock_now().us + (uint64_t)d->wait_ms * 1000};
    d->waiting[d->n_waiting++] = w;
    if (now)
        call_waiters(d);
    else
        arm(d);
}

void cluster_disk_forget(struct cluster_disk *d, const void *arg)
{
    for (size_t i = d->n_waiting; i-- > 0;)
        if (d->waiting[i].arg == arg)
            drop(d, i);
}

/* --- what is to be written -------------------------------------------------------------------- */

const char *cluster_disk_path(const struct cluster_disk *d, enum trust_file file)
{
    return d->at[file].path;
}

int cluster_disk_put(struct cluster_disk *d, enum trust_file file, const uint8_t *bytes, size_t n,
                     struct err *err)
{
    struct disk_file *f = &d->at[file];
    if (n > TRUST_FILE_MAX)
        return err_set(err, -EFBIG, "%s would have more than %d bytes", f->path, TRUST_FILE_MAX);
    if (!d->mailbox) {
        const int r = private_write(f->path, bytes, n, err);
        if (!r)
            d->written(d->owner);
        return r;
    }
    pthread_mutex_lock(&d->lock);
    f->waits.number = ++f->put;
    f->waits.n = n;
    memcpy(f->waits.bytes, bytes, n);
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

static bool is_last_tried(struct cluster_disk *d, enum trust_file file, bool failed)
{
    pthread_mutex_lock(&d->lock);
    const bool is = d->at[file].tried == d->at[file].put && d->at[file].failed == failed;
    pthread_mutex_unlock(&d->lock);
    return is;
}

bool cluster_disk_has(struct cluster_disk *d, enum trust_file file)
{
    return is_last_tried(d, file, false);
}

bool cluster_disk_lacks(struct cluster_disk *d, enum trust_file file)
{
    return is_last_tried(d, file, true);
}

/* --- opening ---------------------------------------------------------------------------------- */

struct cluster_disk *cluster_disk_new(const char *state_dir, void (*written)(void *owner), void *owner)
{
    static const char *const names[TRUST_FILES] = {"tokens", "cluster"};
    struct cluster_disk *d = xsecret(sizeof *d);
    d->written = written;
    d->owner = owner;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    for (size_t i = 0; i < TRUST_FILES; i++)
        snprintf(d->at[i].path, sizeof d->at[i].path, "%s/%s", state_dir, names[i]);
    return d;
}

int cluster_disk_start(struct cluster_disk *d, struct event_base *base, struct mailbox *mailbox,
                       unsigned wait_ms)
{
    d->mailbox = mailbox;
    d->wait_ms = wait_ms ? wait_ms : CLUSTER_DISK_MS;
    d->stops = false;
    if (pthread_create(&d->thread, NULL, run, d)) {
        d->mailbox = NULL;
        return -EAGAIN;
    }
    d->timer = timer_new(base, on_late, d);
    return 0;
}

void cluster_disk_stop(struct cluster_disk *d)
{
    if (!d->mailbox)
        return;
    pthread_mutex_lock(&d->lock);
    d->stops = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    mailbox_forget(d->mailbox, d);
    call_waiters(d);
    timer_free(d->timer);
    d->timer = NULL;
    d->mailbox = NULL;
}

void cluster_disk_free(struct cluster_disk *d)
{
    if (!d)
        return;
    cluster_disk_stop(d);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    secret_free(d);
}
