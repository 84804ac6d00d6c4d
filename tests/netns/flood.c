/* SPDX-License-Identifier: MIT
 *
 * What an enemy on the same switch can send, as fast as the machine can: for
 * tests/netns/hostile.sh and floods.sh. Owns its sockets; one thread. Needs root for raw frames.
 *
 *   flood record INTERFACE SECONDS FILE           beacons, and first messages of handshakes, that
 *   pass there
 *   flood beacons KIND INTERFACE SECONDS [FILE]   garbage, truncated, oversized, forged, question;
 *   replay, repeated (the same, from a hardware address of its own: the switch goes on to send its
 *   author what is for him) and spoofed need what was recorded
 *   flood shakes KIND ADDRESS%INTERFACE SECONDS [FILE]   garbage, truncated, oversized, silent;
 *   replay needs what was recorded
 *   flood http KIND ADDRESS%INTERFACE SECONDS     bodies without a token; unfinished requests
 *
 * The last three print how many datagrams or connections they have made. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/if_ether.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/clock.h"

enum {
    PORT = 17464,
    HTTP_PORT = 8473,
    FRAME_MAX = 1500,
    POOL = 256, /* frames made beforehand */
    HEADS = sizeof(struct ether_header) + sizeof(struct ip6_hdr) + sizeof(struct udphdr),
    TCP_HEAD = sizeof(struct ether_header) + sizeof(struct ip6_hdr),
    OPENING = 55, /* bytes of a handshake's first message with its length in front */
    CALLS = 256,  /* at a time */
};

static const uint8_t own_address[ETH_ALEN] = {0x02, 0x66, 0x6c, 0x6f, 0x6f, 0x64};

struct frame {
    size_t n;
    uint8_t data[FRAME_MAX];
};
struct pool {
    size_t n;
    struct frame frame[POOL];
};

static void fail(const char *what)
{
    fprintf(stderr, "flood: %s: %s\n", what, strerror(errno));
    exit(1);
}

static bool goes_on(struct instant begin, const char *seconds)
{
    return clock_since_us(clock_now(), begin) < (uint64_t)atoi(seconds) * 1000000;
}

/* --- what passes by --------------------------------------------------------------------------- */

/* Of all protocols: a switch takes what it forwards before those who wait for one. */
static int raw_socket(const char *interface)
{
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(interface)};

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at))
        fail(interface);
    return fd;
}

/* The opening of a handshake in this frame; NULL. */
static const uint8_t *find_opening(const struct frame *f)
{
    const uint8_t *tcp = f->data + TCP_HEAD;
    size_t head;

    if (f->n < TCP_HEAD + 20 || f->data[20] != IPPROTO_TCP || (tcp[2] << 8 | tcp[3]) != PORT)
        return NULL;
    head = (size_t)(tcp[12] >> 4) * 4;
    if (f->n < TCP_HEAD + head + OPENING || tcp[head] != OPENING - 2 || tcp[head + 1] != 0)
        return NULL;
    return f->n == TCP_HEAD + head + OPENING ? tcp + head : NULL;
}

static bool is_beacon(const struct frame *f)
{
    return f->n > HEADS + 4 && f->data[20] == IPPROTO_UDP && memcmp(f->data + HEADS, "RNGB", 4) == 0;
}

static int record(const char *interface, const char *seconds, const char *path)
{
    FILE *file = fopen(path, "w");
    const int fd = raw_socket(interface);
    const struct instant begin = clock_now();
    struct pollfd waits = {.fd = fd, .events = POLLIN};
    struct frame f;

    if (!file)
        fail(path);
    while (goes_on(begin, seconds)) {
        if (poll(&waits, 1, 100) != 1)
            continue;
        f.n = (size_t)recv(fd, f.data, sizeof f.data, 0);
        if (f.n <= sizeof f.data && (is_beacon(&f) || find_opening(&f)))
            fwrite(&f, sizeof f, 1, file);
    }
    fclose(file);
    return 0;
}

static void load(struct pool *pool, const char *path, bool openings)
{
    FILE *file = path ? fopen(path, "r") : NULL;

    if (!file)
        fail(path ? path : "no recording is named");
    while (pool->n < POOL && fread(&pool->frame[pool->n], sizeof(struct frame), 1, file) == 1) {
        const struct frame *f = &pool->frame[pool->n];
        pool->n += openings ? find_opening(f) != NULL : is_beacon(f);
    }
    fclose(file);
    if (pool->n == 0)
        fail("nothing of the kind was recorded");
}

/* --- beacons ---------------------------------------------------------------------------------- */

static uint16_t checksum(const uint8_t *ip, const uint8_t *udp, size_t n)
{
    uint32_t sum = IPPROTO_UDP + (uint32_t)n;

    for (size_t i = 8; i < 40; i += 2)
        sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
    for (size_t i = 0; i < n; i += 2)
        sum += (uint32_t)(udp[i] << 8 | (i + 1 < n ? udp[i + 1] : 0));
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)(sum == 0xffff ? sum : ~sum);
}

/* A datagram to the beacons' group. `from`: 16 bytes. */
static void wrap(struct frame *f, const uint8_t *from, const uint8_t *body, size_t n)
{
    static const uint8_t ether[] = {0x33, 0x33, 0x69, 0x6e, 0x67, 0x00, 0, 0, 0, 0, 0, 0, 0x86, 0xdd};
    static const uint8_t group[16] = {0xff, 0x02, [12] = 0x72, 0x69, 0x6e, 0x67};
    uint8_t *ip = f->data + sizeof ether, *udp = ip + sizeof(struct ip6_hdr);
    const uint16_t length = htons((uint16_t)(n + 8)), port = htons(PORT);
    uint16_t sum = 0;

    memcpy(f->data, ether, sizeof ether);
    memcpy(f->data + 2, group + 12, 4);
    memcpy(f->data + ETH_ALEN, own_address, sizeof own_address);
    memcpy(ip, (uint8_t[8]){0x60, 0, 0, 0, 0, 0, IPPROTO_UDP, 255}, 8);
    memcpy(ip + 4, &length, 2);
    memcpy(ip + 8, from, 16);
    memcpy(ip + 24, group, 16);
    memcpy(udp, &port, 2);
    memcpy(udp + 2, &port, 2);
    memcpy(udp + 4, &length, 2);
    memcpy(udp + 6, &sum, 2);
    memcpy(udp + 8, body, n);
    sum = htons(checksum(ip, udp, n + 8));
    memcpy(udp + 6, &sum, 2);
    f->n = HEADS + n;
}

static void make(struct pool *pool, const char *kind, const uint8_t *spoofed)
{
    uint8_t body[FRAME_MAX - HEADS], from[16] = {0xfe, 0x80};

    for (pool->n = 0; pool->n < POOL; pool->n++) {
        size_t n = 300;

        if (getrandom(body, 256, 0) < 0 || getrandom(from + 8, 8, 0) < 0)
            fail("random bytes");
        if (strcmp(kind, "garbage") != 0)
            memcpy(body, (uint8_t[8]){'R', 'N', 'G', 'B', 1, 1, 1, 0}, 8);
        if (strcmp(kind, "truncated") == 0)
            n = pool->n % 47;
        else if (strcmp(kind, "oversized") == 0)
            n = 1400;
        else if (strcmp(kind, "question") == 0)
            body[5] = 3, body[6] = 0, n = 24;
        wrap(&pool->frame[pool->n], spoofed ? spoofed : from, body, n);
    }
}

static int beacons(const char *kind, const char *interface, const char *seconds, const char *path)
{
    static struct pool pool;
    static struct mmsghdr out[POOL];
    static struct iovec iov[POOL];
    const int fd = raw_socket(interface), on = 1;
    uint64_t sent = 0;
    uint8_t spoofed[16];

    const bool repeats = strcmp(kind, "replay") == 0 || strcmp(kind, "repeated") == 0;

    if (repeats || strcmp(kind, "spoofed") == 0)
        load(&pool, path, false);
    for (size_t i = 0; strcmp(kind, "repeated") == 0 && i < pool.n; i++)
        memcpy(pool.frame[i].data + ETH_ALEN, own_address, sizeof own_address);
    if (strcmp(kind, "spoofed") == 0)
        memcpy(spoofed, pool.frame[0].data + sizeof(struct ether_header) + 8, sizeof spoofed);
    if (!repeats)
        make(&pool, kind, strcmp(kind, "spoofed") == 0 ? spoofed : NULL);
    for (size_t i = 0; i < POOL; i++) {
        iov[i] = (struct iovec){pool.frame[i % pool.n].data, pool.frame[i % pool.n].n};
        out[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
    }
    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on);
    for (const struct instant begin = clock_now(); goes_on(begin, seconds);) {
        const int n = sendmmsg(fd, out, POOL, 0);
        sent += n > 0 ? (uint64_t)n : 0;
    }
    printf("%llu\n", (unsigned long long)sent);
    return 0;
}

/* --- calls ------------------------------------------------------------------------------------ */

static const char body_head[] =
    "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n",
                  unfinished[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-Much: ";

static size_t first_words(uint8_t *out, const char *kind, const struct pool *pool, uint64_t i)
{
    const char *http = strcmp(kind, "bodies") == 0       ? body_head
                       : strcmp(kind, "unfinished") == 0 ? unfinished
                                                         : NULL;
    if (strcmp(kind, "silent") == 0)
        return 0;
    if (http) {
        memset(out, 'x', FRAME_MAX);
        memcpy(out, http, strlen(http));
        return FRAME_MAX;
    }
    if (strcmp(kind, "replay") == 0) {
        memcpy(out, find_opening(&pool->frame[i % pool->n]), OPENING);
        return OPENING;
    }
    if (getrandom(out, 256, 0) < 0)
        fail("random bytes");
    out[0] = strcmp(kind, "oversized") == 0 ? 0xff : OPENING - 2;
    out[1] = strcmp(kind, "oversized") == 0 ? 0xff : 0;
    return strcmp(kind, "truncated") == 0   ? 1 + i % (OPENING - 1)
           : strcmp(kind, "oversized") == 0 ? FRAME_MAX
                                            : OPENING;
}

struct call {
    int fd;
    bool connected;
};

/* No port stays taken. */
static void hang_up(struct call *c)
{
    const struct linger at_once = {1, 0};

    if (c->fd < 0)
        return;
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(c->fd);
    c->fd = -1;
}

static void call(struct call *c, const struct addrinfo *to)
{
    c->fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    c->connected = false;
    if (c->fd < 0 || (connect(c->fd, to->ai_addr, to->ai_addrlen) && errno != EINPROGRESS))
        fail("a call");
}

/* As many calls at a time as there are places: each says its words, and waits until it is hung up
 * on or all the others have had their turn. */
static int calls_of(const char *kind, const char *address, int port, const char *seconds, const char *path)
{
    static struct pool pool;
    static struct call calls[CALLS];
    static struct pollfd polls[CALLS];
    struct addrinfo hints = {.ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST},
                    *to;
    uint8_t words[FRAME_MAX] = {0}, more[1 << 16];
    uint64_t made = 0, oldest = 0;
    char service[8];
    const bool goes_on_talking = port == HTTP_PORT;

    memset(more, 'x', sizeof more);
    snprintf(service, sizeof service, "%d", port);

    if (strcmp(kind, "replay") == 0)
        load(&pool, path, true);
    if (getaddrinfo(address, service, &hints, &to))
        fail(address);
    for (size_t i = 0; i < CALLS; i++)
        calls[i].fd = -1;
    for (const struct instant begin = clock_now(); goes_on(begin, seconds);) {
        for (size_t i = 0; i < CALLS; i++) {
            if (calls[i].fd < 0)
                call(&calls[i], to);
            polls[i] = (struct pollfd){calls[i].fd, calls[i].connected ? POLLIN : POLLOUT, 0};
            if (goes_on_talking)
                polls[i].events |= POLLOUT;
        }
        if (poll(polls, CALLS, 20) == 0)
            for (size_t i = 0; i < CALLS / 8; i++)
                hang_up(&calls[oldest++ % CALLS]);
        for (size_t i = 0; i < CALLS; i++) {
            if (polls[i].revents & (POLLERR | POLLHUP | POLLIN)) {
                hang_up(&calls[i]);
            } else if (polls[i].revents & POLLOUT && calls[i].connected) {
                (void)!send(calls[i].fd, more, sizeof more, MSG_NOSIGNAL);
            } else if (polls[i].revents & POLLOUT) {
                calls[i].connected = true;
                (void)!send(calls[i].fd, words, first_words(words, kind, &pool, made++), MSG_NOSIGNAL);
            }
        }
    }
    for (size_t i = 0; i < CALLS; i++)
        hang_up(&calls[i]);
    printf("%llu\n", (unsigned long long)made);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "record") == 0)
        return record(argv[2], argv[3], argv[4]);
    if (argc >= 5 && strcmp(argv[1], "beacons") == 0)
        return beacons(argv[2], argv[3], argv[4], argv[5]);
    if (argc >= 5 && strcmp(argv[1], "shakes") == 0)
        return calls_of(argv[2], argv[3], PORT, argv[4], argv[5]);
    if (argc == 5 && strcmp(argv[1], "http") == 0)
        return calls_of(argv[2], argv[3], HTTP_PORT, argv[4], NULL);
    fputs("usage: flood record|beacons|shakes|http ...; see the head of its source\n", stderr);
    return 2;
}
