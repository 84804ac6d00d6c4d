/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/peers_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ringd/systemd.h"

int peers_split_address(const char *text, char *host, size_t size, uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    char *end;
    unsigned long v = colon ? strtoul(colon + 1, &end, 10) : 0;
    if (!colon || !colon[1] || *end || v > 65535)
        return -EINVAL;
    bool brackets = *text == '[' && colon > text + 1 && colon[-1] == ']';
    snprintf(host, size, "%.*s", (int)(colon - text - (brackets ? 2 : 0)), text + (brackets ? 1 : 0));
    *port = (uint16_t)v;
    return 0;
}

static int bind_listener(const char *address, struct err *err)
{
    char host[128], service[8];
    uint16_t port;
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICHOST},
                    *found;
    if (peers_split_address(address, host, sizeof host, &port))
        return err_set(err, -EINVAL, "--listen %s is not ADDR:PORT", address);
    snprintf(service, sizeof service, "%u", port);
    int r = getaddrinfo(*host ? host : NULL, service, &hints, &found);
    if (r)
        return err_set(err, -EINVAL, "--listen %s: %s", address, gai_strerror(r));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    r = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
                bind(fd, found->ai_addr, found->ai_addrlen)
            ? err_set(err, -errno, "--listen %s: %s%s", address, strerror(errno),
                      errno == EADDRINUSE
                          ? "; stop the ringd or other program that has this port, or choose another one"
                          : "")
            : 0;
    freeaddrinfo(found);
    if (r && fd >= 0)
        close(fd);
    return r ? r : fd;
}

uint16_t peers_bound_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len))
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

int peers_listen_socket(const char *address, struct err *err)
{
    int fd = systemd_socket("peer");
    return fd < 0 ? bind_listener(address, err) : fd;
}
