/* SPDX-License-Identifier: MIT
 *
 * A TCP connection over 127.0.0.1, for benches of what goes over it. */
#ifndef TESTS_BENCH_LOOPBACK_H
#define TESTS_BENCH_LOOPBACK_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Both of its ends, which the caller closes. */
static inline void loopback_connect(int fd[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || fd[0] < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &len) || connect(fd[0], (struct sockaddr *)&at, len) ||
        (fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0) {
        fprintf(stderr, "bench: connecting over 127.0.0.1: %s\n", strerror(errno));
        exit(1);
    }
    for (int i = 0; i < 2; i++)
        setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

#endif
