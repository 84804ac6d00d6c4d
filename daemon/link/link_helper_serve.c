/* SPDX-License-Identifier: MIT
 *
 * ringd-link's clients: who may ask, what they may ask for. Every refusal has a
 * code and a sentence. A request is one packet, answered before the next is
 * read, so a slow client holds up nobody; one that does not read its replies is
 * cut. libevent's loop, one thread. */
#include "daemon/link/link_helper.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_CLIENTS = 4,     /* ringd, one that takes over from it, and somebody who looks */
    MAX_ADDRESSES = 128, /* two a cable; also what fits into a client's socket
                            when it lists them */
};

struct client {
    struct serve *serve; /* borrowed; NULL = a free place */
    struct event *event; /* owned */
    int fd;              /* owned */
};

/* Kernels before 5.18 do not keep an address's owner: there our own memory has
 * to do. */
struct lease {
    uint32_t ifindex;
    struct prefix addr;
    time_t until;
};

struct serve {
    struct kernel *kernel; /* borrowed */
    struct event_base *base;
    struct event *event; /* owned: the listening socket */
    int fd;              /* owned */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uid_t uid;
    struct prefix ula, pool; /* family 0: not said yet */
    struct client client[MAX_CLIENTS];
    struct lease lease[MAX_ADDRESSES];
};

static void refuse(struct rlink_reply *a, enum rlink_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void refuse(struct rlink_reply *a, enum rlink_code code, const char *fmt, ...)
{
    va_list args;

    a->code = code;
    va_start(args, fmt);
    vsnprintf(a->text, sizeof a->text, fmt, args);
    va_end(args);
}

/* --- what is ours ----------------------------------------------------------------------------- */

static time_t now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return ts.tv_sec;
}

static struct lease *find_lease(struct serve *s, uint32_t ifindex, const struct prefix *addr)
{
    for (size_t i = 0; i < MAX_ADDRESSES; i++)
        if (s->lease[i].until > now_s() && s->lease[i].ifindex == ifindex &&
            prefix_equal(&s->lease[i].addr, addr))
            return &s->lease[i];
    return NULL;
}

static void remember(struct serve *s, uint32_t ifindex, const struct prefix *addr, uint32_t lease_s)
{
    struct lease *place = find_lease(s, ifindex, addr);

    for (size_t i = 0; !place && i < MAX_ADDRESSES; i++)
        if (s->lease[i].until <= now_s())
            place = &s->lease[i];
    if (place)
        *place = (struct lease){ifindex, *addr, now_s() + (time_t)lease_s + 1};
}

static const struct prefix *scope_of(const struct serve *s, uint8_t family)
{
    return family == AF_INET ? &s->pool : &s->ula;
}

static bool is_ours(struct serve *s, const struct kernel_addr *a)
{
    if (a->left_s == UINT32_MAX || !prefix_contains(scope_of(s, a->addr.family), &a->addr))
        return false;
    return a->is_tagged ? a->owner == PORTS_OWNER : find_lease(s, a->ifindex, &a->addr) != NULL;
}

struct addr_search {
    struct serve *serve;
    uint32_t ifindex;
    const struct prefix *addr;
    size_t ours;             /* all of ours, of this family */
    bool here, here_is_ours; /* the address, on this interface */
    uint32_t foreign_at;     /* an interface that has it, not by our doing */
};

static bool on_found(void *arg, const struct kernel_addr *a)
{
    struct addr_search *f = arg;
    bool ours = is_ours(f->serve, a);

    f->ours += ours;
    if (memcmp(a->addr.at, f->addr->at, sizeof a->addr.at) != 0)
        return true;
    if (!ours)
        f->foreign_at = a->ifindex;
    if (a->ifindex == f->ifindex && a->addr.plen == f->addr->plen) {
        f->here = true;
        f->here_is_ours = ours;
    }
    return true;
}

/* --- the verbs -------------------------------------------------------------------------------- */

static void fix_scope(struct serve *s, const struct rlink_request *r, struct rlink_reply *a)
{
    struct prefix *scope = r->addr.family == AF_INET ? &s->pool : &s->ula;
    char text[PREFIX_TEXT];

    if (scope->family == 0)
        *scope = r->addr;
    if (prefix_equal(scope, &r->addr))
        return;
    prefix_format(scope, text);
    refuse(a, RLINK_SCOPE_FIXED, "ringd-link gives out addresses of %s only, until it is restarted", text);
}

/* Only a port that may be a cable: what carries other networks is not ours to
 * change. */
static bool allow_port(struct serve *s, const struct rlink_request *r, struct rlink_reply *a)
{
    static const char *const carriers[] = {"bridge", "bond", "team", "vrf", "openvswitch"};
    struct kernel_port port;
    int error = kernel_port(s->kernel, r->ifindex, &port);
    const char *what = NULL;

    if (error) {
        refuse(a, error == -ENODEV ? RLINK_NO_PORT : RLINK_KERNEL, "interface %u: %s", r->ifindex,
               error == -ENODEV ? "there is none; was the cable pulled?" : strerror(-error));
        return false;
    }
    for (size_t i = 0; i < sizeof carriers / sizeof *carriers; i++)
        what = strcmp(port.kind, carriers[i]) == 0 ? "it joins other interfaces" : what;
    what = port.is_loopback    ? "it is the loopback"
           : !port.is_ethernet ? "it is not Ethernet"
           : port.is_enslaved  ? "it belongs to a bridge or a bond; take it out "
                                 "of there to use it as a cable"
                               : what;
    if (what)
        refuse(a, RLINK_NOT_CABLE, "%s is left alone: %s", port.name, what);
    return !what;
}

static bool allow_addr(struct serve *s, const struct rlink_request *r, struct rlink_reply *a)
{
    const struct prefix *scope = scope_of(s, r->addr.family);
    char text[PREFIX_TEXT], in[PREFIX_TEXT];

    prefix_format(&r->addr, text);
    prefix_format(scope, in);
    if (scope->family == 0)
        refuse(a, RLINK_NO_SCOPE, "%s is not set: ringd-link has no setting for the network of the cables",
               text);
    else if (!prefix_contains(scope, &r->addr))
        refuse(a, RLINK_OUT_OF_SCOPE, "%s is outside of %s, the cables' network", text, in);
    return a->code == RLINK_OK;
}

static void tell_kernel(struct rlink_reply *a, const char *what, int error)
{
    if (error == -EACCES && a->to.addr.family == AF_INET6)
        refuse(a, RLINK_KERNEL, "IPv6 is switched off on interface %u: set its disable_ipv6 to 0",
               a->to.ifindex);
    else if (error)
        refuse(a, RLINK_KERNEL, "the kernel did not %s on interface %u: %s", what, a->to.ifindex,
               strerror(-error));
}

/* Looks for the address of a request. Refused: the kernel does not say which there are. */
static struct addr_search search(struct serve *s, const struct rlink_request *r, struct rlink_reply *a,
                                 char text[PREFIX_TEXT])
{
    struct addr_search f = {.serve = s, .ifindex = r->ifindex, .addr = &r->addr};
    const int error = kernel_addrs(s->kernel, r->addr.family, on_found, &f);

    prefix_format(&r->addr, text);
    if (error)
        refuse(a, RLINK_KERNEL, "the kernel did not list its addresses: %s", strerror(-error));
    return f;
}

static void add_addr(struct serve *s, const struct rlink_request *r, struct rlink_reply *a)
{
    char text[PREFIX_TEXT];
    const struct addr_search f = search(s, r, a, text);
    int error;

    if (a->code != RLINK_OK)
        return;
    if (f.foreign_at != 0)
        refuse(a, RLINK_NOT_OURS, "%s is on interface %u already and was not set by ringd-link", text,
               f.foreign_at);
    else if (!f.here && f.ours >= MAX_ADDRESSES)
        refuse(a, RLINK_TOO_MANY, "%s is not set: there are %zu addresses of ours already", text, f.ours);
    if (a->code != RLINK_OK)
        return;
    error = kernel_addr_add(s->kernel, r->ifindex, &r->addr, r->value, f.here);
    tell_kernel(a, "add the address", error);
    if (error == 0)
        remember(s, r->ifindex, &r->addr, r->value);
}

static void del_addr(struct serve *s, const struct rlink_request *r, struct rlink_reply *a)
{
    char text[PREFIX_TEXT];
    const struct addr_search f = search(s, r, a, text);

    if (a->code != RLINK_OK)
        return;
    if (f.here && !f.here_is_ours)
        refuse(a, RLINK_NOT_OURS, "%s on interface %u was not set by ringd-link and stays", text, r->ifindex);
    else if (f.here) /* gone is what was asked for, whoever did it */
        tell_kernel(a, "remove the address", kernel_addr_del(s->kernel, r->ifindex, &r->addr));
}

struct local {
    uint32_t ifindex;
    struct prefix addr; /* family 0: none */
};

static bool on_local(void *arg, const struct kernel_addr *a)
{
    struct local *l = arg;

    if (a->ifindex != l->ifindex || !a->is_tentative ||
        !IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)a->addr.at))
        return true;
    l->addr = a->addr;
    return false;
}

/* A cable that was plugged in is a new interface, whose address the kernel examines for a second or
 * two before anybody may use it. The address follows from the card, and two cards that share it
 * could not talk over one cable in any case. */
static void settle_local(struct serve *s, const struct rlink_request *r, struct rlink_reply *a)
{
    struct local l = {.ifindex = r->ifindex};
    int error = kernel_addrs(s->kernel, AF_INET6, on_local, &l);

    if (error == 0 && l.addr.family)
        error = kernel_addr_settle(s->kernel, r->ifindex, &l.addr);
    tell_kernel(a, "set the link-local address", error);
}

/* --- clients ---------------------------------------------------------------------------------- */

static void drop(struct client *c)
{
    event_free(c->event);
    close(c->fd);
    *c = (struct client){0};
}

static bool send_reply(int fd, const struct rlink_reply *a)
{
    uint8_t out[RLINK_REPLY];

    rlink_reply_encode(a, out);
    return send(fd, out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof out;
}

struct listing_reply {
    struct client *client;
    struct rlink_reply reply;
    bool sent;
};

static bool on_listed(void *arg, const struct kernel_addr *a)
{
    struct listing_reply *l = arg;

    if (!is_ours(l->client->serve, a))
        return true;
    l->reply.to.ifindex = a->ifindex;
    l->reply.to.addr = a->addr;
    l->reply.to.value = a->left_s;
    l->reply.more = true;
    l->sent = send_reply(l->client->fd, &l->reply);
    return l->sent;
}

static bool list(struct client *c, const struct rlink_request *r)
{
    struct listing_reply l = {.client = c, .reply.to = *r, .sent = true};
    struct rlink_reply last = {.to = *r};
    int error = kernel_addrs(c->serve->kernel, AF_INET6, on_listed, &l);

    if (error == 0 && l.sent)
        error = kernel_addrs(c->serve->kernel, AF_INET, on_listed, &l);
    if (error)
        refuse(&last, RLINK_KERNEL, "the kernel did not list its addresses: %s", strerror(-error));
    return l.sent && send_reply(c->fd, &last);
}

/* False: the client is to be cut. */
static bool answer(struct client *c, const struct rlink_request *r)
{
    struct rlink_reply a = {.to = *r};
    struct serve *s = c->serve;

    switch (r->verb) {
    case RLINK_LIST: return list(c, r);
    case RLINK_SCOPE: fix_scope(s, r, &a); break;
    case RLINK_SET_UP:
        if (allow_port(s, r, &a))
            tell_kernel(&a, "set up the link", kernel_set_up(s->kernel, r->ifindex));
        break;
    case RLINK_LINK_LOCAL:
        if (allow_port(s, r, &a))
            settle_local(s, r, &a);
        break;
    case RLINK_SET_MTU:
        if (allow_port(s, r, &a))
            tell_kernel(&a, "set the MTU", kernel_set_mtu(s->kernel, r->ifindex, r->value));
        break;
    case RLINK_ADDR_ADD:
        if (allow_addr(s, r, &a) && allow_port(s, r, &a))
            add_addr(s, r, &a);
        break;
    case RLINK_ADDR_DEL:
        if (allow_addr(s, r, &a))
            del_addr(s, r, &a);
        break;
    }
    return send_reply(c->fd, &a);
}

static void on_request(evutil_socket_t fd, short what, void *arg)
{
    uint8_t data[RLINK_REQUEST + 1]; /* a packet that is too long must not look
                                        like one that fits */
    ssize_t n = recv(fd, data, sizeof data, MSG_DONTWAIT);
    struct rlink_reply a = {.code = RLINK_BAD_REQUEST};
    struct client *c = arg;
    struct rlink_request r;
    const char *wrong;

    (void)what;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        drop(c);
    } else if (rlink_request_decode(data, (size_t)n, &r, &wrong) == 0) {
        if (!answer(c, &r))
            drop(c);
    } else {
        refuse(&a, RLINK_BAD_REQUEST, "the request is not understood, for %s", wrong);
        if (!send_reply(fd, &a))
            drop(c);
    }
}

static bool may_ask(const struct serve *s, int fd, struct rlink_reply *a)
{
    struct ucred who;
    socklen_t n = sizeof who;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && (who.uid == s->uid || who.uid == geteuid()))
        return true;
    refuse(a, RLINK_DENIED, "ringd-link works for user %u alone: run ringd as that user or set --uid",
           s->uid);
    return false;
}

static void on_connection(evutil_socket_t listener, short what, void *arg)
{
    struct serve *s = arg;
    struct rlink_reply a = {0};
    struct client *c = NULL;
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)what;
    if (fd < 0)
        return;
    for (size_t i = 0; i < MAX_CLIENTS; i++)
        c = s->client[i].serve ? c : &s->client[i];
    if (!c)
        refuse(&a, RLINK_TOO_MANY, "ringd-link has %d clients already; close one", MAX_CLIENTS);
    if (a.code == RLINK_OK && may_ask(s, fd, &a)) {
        struct event *event = event_new(s->base, fd, EV_READ | EV_PERSIST, on_request, c);

        if (event && event_add(event, NULL) == 0) {
            *c = (struct client){s, event, fd};
            return;
        }
        if (event)
            event_free(event);
        refuse(&a, RLINK_TOO_MANY, "ringd-link has no memory for another client");
    }
    send_reply(fd, &a);
    close(fd);
}

/* --- life ------------------------------------------------------------------------------------- */

/* A socket that nobody answers at is left over from a ringd-link that was
 * killed. */
static int clear_path(const struct sockaddr_un *at)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r = 0;

    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) == 0 || errno == EAGAIN)
        r = -EADDRINUSE;
    else if (errno == ECONNREFUSED && unlink(at->sun_path) < 0)
        r = -errno;
    close(fd);
    return r;
}

static int listen_at(struct serve *s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int r;

    memcpy(at.sun_path, s->path, sizeof at.sun_path);
    r = clear_path(&at);
    if (r < 0)
        return r;
    s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd < 0 || bind(s->fd, (const struct sockaddr *)&at, sizeof at) < 0)
        return -errno;
    /* anyone may knock; whose requests are heard is decided by who they are
     * (may_ask) */
    if (chmod(s->path, 0666) < 0 || listen(s->fd, MAX_CLIENTS) < 0)
        return -errno;
    s->event = event_new(s->base, s->fd, EV_READ | EV_PERSIST, on_connection, s);
    return s->event && event_add(s->event, NULL) == 0 ? 0 : -ENOMEM;
}

int serve_open(struct serve **ret, const struct serve_setup *setup)
{
    struct serve *s;
    int r;

    if (strlen(setup->path) >= sizeof s->path)
        return -ENAMETOOLONG;
    s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->kernel = setup->kernel;
    s->base = setup->base;
    s->fd = -1;
    strcpy(s->path, setup->path);
    s->uid = setup->uid;
    s->ula = setup->ula;
    s->pool = setup->pool;
    r = listen_at(s);
    if (r < 0)
        serve_close(s);
    else
        *ret = s;
    return r;
}

void serve_close(struct serve *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < MAX_CLIENTS; i++)
        if (s->client[i].serve)
            drop(&s->client[i]);
    if (s->event) { /* only then is the path surely ours */
        event_free(s->event);
        unlink(s->path);
    }
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}
