/* SPDX-License-Identifier: MIT
 *
 * Clients that never come to the point: opens that many connections, says a byte of a request's
 * headers over each every tenth of a second, and goes on until the server has ended them all. Says
 * "open N" once all were tried, and "ended N after MS ms" at the end; status 1 if some still stand
 * at the deadline. usage: slow PORT COUNT SECONDS */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/system/lib/now_ms.h"

enum { TURN_MS = 100 };

static size_t room_for(size_t n)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    struct rlimit wanted = {.rlim_cur = n + 16,
                            .rlim_max = limit.rlim_max > n + 16 ? limit.rlim_max : n + 16};
    if (setrlimit(RLIMIT_NOFILE, &wanted)) {
        wanted = (struct rlimit){.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &wanted);
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur - 16 < n ? limit.rlim_cur - 16 : n;
}

/* A byte over every connection that stands; how many do. */
static size_t dribble(struct pollfd *fds, size_t n)
{
    size_t standing = 0;
    char drain[256];
    poll(fds, n, 0);
    for (size_t i = 0; i < n; i++) {
        if (fds[i].fd < 0)
            continue;
        bool over = fds[i].revents & (POLLERR | POLLHUP | POLLNVAL);
        if (!over && (fds[i].revents & POLLIN))
            over = recv(fds[i].fd, drain, sizeof drain, 0) <= 0 && errno != EAGAIN;
        if (!over)
            over = send(fds[i].fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN &&
                   errno != ENOTCONN;
        if (over) {
            close(fds[i].fd);
            fds[i].fd = -1;
        } else {
            standing++;
        }
    }
    return standing;
}

int main(int argc, char **argv)
{
    static const char begin[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
    if (argc != 4)
        return 2;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    size_t n = room_for(strtoul(argv[2], NULL, 10)), standing = n;
    struct pollfd *fds = calloc(n, sizeof *fds);
    int64_t begun = now_ms(), until = begun + 1000 * strtol(argv[3], NULL, 10);
    for (size_t i = 0; fds && i < n; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof at)) {
            close(fd);
            fd = -1;
        }
        if (fd >= 0)
            send(fd, begin, sizeof begin - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        fds[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    printf("open %zu\n", n);
    fflush(stdout);
    while (fds && (standing = dribble(fds, n)) && now_ms() < until)
        poll(NULL, 0, TURN_MS); /* their pace, not a wait */
    printf("ended %zu after %lld ms\n", n - standing, (long long)(now_ms() - begun));
    free(fds);
    return standing != 0;
}
