/* SPDX-License-Identifier: MIT
 *
 * What the threads of a lane share: the frames they speak in, its break, and what they ask of the
 * kernel. Called by exchange_send.c, exchange_receive.c and exchange.c. */
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/stage/exchange/exchange_impl.h"
#include "daemon/common/progress.h"
#include "net/clock.h"

enum { SLICE_NS = 100 * 1000 };

static const char *why_broken(int r)
{
    switch (r) {
    case -EPIPE:
    case -ECONNRESET: return "closed by the other end"; /* whichever thread comes upon it first */
    case -EBADMSG: return "a record was forged or damaged on the way";
    case -EPROTO: return "it sent a message that the plan does not know";
    case -ENOBUFS: return "it says that it has room for more messages than any plan sends";
    default: return strerror(-r);
    }
}

/* Its key is shown no more, unless another lane is there by now. */
static void forget_key(const struct lane *l)
{
    const struct neighbor *p = l->neighbor;
    for (const struct lane *o = p->lanes; o < p->lanes + MAX_LANES; o++)
        if (o != l && o->used && !o->broken && o->count == l->count)
            return;
    atomic_store_explicit(&l->count->keyed_us, 0, memory_order_relaxed);
}

void exchange_on_lost(struct exchange *x,
                      void (*lost)(void *owner, uint32_t rank, uint64_t path, const char *why), void *owner)
{
    struct lane_loss untold[UNTOLD_MAX];
    pthread_mutex_lock(&x->lock);
    const size_t n = x->n_untold;
    memcpy(untold, x->untold, n * sizeof *untold);
    x->n_untold = 0;
    x->lost = lost;
    x->owner = owner;
    pthread_mutex_unlock(&x->lock);
    for (size_t i = 0; lost && i < n; i++)
        lost(owner, untold[i].rank, untold[i].path, why_broken(untold[i].r));
}

void lane_break(struct lane *l, int r)
{
    struct neighbor *p = l->neighbor;
    struct exchange *x = p->x;
    pthread_mutex_lock(&x->lock);
    bool first = !l->broken;
    void (*tell)(void *, uint32_t, uint64_t, const char *) =
        first && !x->closing && !x->abandoned ? x->lost : NULL;
    void *owner = x->owner;
    if (first && !x->lost && x->n_untold < UNTOLD_MAX)
        x->untold[x->n_untold++] = (struct lane_loss){p->rank, l->path, r};
    l->broken = true;
    p->share[lane_index(l)].alive = false;
    forget_key(l);
    shutdown(l->fd, SHUT_RDWR); /* wakes the other thread */
    for (struct outbox *o = first ? p->out : NULL; o; o = o->next)
        for (size_t i = 0; i < o->chunks; i++)
            if (o->chunk[i] == lane_index(l)) {
                o->chunk[i] = CHUNK_UNSENT;
                o->unsent++;
            }
    for (struct inbox *in = first ? p->in : NULL; in; in = in->next)
        if (in->state == IN_POSTED)
            in->credited = false;
    exchange_wake_senders(p);
    pthread_cond_broadcast(&l->sync->work);
    pthread_cond_broadcast(&l->sync->turn);
    pthread_cond_broadcast(&l->sync->back);
    exchange_changed(x);
    pthread_mutex_unlock(&x->lock);
    if (tell)
        tell(owner, p->rank, l->path, why_broken(r));
}

/* --- frames ----------------------------------------------------------------------------------- */

void frame_encode(uint8_t out[HEAD], const struct lane_frame *f)
{
    uint32_t round = htole32(f->key.round), mb = htole32(f->key.mb);
    uint16_t kind = htole16(f->key.kind), stage = htole16(f->key.stage);
    uint64_t size = htole64(f->size), offset = htole64(f->offset);
    out[0] = (uint8_t)f->type;
    out[1] = f->again;
    out[2] = out[3] = 0;
    memcpy(out + 4, &round, 4);
    memcpy(out + 8, &kind, 2);
    memcpy(out + 10, &stage, 2);
    memcpy(out + 12, &mb, 4);
    memcpy(out + 16, &size, 8);
    memcpy(out + 24, &offset, 8);
}

int frame_decode(struct lane_frame *f, const uint8_t in[HEAD])
{
    uint32_t round, mb;
    uint16_t kind, stage;
    uint64_t size, offset;
    memcpy(&round, in + 4, 4);
    memcpy(&kind, in + 8, 2);
    memcpy(&stage, in + 10, 2);
    memcpy(&mb, in + 12, 4);
    memcpy(&size, in + 16, 8);
    memcpy(&offset, in + 24, 8);
    *f = (struct lane_frame){.type = in[0],
                             .key = {le32toh(round), le16toh(kind), le16toh(stage), le32toh(mb)},
                             .size = le64toh(size),
                             .offset = le64toh(offset),
                             .again = in[1]};
    static const uint8_t nothing[HEAD];
    bool known = in[0] >= FRAME_CREDIT && in[0] <= FRAME_ACK;
    known |= in[0] == FRAME_REKEY && !memcmp(in + 1, nothing, HEAD - 1);
    return known && f->offset % EXCHANGE_CHUNK == 0 && (f->offset < f->size || !f->offset) ? 0 : -EBADMSG;
}

/* --- time ------------------------------------------------------------------------------------- */

int64_t exchange_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* --- what the kernel is asked ----------------------------------------------------------------- */

/* As sched_setattr(2) has it, in its first version; the kernel's header for it cannot stand beside
 * the C library's. */
struct sched_asked {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/* A lane's threads work for microseconds at a time, beside a pool that computes on every core, and
 * the next rank stands still meanwhile. From Linux 6.12 on a thread that asks for short slices is
 * let in at once, where it would otherwise wait for the end of somebody's slice, perhaps until the
 * next tick; its share of the processor is the same. Earlier kernels let sleepers in anyway, and do
 * not look at this. */
void request_short_timeslice(void)
{
    struct sched_asked attr = {.size = sizeof attr};
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0))
        return;
    attr.runtime_ns = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

void lane_keyed(struct lane *l)
{
    l->keyed_at = exchange_now_ns();
    atomic_store_explicit(&l->count->keyed_us, clock_now().us, memory_order_relaxed);
}

void lane_sample_tcp(struct lane *l)
{
    struct tcp_info info;
    socklen_t n = sizeof info;
    if (getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &n) || n < sizeof info)
        return; /* no TCP: nothing to tell */
    atomic_fetch_add_explicit(&l->count->retransmits, info.tcpi_total_retrans - l->retransmits,
                              memory_order_relaxed);
    atomic_store_explicit(&l->count->rtt_us, info.tcpi_rtt, memory_order_relaxed);
    l->retransmits = info.tcpi_total_retrans;
}
