/* SPDX-License-Identifier: MIT
 *
 * What the compute thread and the threads of all lanes work on: buffers, messages that wait, and
 * who is woken. It calls no other file of the exchange. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/stage/exchange/exchange_impl.h"

/* --- buffers: each carries its capacity in the line before it --------------------------------- */

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

static size_t buffer_cap(void *buffer)
{
    size_t cap;
    memcpy(&cap, (char *)buffer - LINE, sizeof cap);
    return cap;
}

static void *pool_take(struct exchange *x, size_t size)
{
    for (size_t i = 0; i < x->npool; i++)
        if (x->pool[i].cap >= size && x->pool[i].cap / 2 <= size) {
            void *at = x->pool[i].at;
            x->pool[i] = x->pool[--x->npool];
            return at;
        }
    return NULL;
}

/* A big one lies in big pages where the kernel has some: otherwise its first use, in the middle of
 * a step, is a fault every 4 KiB. */
static void *big_alloc(size_t size)
{
    if (size < HUGE_PAGE)
        return aligned_alloc(LINE, size);
    void *at;
    if (posix_memalign(&at, HUGE_PAGE, size)) /* aligned_alloc wants a size of whole pages */
        return NULL;
    madvise(at, size & ~(size_t)(HUGE_PAGE - 1), MADV_HUGEPAGE);
    return at;
}

void *exchange_buffer(struct exchange *x, size_t size)
{
    size_t cap = (size + LINE) & ~(size_t)(LINE - 1);
    pthread_mutex_lock(&x->lock);
    char *at = pool_take(x, cap);
    pthread_mutex_unlock(&x->lock);
    if (at)
        return at;
    at = big_alloc(cap + LINE);
    if (!at)
        return NULL;
    memcpy(at, &cap, sizeof cap);
    return at + LINE;
}

void exchange_free_buffer(void *buffer)
{
    free((char *)buffer - LINE);
}

void exchange_release_locked(struct exchange *x, void *buffer)
{
    if (!buffer)
        return;
    if (x->npool < MAX_POOL) {
        x->pool[x->npool].at = buffer;
        x->pool[x->npool++].cap = buffer_cap(buffer);
    } else {
        exchange_free_buffer(buffer);
    }
}

void exchange_release(struct exchange *x, void *buffer)
{
    pthread_mutex_lock(&x->lock);
    exchange_release_locked(x, buffer);
    pthread_mutex_unlock(&x->lock);
}

/* --- messages, with the lock held ------------------------------------------------------------- */

void exchange_changed(struct exchange *x)
{
    static const uint64_t one = 1;
    x->changes++;
    pthread_cond_signal(&x->changed);
    if (x->polling)
        x->polling = write(x->event, &one, sizeof one) < 0;
}

void exchange_wake_sender(struct lane *l)
{
    l->missed |= l->lent;
    if (l->called || l->taken != l->sent)
        return;
    l->called = true;
    pthread_cond_signal(&l->sync->work);
}

void exchange_wake_senders(struct neighbor *p)
{
    p->unkicked = false;
    for (size_t i = 0; i < MAX_LANES; i++)
        if (p->lanes[i].used)
            exchange_wake_sender(&p->lanes[i]);
}

void exchange_kick_locked(struct exchange *x, bool all)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->neighbors[i].unkicked && (all || !x->neighbors[i].attended))
            exchange_wake_senders(&x->neighbors[i]);
}

struct inbox *exchange_find_inbox(struct neighbor *p, const struct msg_key *key)
{
    for (struct inbox *in = p->in; in; in = in->next)
        if (same_key(&in->key, key))
            return in;
    return NULL;
}

void exchange_free_outbox(struct exchange *x, struct outbox *o)
{
    exchange_release_locked(x, o->buffer);
    free(o->chunk);
    free(o);
}

void exchange_finish_message(struct neighbor *p, struct outbox *o)
{
    if (o->done < o->chunks || o->readers)
        return;
    for (struct outbox **at = &p->out; *at; at = &(*at)->next)
        if (*at == o) {
            *at = o->next;
            if (p->out_tail == &o->next)
                p->out_tail = at;
            break;
        }
    p->nout--;
    p->nlast -= o->last;
    exchange_free_outbox(p->x, o);
    exchange_changed(p->x);
}
