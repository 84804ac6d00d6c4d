/* SPDX-License-Identifier: MIT
 *
 * Owns the thread, and the memory that small copies are copied to. */
#include "daemon/stage/hold/hold_keep.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEAVE_S = 3 };

struct hold_keep {
    struct hold_keep_setup setup;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;            /* for the thread: there is a step; for the main thread: it is done */
    bool is_busy, must_stop, has_left; /* under the lock; what follows is the thread's while is_busy */
    struct held_turn turn;
    struct held_part part[HELD_OF];
    uint8_t *copy; /* owned; NULL: of large ones there is none */
    size_t memory_turn, file_turn;
    atomic_bool is_torn; /* the memory was written meanwhile */
};

/* --- the thread ------------------------------------------------------------------------------- */

static void tell(const struct hold_keep *k, uint64_t step, int r)
{
    if (!r)
        k->setup.done(k->setup.owner, step, NULL);
    else if (r == -ECANCELED)
        k->setup.done(k->setup.owner, step, "newer copies were made before it was written");
    else
        k->setup.done(k->setup.owner, step, strerror(-r));
}

static bool is_torn(void *owner)
{
    const struct hold_keep *k = owner;
    return atomic_load(&k->is_torn);
}

static void *keep_main(void *arg)
{
    struct hold_keep *k = arg;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (!k->is_busy && !k->must_stop)
            pthread_cond_wait(&k->changed, &k->lock);
        if (!k->is_busy)
            break;
        pthread_mutex_unlock(&k->lock);
        const int r = held_file_write(k->setup.fd, k->file_turn, &k->turn);
        tell(k, k->turn.step, r);
        pthread_mutex_lock(&k->lock);
        k->file_turn = r ? k->file_turn : !k->file_turn;
        k->is_busy = false;
        pthread_cond_broadcast(&k->changed);
    }
    k->has_left = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* --- the main thread's side ------------------------------------------------------------------- */

static const uint8_t *values_of(struct hold_keep *k, const struct held_memory *from, size_t part, size_t at)
{
    const uint8_t *values = held_memory_at(from, part);
    if (!k->copy)
        return values;
    memcpy(k->copy + at, values, from->part[part].bytes);
    return k->copy + at;
}

/* The same for all steps of a process, or the caller's memory when there is none for a copy. */
static void make_copy(struct hold_keep *k, size_t bytes)
{
    if (k->copy || !held_spare_bytes(bytes))
        return;
    k->copy = malloc(bytes);
}

static void take(struct hold_keep *k, const struct held_memory *from, size_t turn)
{
    const size_t own = HELD_OWN * HELD_TURNS + turn, previous = HELD_PREVIOUS * HELD_TURNS + turn;
    make_copy(k, from->part[own].bytes + from->part[previous].bytes);
    k->part[HELD_OWN] = from->part[own];
    k->part[HELD_PREVIOUS] = from->part[previous];
    k->turn = (struct held_turn){
        .job = k->setup.job,
        .step = from->part[own].step,
        .part = {&k->part[HELD_OWN], &k->part[HELD_PREVIOUS]},
        .values = {values_of(k, from, own, 0), values_of(k, from, previous, from->part[own].bytes)},
        .is_torn = is_torn,
        .owner = k};
    k->memory_turn = turn;
    atomic_store(&k->is_torn, false);
}

void hold_keep_begin(struct hold_keep *k, const struct held_memory *from, size_t turn)
{
    pthread_mutex_lock(&k->lock);
    const bool was_busy = k->is_busy;
    if (!was_busy) {
        take(k, from, turn);
        k->is_busy = true;
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    if (was_busy)
        k->setup.done(k->setup.owner, from->part[HELD_OWN * HELD_TURNS + turn].step,
                      "the disk has not taken the step before it");
}

void hold_keep_touch(struct hold_keep *k, size_t turn)
{
    if (!k)
        return;
    pthread_mutex_lock(&k->lock);
    if (k->is_busy && !k->copy && k->memory_turn == turn)
        atomic_store(&k->is_torn, true);
    pthread_mutex_unlock(&k->lock);
}

/* --- opening, closing ------------------------------------------------------------------------- */

int hold_keep_new(struct hold_keep **ret, const struct hold_keep_setup *setup, struct err *err)
{
    pthread_condattr_t attr;
    struct hold_keep *k = calloc(1, sizeof *k);
    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    k->setup = *setup;
    (void)!ftruncate(setup->fd, 0); /* what an earlier process began there */
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &attr);
    pthread_condattr_destroy(&attr);
    const int r = pthread_create(&k->thread, NULL, keep_main, k);
    if (r) {
        pthread_cond_destroy(&k->changed);
        pthread_mutex_destroy(&k->lock);
        free(k);
        return err_set(err, -r, "no thread can be started that puts copies onto the disk: %s", strerror(r));
    }
    *ret = k;
    return 0;
}

void hold_keep_free(struct hold_keep *k)
{
    struct timespec until;
    int r = 0;
    if (!k)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LEAVE_S;
    pthread_mutex_lock(&k->lock);
    k->must_stop = true;
    pthread_cond_broadcast(&k->changed);
    while (!k->has_left && !r)
        r = pthread_cond_timedwait(&k->changed, &k->lock, &until);
    const bool has_left = k->has_left;
    pthread_mutex_unlock(&k->lock);
    if (!has_left) {
        pthread_detach(k->thread);
        return;
    }
    pthread_join(k->thread, NULL);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    free(k->copy);
    free(k);
}
