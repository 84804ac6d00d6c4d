/* SPDX-License-Identifier: MIT
 *
 * The listener: who is let into a handshake at all. Anybody on a switch can call as fast as his
 * machine is able to; what that costs is bounded before a byte is read. The loop takes a few calls
 * at a time and then sees to everything else; the other end of a known way has an allowance of its
 * own, all the others share one, and who comes on top is hung up on. Loop thread. */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/log.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/peer/peers_impl.h"
#include "daemon/ringd/peer/peers_socket.h"
#include "daemon/ringd/timer.h"
#include "net/base/reason.h"

enum {
    MAX_STRANGERS = 64, /* connections held that are not up */
    STRANGERS_PER_S = 100,
    ACQUAINTANCE_PER_S = 50, /* a job's lanes, dialled again after each cut */
    ACCEPTS = 32,
    PAUSE_US = 5000,
    FULL_S = 1,              /* between two attempts while no file descriptor is left */
    FULL_SAID_US = 60000000, /* between two lines of the log about it */
    BACKLOG = 512,           /* waiting in the kernel: some 80 ms of calls */
};

static bool take(struct allowance *a, unsigned per_second, struct instant now)
{
    const uint64_t even = a->even.us > now.us ? a->even.us : now.us, each = 1000000 / per_second;
    if (even + each > now.us + 1000000)
        return false;
    a->even.us = even + each;
    return true;
}

/* As the ways write their addresses. */
static void write_address(char *out, size_t size, const struct sockaddr *from)
{
    const struct sockaddr_in6 *in6 = (const void *)from;
    char ip[INET6_ADDRSTRLEN] = "";
    *out = 0;
    if (from->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)from)->sin_addr, out, (socklen_t)size);
    } else if (from->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof ip);
        if (in6->sin6_scope_id)
            snprintf(out, size, "%s%%%u", ip, in6->sin6_scope_id);
        else
            snprintf(out, size, "%s", ip + (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) ? strlen("::ffff:") : 0));
    }
}

static bool may_call(struct peers *p, const struct sockaddr *from)
{
    char address[INET6_ADDRSTRLEN + 16];
    struct dial *d;
    write_address(address, sizeof address, from);
    LIST_FOREACH (d, &p->dials, next)
        if (!strcmp(d->host, address))
            return take(&d->calls, ACQUAINTANCE_PER_S, clock_now());
    return take(&p->strangers, STRANGERS_PER_S, clock_now());
}

/* Without a state that the kernel would have to keep for a minute. */
static void hang_up(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(fd);
}

/* Strangers cannot make us hold more than so many connections. The oldest of them goes: a crowd
 * that says nothing does not keep out a neighbour, who is known within milliseconds. */
static void limit_strangers(struct peers *p)
{
    struct session *s, *oldest = NULL;
    size_t n = 0;
    LIST_FOREACH (s, &p->sessions, next)
        if (!s->up && !s->dial) {
            oldest = s; /* new ones are put in front */
            n++;
        }
    if (n < MAX_STRANGERS)
        return;
    peers_end_session(oldest, "");
}

static void let_in(struct peers *p, int fd)
{
    limit_strangers(p);
    struct link_setup setup;
    peers_setup(p, &setup);
    struct session *s = peers_session_new(p, NULL);
    struct link_key keys[LINK_KEYS_MAX];
    setup.owner = s;
    setup.keys = keys;
    setup.seen = &p->seen;
    setup.n_keys = cluster_link_keys(p->s.cluster, keys, LINK_KEYS_MAX);
    setup.n_keys += enrol_link_keys(p->s.enrol, keys + setup.n_keys, LINK_KEYS_MAX - setup.n_keys);
    if (link_accept(&s->link, &setup, fd)) {
        LIST_REMOVE(s, next);
        free(s);
    }
    sodium_memzero(keys, sizeof keys);
}

/* libevent calls this until nobody is waiting any more, and somebody may always be. */
static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *from, int len, void *arg)
{
    struct peers *p = arg;
    (void)len;
    if (++p->accepted == ACCEPTS) {
        evconnlistener_disable(l);
        timer_set_us(p->resume_accept, PAUSE_US);
    }
    if (cluster_state(p->s.cluster) != CLUSTER_MEMBER || !may_call(p, from))
        hang_up(fd);
    else
        let_in(p, fd);
}

/* The listener stays readable: without a pause the loop would spin. */
static void on_accept_error(struct evconnlistener *l, void *arg)
{
    struct peers *p = arg;
    int error = errno;
    if (!p->full.us || clock_since_us(clock_now(), p->full) > FULL_SAID_US) {
        p->full = clock_now();
        log_error("a connection of another node cannot be accepted: %s", reason_of(error).text);
    }
    evconnlistener_disable(l);
    timer_set_ms(p->resume_accept, FULL_S * UINT64_C(1000));
}

static void on_resume(void *owner)
{
    struct peers *p = owner;
    p->accepted = 0;
    evconnlistener_enable(p->listener);
}

int peers_door_open(struct peers *p, struct err *err)
{
    int fd = peers_listen_socket(opts_str(p->s.opts, "listen"), err);
    if (fd < 0)
        return fd;
    evutil_make_socket_nonblocking(fd);
    evutil_make_socket_closeonexec(fd);
    p->port = peers_bound_port(fd);
    p->resume_accept = timer_new(p->s.base, on_resume, p);
    p->listener = evconnlistener_new(p->s.base, on_accept, p, LEV_OPT_CLOSE_ON_FREE, BACKLOG, fd);
    if (p->listener)
        evconnlistener_set_error_cb(p->listener, on_accept_error);
    return p->listener ? 0 : err_set(err, -ENOMEM, "listening for peers: %s", strerror(errno));
}

void peers_door_close(struct peers *p)
{
    if (p->listener)
        evconnlistener_free(p->listener);
    timer_free(p->resume_accept);
}
