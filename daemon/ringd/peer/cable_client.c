/* SPDX-License-Identifier: MIT
 *
 * The client of ringd-link. One request is under way at a time; what comes next is decided in one
 * place (next_step), from what is wanted and known, so there is no order of events to get wrong.
 * Loop thread. */
#include "daemon/ringd/peer/cable_client.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/clock.h"
#include "net/base/reason.h"

enum {
    LEASE_S = 120,
    BACKOFF_MAX_S = 30,
    ANSWER_US = 5000000, /* ringd-link answers in milliseconds; its kernel questions may take seconds */
    RECHECK_US = 50000,  /* changes come in bursts: one look for all of them */
};
static const struct instant never = {UINT64_MAX};

struct item {
    struct linkctl_want want;
    bool wanted; /* else an address to be removed */
    bool is_set, seen;
    unsigned backoff_s;
    struct instant due;
    char reason[RLINK_TEXT]; /* empty: none */
};

struct linkctl {
    struct event_base *base; /* borrowed */
    void (*changed)(void *owner);
    void *owner; /* borrowed */
    struct sockaddr_un path;
    uint32_t lease_s;
    int fd;           /* owned; −1: not connected */
    struct event *io; /* owned, as is the next */
    struct timer *timer;
    struct prefix scope[2]; /* family 0: none */
    bool scope_told[2];
    struct item *items; /* owned */
    size_t n;
    struct rlink_request under_way; /* verb 0: none */
    uint32_t seq;
    struct instant answer_due, connect_due, list_due;
    unsigned connect_backoff_s;
    char problem[RLINK_TEXT]; /* empty: none */
    bool news;
};

static struct instant after(struct instant now, uint64_t us)
{
    return (struct instant){now.us + us};
}

static unsigned longer(unsigned backoff_s)
{
    return backoff_s == 0 ? 1 : backoff_s * 2 < BACKOFF_MAX_S ? backoff_s * 2 : BACKOFF_MAX_S;
}

static void wake(struct linkctl *l, struct instant at)
{
    struct instant now = clock_now();
    uint64_t us = at.us > now.us ? at.us - now.us : 0;

    if (at.us != never.us)
        timer_set_us(l->timer, us);
}

static void set_text(struct linkctl *l, char text[RLINK_TEXT], const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void set_text(struct linkctl *l, char text[RLINK_TEXT], const char *fmt, ...)
{
    char fresh[RLINK_TEXT];
    va_list args;

    va_start(args, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, args);
    va_end(args);
    l->news |= strcmp(fresh, text) != 0;
    memcpy(text, fresh, sizeof fresh);
}

/* The callback may close us: always the last thing done. */
static void tell_news(struct linkctl *l)
{
    bool news = l->news;

    l->news = false;
    if (news && l->changed)
        l->changed(l->owner);
}

/* --- items ------------------------------------------------------------------------------------ */

static bool is_same(const struct linkctl_want *a, const struct linkctl_want *b)
{
    return a->verb == b->verb && a->ifindex == b->ifindex && a->mtu == b->mtu &&
           prefix_equal(&a->addr, &b->addr);
}

static struct item *find(struct linkctl *l, const struct linkctl_want *want)
{
    for (size_t i = 0; i < l->n; i++)
        if (is_same(&l->items[i].want, want))
            return &l->items[i];
    return NULL;
}

/* The item a request was made for. */
static struct item *find_asked(struct linkctl *l, const struct rlink_request *r)
{
    struct linkctl_want want = {r->verb, r->ifindex, r->verb == RLINK_SET_MTU ? r->value : 0, r->addr, false};

    if (r->verb == RLINK_ADDR_DEL)
        want.verb = RLINK_ADDR_ADD;
    return find(l, &want);
}

static void drop(struct linkctl *l, struct item *item)
{
    size_t i = (size_t)(item - l->items);

    memmove(item, item + 1, (l->n - i - 1) * sizeof *item);
    l->n--;
}

/* When an address is to be asserted next. */
static struct instant next_due(const struct item *item, struct instant at)
{
    return item->want.lapses ? never : at;
}

static void drop_unwanted(struct linkctl *l)
{
    for (size_t i = l->n; i-- > 0;)
        if (!l->items[i].wanted)
            drop(l, &l->items[i]);
}

void linkctl_want(struct linkctl *l, const struct linkctl_want *list, size_t n)
{
    for (size_t i = l->n; i-- > 0;) {
        bool still = false;

        for (size_t k = 0; k < n; k++)
            still |= is_same(&l->items[i].want, &list[k]);
        if (still)
            continue;
        /* it may be set, or be about to be: asked to remove what is not there, ringd-link is
         * content */
        l->items[i].wanted = false;
        l->items[i].due = (struct instant){0};
        if (l->items[i].want.verb != RLINK_ADDR_ADD)
            drop(l, &l->items[i]);
    }
    for (size_t k = 0; k < n; k++) {
        struct item *item = find(l, &list[k]);

        if (list[k].lapses) { /* what is not there is not set, and what is being removed goes on */
            if (item && item->wanted) {
                item->want.lapses = true;
                item->due = never;
            }
            continue;
        }
        if (!item) {
            l->items = xreallocarray(l->items, l->n + 1, sizeof *l->items);
            item = &l->items[l->n++];
            *item = (struct item){.want = list[k]};
            memcpy(item->reason, l->problem, sizeof item->reason);
        }
        if (!item->wanted || item->want.lapses) {
            item->is_set &= item->wanted;
            item->wanted = true;
            item->want.lapses = false;
            item->due = (struct instant){0};
        }
    }
    wake(l, (struct instant){0});
}

void linkctl_recheck(struct linkctl *l)
{
    struct instant at = after(clock_now(), RECHECK_US);

    if (l->list_due.us <= at.us)
        return;
    l->list_due = at;
    wake(l, (struct instant){0});
}

static void item_failed(struct linkctl *l, struct item *item, const char *why, struct instant now)
{
    l->news |= item->is_set;
    item->is_set = false;
    item->backoff_s = longer(item->backoff_s);
    item->due = next_due(item, after(now, item->backoff_s * UINT64_C(1000000)));
    set_text(l, item->reason, "%s", why);
}

static void item_done(struct linkctl *l, struct item *item, struct instant now)
{
    if (item->is_set) /* it has lasted since the last time */
        item->backoff_s = 0;
    l->news |= !item->is_set;
    item->is_set = true;
    set_text(l, item->reason, "%s", "");
    item->due =
        item->want.verb == RLINK_ADDR_ADD ? next_due(item, after(now, l->lease_s * UINT64_C(250000))) : never;
}

static void item_lost(struct linkctl *l, struct item *item, struct instant now)
{
    char addr[PREFIX_TEXT];

    prefix_format(&item->want.addr, addr);
    item->is_set = false;
    item->due = after(now, item->backoff_s * UINT64_C(1000000));
    set_text(l, item->reason,
             "%s was removed by another program, likely networkd or NetworkManager, and is set again%s", addr,
             item->backoff_s ? ": make it leave this port alone with ringctl link adopt" : "");
    item->backoff_s = longer(item->backoff_s);
    l->news = true;
}

/* --- the connection --------------------------------------------------------------------------- */

static void next_step(struct linkctl *l);

static void disconnect(struct linkctl *l, const char *why, struct instant now)
{
    event_del(l->io);
    event_free(l->io);
    l->io = NULL;
    close(l->fd);
    l->fd = -1;
    l->under_way.verb = 0;
    l->connect_backoff_s = longer(l->connect_backoff_s);
    l->connect_due = after(now, l->connect_backoff_s * UINT64_C(1000000));
    set_text(l, l->problem, "%s", why);
    drop_unwanted(l); /* their leases end */
    for (size_t i = 0; i < l->n; i++) {
        l->items[i].is_set = false;
        set_text(l, l->items[i].reason, "%s", why);
    }
}

/* An address of ours that is not asked for any more, of a run before this: it goes if it stands in
 * the way of one that is. Else it may belong to a cable that is just not heard yet. */
static void take_leftover(struct linkctl *l, const struct rlink_request *there)
{
    bool in_the_way = false;

    for (size_t i = 0; i < l->n; i++) {
        const struct linkctl_want *w = &l->items[i].want;

        in_the_way |= l->items[i].wanted && w->verb == RLINK_ADDR_ADD &&
                      w->addr.family == there->addr.family &&
                      (w->ifindex == there->ifindex || prefix_overlaps(&w->addr, &there->addr));
    }
    if (!in_the_way)
        return;
    l->items = xreallocarray(l->items, l->n + 1, sizeof *l->items);
    l->items[l->n++] =
        (struct item){.want = {.verb = RLINK_ADDR_ADD, .ifindex = there->ifindex, .addr = there->addr}};
}

static void on_listed(struct linkctl *l, const struct rlink_reply *a, struct instant now)
{
    struct rlink_request there = a->to;
    struct item *item;

    there.verb = RLINK_ADDR_ADD;
    if (a->more) {
        item = find_asked(l, &there);
        if (item)
            item->seen = true;
        else
            take_leftover(l, &there);
        return;
    }
    l->under_way.verb = 0;
    for (size_t i = 0; a->code == RLINK_OK && i < l->n; i++) {
        item = &l->items[i];
        if (!item->is_set || !item->wanted)
            continue;
        if (item->want.verb != RLINK_ADDR_ADD)
            item->due = now; /* the kernel says nothing of a change that is none, so this comes to rest */
        else if (!item->seen && !item->want.lapses)
            item_lost(l, item, now);
    }
}

static void on_reply(struct linkctl *l, const struct rlink_reply *a, struct instant now)
{
    struct rlink_request asked = l->under_way;
    struct item *item;

    if (a->to.verb == 0) { /* not heard at all: another user, too many clients, another version */
        disconnect(l, a->text, now);
        return;
    }
    if (asked.verb == 0 || a->to.seq != asked.seq || a->to.verb != asked.verb) {
        disconnect(l,
                   "ringd-link sent an answer without a request: check that ringd and ringd-link have the "
                   "same version",
                   now);
        return;
    }
    l->connect_backoff_s = 0;
    if (asked.verb == RLINK_LIST) {
        on_listed(l, a, now);
        return;
    }
    l->under_way.verb = 0;
    if (asked.verb == RLINK_SCOPE) {
        if (a->code != RLINK_OK)
            set_text(l, l->problem, "%s", a->text);
        return;
    }
    item = find_asked(l, &asked);
    if (!item)
        return; /* no longer wanted, and nothing that would have to be undone */
    if (asked.verb == RLINK_ADDR_DEL) {
        if (item->wanted)
            item->due = now; /* wanted again meanwhile */
        else
            drop(l, item);
    } else if (item->wanted && a->code == RLINK_OK) {
        item_done(l, item, now);
    } else if (item->wanted) {
        item_failed(l, item, a->text, now);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    uint8_t data[RLINK_REPLY + 1];
    struct linkctl *l = arg;

    (void)what;
    while (l->fd >= 0) {
        ssize_t n = recv(fd, data, sizeof data, MSG_DONTWAIT);
        struct instant now = clock_now();
        struct rlink_reply a;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0 && errno == ECONNRESET)
            continue; /* told once, before what was said last */
        if (n <= 0)
            disconnect(l,
                       "ringd-link is gone: is its service running? Cables keep their addresses for a while",
                       now);
        else if (rlink_reply_decode(data, (size_t)n, &a) < 0)
            disconnect(l, "ringd-link's answer is not understood: are ringd and ringd-link of one version?",
                       now);
        else
            on_reply(l, &a, now);
    }
    next_step(l);
    tell_news(l);
}

static void try_connect(struct linkctl *l, struct instant now)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&l->path, sizeof l->path) == 0) {
        l->io = event_new(l->base, fd, EV_READ | EV_PERSIST, on_readable, l);
        if (l->io && event_add(l->io, NULL) == 0) {
            l->fd = fd;
            set_text(l, l->problem, "%s", "");
            l->scope_told[0] = l->scope_told[1] = false;
            l->list_due = never;
            for (size_t i = 0; i < l->n; i++)
                l->items[i].due = next_due(&l->items[i], (struct instant){0});
            return;
        }
        errno = ENOMEM;
    }
    l->connect_backoff_s = longer(l->connect_backoff_s);
    l->connect_due = after(now, l->connect_backoff_s * UINT64_C(1000000));
    set_text(l, l->problem,
             "ringd-link does not answer at %.90s (%s): cables have no addresses but link-local ones",
             l->path.sun_path, reason_of(errno).text);
    if (l->io)
        event_free(l->io);
    l->io = NULL;
    if (fd >= 0)
        close(fd);
    drop_unwanted(l);
    for (size_t i = 0; i < l->n; i++)
        set_text(l, l->items[i].reason, "%s", l->problem);
}

/* --- what comes next -------------------------------------------------------------------------- */

static void ask(struct linkctl *l, struct rlink_request r, struct instant now)
{
    uint8_t out[RLINK_REQUEST];

    r.seq = ++l->seq;
    rlink_request_encode(&r, out);
    l->under_way = r;
    l->answer_due = after(now, ANSWER_US);
    /* if this fails, ringd-link has closed, and what it said before is still to be read */
    (void)!send(l->fd, out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static struct rlink_request request_for(const struct linkctl *l, const struct item *item)
{
    const struct linkctl_want *w = &item->want;
    struct rlink_request r = {.verb = w->verb, .ifindex = w->ifindex, .value = w->mtu, .addr = w->addr};

    if (w->verb == RLINK_ADDR_ADD) {
        r.verb = item->wanted ? RLINK_ADDR_ADD : RLINK_ADDR_DEL;
        r.value = item->wanted ? l->lease_s : 0;
    }
    return r;
}

/* Removals come before what is new: the new one may be the same address elsewhere. */
static struct item *find_due(struct linkctl *l, struct instant now)
{
    struct item *best = NULL;

    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].due.us <= now.us && (!best || (best->wanted && !l->items[i].wanted)))
            best = &l->items[i];
    return best;
}

static void ask_next(struct linkctl *l, struct instant now)
{
    struct item *item = find_due(l, now);

    for (int i = 0; i < 2; i++)
        if (l->scope[i].family != 0 && !l->scope_told[i]) {
            l->scope_told[i] = true;
            ask(l, (struct rlink_request){.verb = RLINK_SCOPE, .addr = l->scope[i]}, now);
            return;
        }
    if (item) {
        ask(l, request_for(l, item), now);
    } else if (l->list_due.us <= now.us) {
        l->list_due = never;
        for (size_t i = 0; i < l->n; i++)
            l->items[i].seen = false;
        ask(l, (struct rlink_request){.verb = RLINK_LIST}, now);
    }
}

static struct instant earliest(const struct linkctl *l)
{
    struct instant at = l->list_due;

    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].due.us < at.us)
            at = l->items[i].due;
    return at;
}

static void next_step(struct linkctl *l)
{
    struct instant now = clock_now();

    if (l->fd >= 0 && l->under_way.verb != 0 && l->answer_due.us <= now.us)
        disconnect(l, "ringd-link has not answered for 5 s", now);
    if (l->fd < 0 && l->connect_due.us <= now.us)
        try_connect(l, now);
    if (l->fd >= 0 && l->under_way.verb == 0)
        ask_next(l, now);
    wake(l, l->fd < 0 ? l->connect_due : l->under_way.verb != 0 ? l->answer_due : earliest(l));
}

static void on_timer(void *owner)
{
    next_step(owner);
    tell_news(owner);
}

/* --- life and reports ------------------------------------------------------------------------- */

int linkctl_open(struct linkctl **ret, const struct linkctl_setup *setup)
{
    const char *path = setup->path ? setup->path : RLINK_PATH;
    struct linkctl *l;

    if (strlen(path) >= sizeof l->path.sun_path)
        return -ENAMETOOLONG;
    l = xcalloc(1, sizeof *l);
    *l = (struct linkctl){.base = setup->base,
                          .changed = setup->changed,
                          .owner = setup->owner,
                          .path.sun_family = AF_UNIX,
                          .lease_s = setup->lease_s ? setup->lease_s : LEASE_S,
                          .fd = -1,
                          .list_due = never};
    strcpy(l->path.sun_path, path);
    l->timer = timer_new(l->base, on_timer, l);
    wake(l, (struct instant){0});
    *ret = l;
    return 0;
}

void linkctl_close(struct linkctl *l)
{
    if (!l)
        return;
    if (l->io)
        event_free(l->io);
    timer_free(l->timer);
    if (l->fd >= 0)
        close(l->fd);
    free(l->items);
    free(l);
}

void linkctl_scope(struct linkctl *l, const struct prefix *ula, const struct prefix *pool)
{
    const struct prefix *given[] = {ula, pool};

    for (int i = 0; i < 2; i++)
        if (given[i] && !prefix_equal(given[i], &l->scope[i])) {
            l->scope[i] = *given[i];
            l->scope_told[i] = false;
        }
    wake(l, (struct instant){0});
}

size_t linkctl_count(const struct linkctl *l)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        n += l->items[i].wanted;
    return n;
}

void linkctl_at(const struct linkctl *l, size_t i, struct linkctl_state *ret)
{
    for (size_t k = 0; k < l->n; k++) {
        const struct item *item = &l->items[k];

        if (!item->wanted || i-- > 0)
            continue;
        *ret = (struct linkctl_state){item->want, item->is_set, *item->reason ? item->reason : NULL};
        return;
    }
    *ret = (struct linkctl_state){0};
}

const char *linkctl_problem(const struct linkctl *l)
{
    return *l->problem ? l->problem : NULL;
}
