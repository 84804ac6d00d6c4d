/* SPDX-License-Identifier: MIT */
#include "daemon/stage/exchange/exchange_share.h"

/* No core seals faster, whatever the cable. */
static const double LEAST_COST = 0.4;
/* A lane that left everything to the others may have become faster. It is taken for faster by as
 * much again each time this passes: then one chunk shows. A chunk that comes late for it costs at
 * most a hundredth of the time a message takes without the lane, per second of that time. */
static const double TRUST_NS = 100e9;
/* The others have to be earlier by this part of the wait: equals share. */
static const double EARLIER = 1.0 / 128;
static const int64_t LOOK_NS = 100 * 1000000;
/* A rate is one over so much: what a queue on the way swallows at once says little, and the kernel
 * counts time in ticks of up to 10 ms. */
enum { WINDOW_BYTES = 128 * 1024, WINDOW_US = 20 * 1000 };

static double fastest(const struct share_lane *lanes, size_t n)
{
    double least = 0;
    for (size_t i = 0; i < n; i++)
        if (lanes[i].alive && lanes[i].cost > 0 && (least == 0 || lanes[i].cost < least))
            least = lanes[i].cost;
    return least == 0 ? LEAST_COST : least;
}

/* ns a byte. An unknown lane may be as good as the best. */
static double cost_of(const struct share_lane *l, double least, int64_t now)
{
    const double cost = l->cost / (1 + (double)(now - l->measured) / TRUST_NS);
    return cost > least ? cost : least;
}

/* ns from now until what the lane has is delivered. One that is late is taken to need as long
 * again. */
static double wait_of(const struct share_lane *l, int64_t now)
{
    int64_t wait = l->clear - now;
    if (wait < 0)
        wait = l->held ? -wait : 0;
    return (double)(wait + l->trip);
}

static double delivers(const struct share_lane *l, double least, size_t bytes, int64_t now)
{
    return wait_of(l, now) + cost_of(l, least, now) * (double)bytes;
}

/* How many whole chunks of the queue the others deliver until then, and whether the rest beside
 * them. */
static size_t others_deliver(const struct share_lane *lanes, size_t n, size_t me,
                             const struct share_queue *queue, double until, int64_t now, bool *ret_rest)
{
    const double least = fastest(lanes, n);
    const size_t most = queue->bytes / queue->chunk + 1, rest = queue->bytes % queue->chunk;
    size_t done = 0;
    *ret_rest = !rest;
    for (size_t i = 0; i < n; i++) {
        const double time = until - wait_of(&lanes[i], now);
        if (i == me || !lanes[i].alive || time < 0)
            continue;
        const double whole = time / (cost_of(&lanes[i], least, now) * (double)queue->chunk);
        if (whole >= (double)most)
            return most;
        done += (size_t)whole;
        *ret_rest |= (whole - (double)(size_t)whole) * (double)queue->chunk >= (double)rest;
    }
    return done < most ? done : most;
}

/* If the others deliver all whole chunks before this lane delivers one, it is needed for no more
 * than the rest. */
enum share_choice share_choose(const struct share_lane *lanes, size_t n, size_t me,
                               const struct share_queue *queue, int64_t now)
{
    const size_t chunks = queue->bytes / queue->chunk, rest = queue->last;
    const double least = fastest(lanes, n);
    const bool may = rest && rest < queue->next;
    for (int i = 0; i < 1 + may; i++) {
        const double at = delivers(&lanes[me], least, i ? rest : queue->next, now);
        bool rest_done;
        const size_t done = others_deliver(lanes, n, me, queue, at * (1 - EARLIER), now, &rest_done);
        if (done < chunks || (done == chunks && !rest_done))
            return i || (may && done == chunks) ? SHARE_LAST : SHARE_NEXT;
    }
    return SHARE_LEAVE;
}

size_t share_first(const struct share_lane *lanes, size_t n, size_t bytes, int64_t now)
{
    const double least = fastest(lanes, n);
    size_t best = n;
    double earliest = 0;
    for (size_t i = 0; i < n; i++) {
        const double at = lanes[i].alive ? delivers(&lanes[i], least, bytes, now) : 0;
        if (lanes[i].alive && (best == n || at < earliest)) {
            best = i;
            earliest = at;
        }
    }
    return best;
}

int64_t share_look_again(const struct share_lane *lanes, size_t n, size_t me, size_t bytes, int64_t now)
{
    const int64_t wait = (int64_t)delivers(&lanes[me], fastest(lanes, n), bytes, now);
    return now + (wait > LOOK_NS ? wait : LOOK_NS);
}

void share_give(struct share_lane *lanes, size_t n, size_t me, size_t bytes, int64_t now)
{
    struct share_lane *l = &lanes[me];
    const int64_t from = l->clear > now ? l->clear : now;
    l->clear = from + (int64_t)(cost_of(l, fastest(lanes, n), now) * (double)bytes);
    l->held += bytes;
}

void share_given(struct share_lane *lane, size_t bytes)
{
    lane->held -= bytes;
}

bool share_measured(struct share_lane *lane, const struct share_sample *sample, int64_t now)
{
    const uint64_t acked = sample->acked - lane->acked, busy_us = sample->busy_us - lane->busy_us;
    const double before = lane->cost;
    lane->trip = sample->trip;
    if (acked >= WINDOW_BYTES && busy_us >= WINDOW_US) {
        const double found = (double)busy_us * 1000 / (double)acked,
                     cost = found > LEAST_COST ? found : LEAST_COST;
        lane->cost = before > 0 ? (before + cost) / 2 : cost;
        lane->measured = now;
        lane->acked = sample->acked;
        lane->busy_us = sample->busy_us;
    }
    if (lane->cost > 0)
        lane->clear = now + (int64_t)(lane->cost * (double)(sample->unsent + lane->held));
    return lane->cost > before * 1.25;
}
