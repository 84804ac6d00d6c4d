/* SPDX-License-Identifier: MIT
 *
 * A link's socket: resolving, connecting, naming, options. Called by link.c on the loop. */
#include "link_impl.h"
#include "link_lookup.h"
#include "base/reason.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void format_address(char *out, size_t size, const struct sockaddr *sa)
{
    char ip[INET6_ADDRSTRLEN] = "?", scope[16] = "";

    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)sa;

        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
        snprintf(out, size, "%s:%u", ip, ntohs(in->sin_port));
    } else if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)sa;

        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof ip);
        if (in6->sin6_scope_id)
            snprintf(scope, sizeof scope, "%%%u", in6->sin6_scope_id);
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) /* an IPv4 caller on the listener of both families */
            snprintf(out, size, "%s:%u", ip + strlen("::ffff:"), ntohs(in6->sin6_port));
        else
            snprintf(out, size, "[%s%s]:%u", ip, scope, ntohs(in6->sin6_port));
    } else {
        snprintf(out, size, "a local socket");
    }
}

static void set_address(struct link *link, const struct sockaddr *sa)
{
    format_address(link->address, sizeof link->address, sa);
    snprintf(link->who, sizeof link->who, "%s", link->address);
}

void link_name_address(struct link *link, int fd)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof ss;

    if (getpeername(fd, (struct sockaddr *)&ss, &len) == 0)
        set_address(link, (struct sockaddr *)&ss);
    else if (link->address[0] == '\0')
        set_address(link, &(struct sockaddr){.sa_family = AF_UNSPEC});
}

/* Wishes, not conditions: a kernel without one of them, or a socket that is not TCP, does as
 * well. */
void link_tune_socket(int fd)
{
    int on = 1, idle_s = 5, interval_s = 2, count = 5;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic"));
}

/* Not for data links: a process that computes for an hour and reads nothing meanwhile is well. */
void link_limit_silence(int fd, uint64_t us)
{
    const unsigned ms = us / 1000 < UINT32_MAX ? (unsigned)(us / 1000) : UINT32_MAX;

    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void tell_unknown(struct link *link, const char *reason)
{
    char text[sizeof link->text];

    snprintf(text, sizeof text,
             "cannot resolve \"%.60s\": %s; give an address, or a name this machine can resolve", link->who,
             reason);
    link_end_later(link, LINK_END_CONNECT, text, 0);
}

static void start_dialing(struct link *link, struct addrinfo *found)
{
    link->next_address = link->addresses = found;
    link_arm(link, LINK_DIAL_US);
    link_try_next(link, 0);
}

/* From the loop; what it leads to is told by the timer, so that nobody frees the link here. */
static void on_found(void *owner, int error, struct addrinfo *found)
{
    struct link *link = owner;

    lookup_free(link->lookup);
    link->lookup = NULL;
    if (error)
        tell_unknown(link, gai_strerror(error));
    else
        start_dialing(link, found);
}

void link_resolve(struct link *link, const char *host, uint16_t port)
{
    struct evutil_addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                    .ai_protocol = IPPROTO_TCP,
                                    .ai_flags = EVUTIL_AI_NUMERICHOST | EVUTIL_AI_NUMERICSERV};
    struct addrinfo *found;
    char service[8];
    int r;

    snprintf(service, sizeof service, "%u", port);
    snprintf(link->address, sizeof link->address, "%.60s:%u", host, port);
    snprintf(link->who, sizeof link->who, "%s", link->address);
    if (!evutil_getaddrinfo(host, service, &hints, &found)) {
        start_dialing(link, found);
        return;
    }
    snprintf(link->who, sizeof link->who, "%s", host);
    link_arm(link, LINK_LOOKUP_US);
    r = lookup_start(&link->lookup, link->base, host, port, on_found, link);
    if (r)
        tell_unknown(link, reason_of(r).text);
}

/* 0 when an attempt is under way. */
static int try_address(struct link *link, const struct evutil_addrinfo *ai)
{
    int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, ai->ai_protocol);
    const int segment = link->max_segment;
    int r;

    if (fd < 0)
        return -errno;
    link_tune_socket(fd);
    if (link->max_segment) /* before the first packet: the other end is told as well */
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    set_address(link, ai->ai_addr);
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0 && errno != EINPROGRESS) {
        r = -errno;
        close(fd);
        return r;
    }
    if (link_attach(link, fd) < 0) {
        close(fd);
        return -ENOMEM;
    }
    /* without an address: libevent waits for the connection already under way */
    return bufferevent_socket_connect(link->bev, NULL, 0) < 0 ? -EIO : 0;
}

void link_try_next(struct link *link, int error)
{
    char text[sizeof link->text];

    link_stop(link);
    while (link->next_address) {
        const struct evutil_addrinfo *ai = link->next_address;
        int r;

        link->next_address = ai->ai_next;
        if ((r = try_address(link, ai)) == 0)
            return;
        error = -r;
        link_stop(link);
    }
    snprintf(
        text, sizeof text, "cannot connect to %s: %s%s", link->who, reason_of(error).text,
        error == EMFILE || error == ENFILE || error == ENOMEM
            ? "" /* our own machine's trouble, not the cable's */
            : "; check the cable, the address, and that ringd is running there and listens on that port");
    link_end_later(link, LINK_END_CONNECT, text, 0);
}
