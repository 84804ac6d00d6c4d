/* SPDX-License-Identifier: MIT
 *
 * Data of a job over the cables there are, as two stages exchange it: what tests/netns/stripe.sh
 * measures with. Owns its sockets until the exchange takes them over; one thread of its own beside
 * those of the lanes.
 *
 *   stripe receive PORT LANES                     takes messages until the lanes are closed
 *   stripe send SECONDS PORT ADDRESS%INTERFACE... a lane over each; prints the Mbit/s that arrived,
 *   of messages alone
 *   stripe step COUNT PORT ADDRESS%INTERFACE...   one message after the other, as steps send them;
 *   prints the ms that one took on average, and
 *                                                 of how many bytes in a hundred each lane carried.
 *                                                 The first messages, with which the rates are
 *                                                 learned, are not counted */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/stage/exchange/exchange.h"
#include "daemon/common/progress.h"
#include "net/clock.h"

enum { AHEAD = 4, DEADLINE_S = 20, LEARN = 8 };
#define MESSAGE ((size_t)2 << 20) /* activations of 512 tokens, 1024 wide */
#define WARM_US UINT64_C(1500000) /* TCP finds the rate of each cable */

static void fail(const char *what)
{
    fprintf(stderr, "stripe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct msg_key key_of(uint32_t i)
{
    return (struct msg_key){.round = i + 1, .kind = 0, .stage = 0, .mb = 0};
}

static void add_lane(struct exchange *x, uint64_t path, int fd, bool dialled)
{
    struct seal one, other;
    uint8_t key[32] = {(uint8_t)path};
    struct err err;
    const int on = 1;
    const struct seal_offer offer = seal_measure();
    const enum seal_suite suite = seal_choose(&offer, &offer);

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    seal_init(&one, key, suite);
    key[1] = 1;
    seal_init(&other, key, suite);
    if (exchange_add(x, 1, path, fd, dialled ? &one : &other, dialled ? &other : &one, &err)) {
        fprintf(stderr, "stripe: %s\n", err.text);
        exit(1);
    }
}

/* --- receiving -------------------------------------------------------------------------------- */

static void on_lost(void *owner, uint32_t rank, uint64_t path, const char *why)
{
    (void)owner, (void)rank, (void)path, (void)why;
    exit(0); /* the sender has measured */
}

static _Noreturn void receive(struct exchange *x, uint16_t port, unsigned lanes)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct pollfd waits = {.fd = listener, .events = POLLIN};

    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, (int)lanes))
        fail("listening");
    puts("listening");
    fflush(stdout);
    exchange_on_lost(x, on_lost, NULL);
    for (unsigned i = 0; i < lanes; i++) {
        if (poll(&waits, 1, DEADLINE_S * 1000) != 1)
            fail("nobody connects");
        add_lane(x, i + 1, accept4(listener, NULL, NULL, SOCK_CLOEXEC), false);
    }
    for (uint32_t posted = 0, taken = 0;; taken++) {
        struct msg_key key = key_of(taken);
        size_t size;

        for (; posted < taken + AHEAD; posted++) {
            struct msg_key next = key_of(posted);
            exchange_post(x, 1, &next, MESSAGE, false);
        }
        while (exchange_ready(x, 1, &key) == 0)
            exchange_wait(x);
        exchange_release(x, exchange_take(x, 1, &key, &size));
    }
}

/* --- sending ---------------------------------------------------------------------------------- */

static int dial(const char *address, const char *port)
{
    struct addrinfo hints = {.ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST},
                    *to;
    int fd;

    if (getaddrinfo(address, port, &hints, &to))
        fail(address);
    fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen))
        fail(address);
    freeaddrinfo(to);
    return fd;
}

static int send_all(struct exchange *x, unsigned seconds)
{
    const struct instant begin = clock_now();
    struct instant first = {0}, now = begin;
    uint32_t sent = 0, at_first = 0;

    while (clock_since_us(now, begin) < WARM_US + seconds * UINT64_C(1000000)) {
        struct msg_key key = key_of(sent);
        void *buffer = exchange_buffer(x, MESSAGE);

        memset(buffer, (int)sent, MESSAGE);
        exchange_send(x, 1, &key, buffer, MESSAGE);
        sent++;
        while (exchange_room(x, 1, AHEAD) == 0)
            exchange_wait(x);
        now = clock_now();
        if (!first.us && clock_since_us(now, begin) >= WARM_US) {
            first = now;
            at_first = sent;
        }
    }
    printf("%.0f\n", (double)(sent - at_first) * MESSAGE * 8 / (double)clock_since_us(now, first));
    fflush(stdout);
    return 0;
}

static int step_all(struct exchange *x, struct progress *progress, size_t lanes, uint32_t count)
{
    struct instant begin = clock_now();
    uint64_t before[AHEAD + 1] = {0}, sum = 0;

    for (uint32_t i = 0; i < LEARN + count; i++) {
        struct msg_key key = key_of(i);
        void *buffer = exchange_buffer(x, MESSAGE);

        if (i == LEARN) {
            begin = clock_now();
            for (size_t l = 0; l < lanes; l++)
                before[l] = progress_lane(progress, l + 1)->tx_bytes;
        }
        memset(buffer, (int)i, MESSAGE);
        exchange_send(x, 1, &key, buffer, MESSAGE);
        while (exchange_room(x, 1, 1) == 0)
            exchange_wait(x);
    }
    printf("%.0f", (double)clock_since_us(clock_now(), begin) / 1000 / count);
    for (size_t l = 0; l < lanes; l++)
        sum += progress_lane(progress, l + 1)->tx_bytes - before[l];
    for (size_t l = 0; l < lanes; l++)
        printf(" %.0f", (double)(progress_lane(progress, l + 1)->tx_bytes - before[l]) * 100 / (double)sum);
    putchar('\n');
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    struct progress *progress = calloc(1, sizeof *progress);
    struct exchange *x;
    struct err err;

    if (!progress || sodium_init() < 0 || exchange_new(&x, progress, &err))
        fail("starting");
    if (argc == 4 && strcmp(argv[1], "receive") == 0)
        receive(x, (uint16_t)atoi(argv[2]), (unsigned)atoi(argv[3]));
    const bool steps = argc > 1 && strcmp(argv[1], "step") == 0;
    if (argc < 5 || argc > 4 + AHEAD || (!steps && strcmp(argv[1], "send") != 0)) {
        fputs("usage: stripe receive PORT LANES | stripe send SECONDS PORT ADDRESS%INTERFACE... | stripe "
              "step COUNT PORT "
              "ADDRESS%INTERFACE...\n",
              stderr);
        return 2;
    }
    for (int i = 4; i < argc; i++)
        add_lane(x, (uint64_t)i - 3, dial(argv[i], argv[3]), true);
    if (steps)
        return step_all(x, progress, (size_t)argc - 4, (uint32_t)atoi(argv[2]));
    return send_all(x, (unsigned)atoi(argv[2]));
}
