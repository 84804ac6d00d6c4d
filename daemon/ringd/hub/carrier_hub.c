/* SPDX-License-Identifier: MIT
 *
 * The hub as a source: a process that asks it, and a sealed connection between that and the one
 * that carries. Both ends are on this node, and neither sees what the other may. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/hub/carriers_impl.h"
#include "daemon/ringd/job/lanes.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"

enum { TRIES = 3 /* that end with their process, without a byte between them */ };

/* --- when ------------------------------------------------------------------------------------- */

/* A node that has said nothing for so long is not waited for. */
static bool has_had_a_word(const struct carry_node *n)
{
    return n->up || n->is_barred || *n->why ||
           clock_since_us(clock_now(), n->since) >= AGAIN_MS * UINT64_C(1000);
}

bool carrier_hub_is_due(const struct carrier *c)
{
    const struct carry_hub *h = &c->hub;
    if (!h->is_wanted || h->is_vain || h->fetch || h->number || !c->ops)
        return false;
    if (h->tries && clock_since_us(clock_now(), h->since) < AGAIN_MS * UINT64_C(1000))
        return false;
    for (size_t i = 0; i < NODES; i++)
        if (c->nodes[i].c && c->nodes[i].is_source && !has_had_a_word(&c->nodes[i]))
            return false;
    return true;
}

/* --- its process ------------------------------------------------------------------------------ */

static void note_failure(struct carrier *c, const char *why, bool is_vain)
{
    struct carry_hub *h = &c->hub;
    h->fetch = NULL;
    h->since = clock_now();
    h->tries = c->done == h->done ? h->tries + 1 : 1;
    h->done = c->done;
    h->is_vain = is_vain || h->tries == TRIES;
    snprintf(h->why, sizeof h->why, "%s", why);
    if (h->is_vain)
        log_warning("the hub gives nothing of %s: %s", c->model, why);
    timer_set_ms(c->again, h->is_vain ? 0 : AGAIN_MS);
}

/* Without a reason it was the process that carries which let go: that one has another now. */
static void on_over(void *owner, const char *why, enum fetch_end end)
{
    struct carrier *c = owner;
    (void)end; /* it has had patience of its own */
    c->hub.fetch = NULL;
    if (why)
        note_failure(c, why, true);
}

/* Said once, and for as long as nothing comes to who waits for it. */
static void on_waits(void *owner, const char *why)
{
    const struct carrier *c = owner;
    if (c->ops && c->ops->waits)
        c->ops->waits(c->owner, why);
}

static void on_died(void *owner, const char *why)
{
    note_failure(owner, why, false);
}

/* Two ends of a connection: what one seals the other opens. 0 or −errno. */
static int make_lanes(struct ipc_lane *one, struct ipc_lane *other, int ends[2])
{
    uint8_t keys[2][32];
    memset(one, 0, sizeof *one); /* its padding leaves this process */
    memset(other, 0, sizeof *other);
    if (getrandom(keys, sizeof keys, 0) != sizeof keys)
        return -EIO;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return -errno;
    seal_init(&one->tx, keys[0], SEAL_CHACHA20_POLY1305);
    seal_init(&one->rx, keys[1], SEAL_CHACHA20_POLY1305);
    seal_init(&other->tx, keys[1], SEAL_CHACHA20_POLY1305);
    seal_init(&other->rx, keys[0], SEAL_CHACHA20_POLY1305);
    explicit_bzero(keys, sizeof keys);
    return 0;
}

static void wipe(struct ipc_lane *lane)
{
    seal_wipe(&lane->tx);
    seal_wipe(&lane->rx);
}

static int start_it(struct carrier *c, struct ipc_lane *its, int its_end, struct ipc_lane *ours, int our_end,
                    struct err *err)
{
    static const struct hub_fetch_ops ops = {.waits = on_waits, .over = on_over, .died = on_died};
    const struct hub_order order = {.what = "lend", .model = c->model, .content = c->content};
    int r = hub_fetch_start(&c->hub.fetch, c->all->setup.fetchers, &order, &ops, c, err);
    if (r)
        return r;
    its->rank = RANK_TAKER;
    ours->rank = RANK_HUB;
    ours->path = ++c->ways;
    r = hub_fetch_send_lane(c->hub.fetch, its, its_end);
    r = r ? r : hub_fetch_send_lane(c->fetch, ours, our_end);
    if (!r)
        c->hub.number = ours->path;
    return r ? err_set(err, r, "ringd-fetch takes no messages: %s", strerror(-r)) : 0;
}

void carrier_hub_start(struct carrier *c)
{
    struct ipc_lane its, ours;
    struct err err;
    int ends[2];
    int r = make_lanes(&its, &ours, ends);
    if (r) {
        note_failure(c, strerror(-r), true);
        return;
    }
    r = start_it(c, &its, ends[0], &ours, ends[1], &err);
    wipe(&its);
    wipe(&ours);
    close(ends[0]);
    close(ends[1]);
    if (r) {
        carrier_hub_drop(c);
        note_failure(c, err.text, true);
    } else {
        log_info("the hub is asked for what is missing of %s", c->model);
    }
}

/* Its own end, with the reason, follows or has been. */
bool carrier_hub_lost(struct carrier *c, uint64_t number)
{
    if (!number || c->hub.number != number)
        return false;
    c->hub.number = 0;
    return true;
}

void carrier_hub_drop(struct carrier *c)
{
    hub_fetch_stop(c->hub.fetch);
    c->hub.fetch = NULL;
    c->hub.number = 0;
}

void carrier_hub_stop(struct carrier *c)
{
    carrier_hub_drop(c);
    c->hub = (struct carry_hub){.is_wanted = false};
}

/* --- for another node ------------------------------------------------------------------------- */

/* A process that asks the hub for what a taker lacks. */
struct carry_lend {
    LIST_ENTRY(carry_lend) next;
    struct carry_node *n;    /* borrowed: owner */
    struct hub_fetch *fetch; /* owned */
    uint64_t number;         /* of its connection */
};

/* The taker is through, or has heard why it gets nothing; it may ask again. */
static void lend_over(struct carry_lend *d)
{
    struct carry_node *n = d->n;
    for (size_t k = 0; k < n->up; k++)
        if (n->ways[k].number == d->number)
            n->ways[k] = n->ways[--n->up];
    n->since = clock_now();
    if (!n->up)
        lanes_stop(n->lanes);
    LIST_REMOVE(d, next);
    free(d);
}

static void on_lend_over(void *owner, const char *why, enum fetch_end end)
{
    struct carry_lend *d = owner;
    (void)end;
    if (why)
        log_warning("the hub gives nothing of %s for another node: %s", d->n->c->model, why);
    lend_over(d);
}

int carrier_lend(struct carry_node *n, const struct ipc_lane *lane, int fd)
{
    static const struct hub_fetch_ops ops = {.over = on_lend_over};
    const struct carrier *c = n->c;
    const struct hub_order order = {.what = "lend", .model = c->model, .content = c->content};
    struct carry_lend *d = xcalloc(1, sizeof *d);
    struct err err;
    *d = (struct carry_lend){.n = n, .number = lane->path};
    int r = hub_fetch_start(&d->fetch, c->all->setup.fetchers, &order, &ops, d, &err);
    if (r) {
        free(d);
        return r;
    }
    LIST_INSERT_HEAD(&n->lends, d, next);
    return hub_fetch_send_lane(d->fetch, lane, fd);
}

void carrier_lend_stop(struct carry_node *n)
{
    struct carry_lend *d;
    while ((d = LIST_FIRST(&n->lends))) {
        LIST_REMOVE(d, next);
        hub_fetch_stop(d->fetch);
        free(d);
    }
}
