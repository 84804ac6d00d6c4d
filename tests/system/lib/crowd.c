/* SPDX-License-Identifier: MIT
 *
 * A crowd before the door of a model that is served: COUNT clients at once, from many addresses,
 * of four kinds in turn. The slow send a byte of a request each second; the vanishing ask for a
 * long answer and leave at once; the malformed send what is no request, or half of one; the honest
 * ask, and read what they get. Ends when all have been let go. Says how many got which status, and
 * status 1 if some still stand at the deadline. usage: crowd PORT KEY BUSY_KEY MODEL COUNT SECONDS
 * (the vanishing have BUSY_KEY) */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/system/lib/now_ms.h"

enum { SECOND_MS = 1000, ADDRESSES = 200, STATUSES = 600, EVENTS = 256, SPARE = 32, ROOM = 1024 };
enum kind { SLOW, VANISHING, MALFORMED, HONEST, KINDS };

struct client {
    int fd; /* -1: it is over */
    enum kind kind;
    const char *text; /* what it sends */
    size_t n, sent;
    char head[16]; /* of the answer */
    size_t nhead;
};

struct crowd {
    struct client *all;
    size_t n, standing;
    int epoll;
    unsigned status[STATUSES]; /* 0: none came */
};

static size_t room_for(size_t n)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur < n + SPARE ? (size_t)limit.rlim_cur - SPARE : n;
}

/* --- what they send --------------------------------------------------------------------------- */

static char honest[ROOM], vanishing[ROOM], broken[ROOM];
static const char *const malformed[] = {
    "\x16\x03\x01\x02 this is no HTTP\r\n\r\n",
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n",
    "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ringd-0000\r\nConnection: "
    "close\r\n\r\n",
    broken};

static void write_request(char ret[ROOM], const char *key, const char *body)
{
    snprintf(ret, ROOM,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
             "%s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             key, strlen(body), body);
}

static void write_requests(const char *key, const char *busy_key, const char *model)
{
    char body[256];
    snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"secretword\",\"max_tokens\":2}", model);
    write_request(honest, key, body);
    snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"secretword\",\"max_tokens\":400}", model);
    write_request(vanishing, busy_key, body);
    write_request(broken, busy_key, "{\"model\":[}");
}

/* --- one of them ------------------------------------------------------------------------------ */

static void end(struct crowd *c, struct client *k)
{
    const int status = k->nhead >= 12 ? atoi(k->head + 9) : 0;
    close(k->fd); /* the epoll forgets it */
    k->fd = -1;
    c->standing--;
    c->status[status > 0 && status < STATUSES ? status : 0]++;
}

static bool is_over(ssize_t did)
{
    return did < 0 && errno != EAGAIN && errno != ENOTCONN;
}

/* The next bytes, of the slow one. */
static void send_on(struct crowd *c, struct client *k)
{
    const size_t left = k->n - k->sent, most = k->kind == SLOW && left ? 1 : left;
    const ssize_t did = most ? send(k->fd, k->text + k->sent, most, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (did > 0)
        k->sent += (size_t)did;
    if (is_over(did) || (k->kind == VANISHING && k->sent == k->n))
        end(c, k);
}

static void read_on(struct crowd *c, struct client *k)
{
    char drain[4096];
    const ssize_t got = recv(k->fd, drain, sizeof drain, MSG_DONTWAIT);
    for (ssize_t i = 0; i < got && k->nhead < sizeof k->head - 1; i++)
        k->head[k->nhead++] = drain[i];
    if (got == 0 || is_over(got))
        end(c, k);
}

static void begin(struct crowd *c, struct client *k, size_t at, uint16_t port)
{
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 256 + (uint32_t)(at % ADDRESSES))},
                       to = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = k};
    *k = (struct client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                         .kind = (enum kind)(at % KINDS)};
    k->text = k->kind == VANISHING   ? vanishing
              : k->kind == MALFORMED ? malformed[at / KINDS % (sizeof malformed / sizeof *malformed)]
                                     : honest;
    k->n = strlen(k->text);
    c->standing++;
    if (k->fd < 0 || bind(k->fd, (struct sockaddr *)&from, sizeof from) ||
        (connect(k->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) ||
        epoll_ctl(c->epoll, EPOLL_CTL_ADD, k->fd, &ev))
        end(c, k);
}

/* --- all of them ------------------------------------------------------------------------------ */

static void take_news(struct crowd *c, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    const int n = epoll_wait(c->epoll, events, EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        struct client *k = events[i].data.ptr;
        if (k->fd >= 0 && events[i].events & EPOLLOUT && k->kind != SLOW)
            send_on(c, k);
        while (k->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
            struct pollfd p = {.fd = k->fd, .events = POLLIN};
            if (poll(&p, 1, 0) != 1)
                break;
            read_on(c, k);
        }
    }
}

static void tell(const struct crowd *c)
{
    for (size_t i = 0; i < STATUSES; i++)
        if (c->status[i])
            printf("%zu %u\n", i, c->status[i]);
    printf("standing %zu\n", c->standing);
}

int main(int argc, char **argv)
{
    struct crowd c = {.epoll = epoll_create1(EPOLL_CLOEXEC)};
    if (argc != 7)
        return 2;
    const uint16_t port = (uint16_t)atoi(argv[1]);
    write_requests(argv[2], argv[3], argv[4]);
    c.n = room_for(strtoul(argv[5], NULL, 10));
    c.all = calloc(c.n, sizeof *c.all);
    if (!c.all || c.epoll < 0)
        return 2;
    for (size_t i = 0; i < c.n; i++)
        begin(&c, &c.all[i], i, port);
    const int64_t deadline = now_ms() + atoi(argv[6]) * SECOND_MS;
    for (int64_t tick = now_ms(); c.standing && now_ms() < deadline;) {
        const int64_t left = tick - now_ms();
        take_news(&c, left > 0 ? (int)left : 0);
        if (now_ms() < tick)
            continue;
        for (size_t i = 0; i < c.n; i++)
            if (c.all[i].fd >= 0 && c.all[i].kind == SLOW)
                send_on(&c, &c.all[i]);
        tick = now_ms() + SECOND_MS;
    }
    tell(&c);
    for (size_t i = 0; i < c.n; i++)
        if (c.all[i].fd >= 0)
            close(c.all[i].fd);
    free(c.all);
    close(c.epoll);
    return c.standing ? 1 : 0;
}
