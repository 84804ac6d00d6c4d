/* SPDX-License-Identifier: MIT
 *
 * A hub of models on 127.0.0.1, and a second port to which it sends for weights. Serves the files
 * of DIR/files under any name, and DIR/listing as what it says of the model. Misbehaves as files
 * in DIR say. Once each, and then gone: busy (503), expired (the second port refuses a link), and,
 * with a number of bytes in them, reset and stall (an answer breaks off there, or stands still).
 * For as long as they are there: wrong (a byte of weights is another), long (a file is said to
 * have a byte more), gated (403), rate (so many bytes of weights a second leave, all answers
 * together). Prints the two ports, then a line for each request: hub|cdn METHOD PATH FROM BYTES
 * token|open. usage: hub DIR [PORT PORT] */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 16 << 10, PATH_ROOM = 4096, LATE_NS = 200000000 };

struct asked {
    char method[8], path[2048];
    long long from, to; /* of a range: the first byte, and the one after the last; else 0 */
    bool has_token;
};

static const char *dir;
static int ports[2];
static _Atomic long long *line; /* shared by all processes: when the line is free, in ns */

/* At that port, if it is not 0. */
static int listen_on(int *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)*ret_port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&a, &n))
        exit(1);
    *ret_port = ntohs(a.sin_port);
    return fd;
}

static bool is_there(const char *name)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return !access(path, F_OK);
}

/* The number in it, and it is gone; −1: it was not there. */
static long long once(const char *name)
{
    char path[PATH_ROOM];
    long long n = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    if (!f)
        return -1;
    if (fscanf(f, "%lld", &n) != 1)
        n = 0;
    fclose(f);
    return unlink(path) ? -1 : n;
}

static void say(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) < 0)
        exit(0);
}

/* false: nobody asks any more. */
static bool read_head(int fd, struct asked *ret)
{
    char head[HEAD_MAX];
    size_t n = 0;
    head[0] = '\0';
    while (!strstr(head, "\r\n\r\n")) {
        const ssize_t got = n < sizeof head - 1 ? read(fd, head + n, sizeof head - 1 - n) : 0;
        if (got <= 0)
            return false;
        head[n += (size_t)got] = '\0';
    }
    const char *range = strstr(head, "ange: bytes=");
    *ret = (struct asked){.has_token = strstr(head, "uthorization: Bearer ")};
    if (range && sscanf(range + 12, "%lld-%lld", &ret->from, &ret->to) == 2)
        ret->to++;
    return sscanf(head, "%7s %2047s", ret->method, ret->path) == 2;
}

static void reset(int fd)
{
    const struct linger now = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
    exit(0);
}

/* Until the other end is gone. */
static void stand_still(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    poll(&p, 1, -1);
    exit(0);
}

/* All processes of the hub send so many bytes a second together: each takes the next time at which
 * the line is free. */
static void wait_turn(size_t bytes)
{
    char path[PATH_ROOM];
    long long rate = 0;
    snprintf(path, sizeof path, "%s/rate", dir);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    if (fscanf(f, "%lld", &rate) != 1 || rate <= 0)
        rate = 1;
    fclose(f);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const long long ns = now.tv_sec * 1000000000LL + now.tv_nsec,
                    takes = (long long)bytes * 1000000000LL / rate;
    long long free_at = atomic_load(line), begin; /* a sleep that was too long is made up for */
    do
        begin = free_at > ns - LATE_NS ? free_at : ns - LATE_NS;
    while (!atomic_compare_exchange_weak(line, &free_at, begin + takes));
    const struct timespec until = {(begin + takes) / 1000000000LL, (begin + takes) % 1000000000LL};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static long long send_file(int fd, const struct asked *q, const char *path, bool may_misbehave)
{
    struct stat st;
    char head[512], buf[1 << 14];
    const int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &st)) {
        say(fd, "HTTP/1.1 404 Not Found\r\nX-Error-Code: EntryNotFound\r\nContent-Length: 0\r\n\r\n");
        return 0;
    }
    const long long breaks = may_misbehave ? once("reset") : -1, stalls = may_misbehave ? once("stall") : -1;
    const bool is_wrong = may_misbehave && is_there("wrong"), is_long = may_misbehave && is_there("long");
    const long long size = (long long)st.st_size + is_long,
                    end = q->to && q->to < st.st_size ? q->to : st.st_size;
    if (q->from || q->to)
        snprintf(head, sizeof head,
                 "HTTP/1.1 206 Partial Content\r\nContent-Length: %lld\r\nContent-Range: bytes "
                 "%lld-%lld/%lld\r\n\r\n",
                 end - q->from, q->from, end - 1, size);
    else
        snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %lld\r\n\r\n", size);
    say(fd, head);
    long long sent = 0, left = end - q->from;
    const long long most = breaks >= 0 ? breaks : stalls >= 0 ? stalls : left;
    lseek(file, q->from, SEEK_SET);
    while (sent < most && sent < left && strcmp(q->method, "HEAD") != 0) {
        const long long want = most - sent < (long long)sizeof buf ? most - sent : (long long)sizeof buf;
        if (may_misbehave)
            wait_turn(sizeof buf);
        const ssize_t n = read(file, buf, (size_t)want);
        if (n <= 0)
            break;
        if (is_wrong && !sent && !q->from)
            buf[0] ^= 1;
        if (write(fd, buf, (size_t)n) != n)
            break;
        sent += n;
    }
    return breaks >= 0 ? -1 - sent : stalls >= 0 ? -1 - sent : sent;
}

static void log_request(bool is_cdn, const struct asked *q, long long sent)
{
    printf("%s %s %s %lld %lld %s\n", is_cdn ? "cdn" : "hub", q->method, q->path, q->from, sent,
           q->has_token ? "token" : "open");
    fflush(stdout);
}

static void answer(int fd, bool is_cdn)
{
    struct asked q;
    char path[PATH_ROOM], head[PATH_ROOM];
    if (!read_head(fd, &q))
        return;
    const char *name = strrchr(q.path, '/') + 1;
    long long sent = 0;
    const bool is_stall = is_there("stall");
    snprintf(path, sizeof path, "%s/files/%s", dir, name);
    if (once("busy") >= 0) {
        say(fd, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    } else if (is_there("gated")) {
        say(fd, "HTTP/1.1 403 Forbidden\r\nX-Error-Code: GatedRepo\r\n"
                "X-Error-Message: Access to model test/tiny is restricted\r\nContent-Length: 0\r\n\r\n");
    } else if (is_cdn && once("expired") >= 0) {
        say(fd, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    } else if (!strncmp(q.path, "/api/models/test/tiny/", 22)) {
        snprintf(path, sizeof path, "%s/listing", dir);
        sent = send_file(fd, &q, path, false);
    } else if (!strncmp(q.path, "/api/", 5)) {
        say(fd, "HTTP/1.1 404 Not Found\r\nX-Error-Code: RepoNotFound\r\nX-Error-Message: Repository not "
                "found\r\n"
                "Content-Length: 0\r\n\r\n");
    } else if (!is_cdn && strstr(name, ".safetensors") && !strstr(name, ".json")) {
        snprintf(head, sizeof head,
                 "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/signed/%s\r\nContent-Length: 0\r\n\r\n",
                 ports[1], name);
        say(fd, head);
    } else {
        sent = send_file(fd, &q, path, is_cdn);
    }
    log_request(is_cdn, &q, sent < 0 ? -1 - sent : sent);
    if (sent < 0 && is_stall)
        stand_still(fd);
    if (sent < 0)
        reset(fd);
}

int main(int argc, char **argv)
{
    int listeners[2];
    if (argc != 2 && argc != 4)
        return 2;
    for (int i = 2; i < argc; i++)
        ports[i - 2] = atoi(argv[i]);
    dir = argv[1];
    line = mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (line == MAP_FAILED)
        return 1;
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 2; i++)
        listeners[i] = listen_on(&ports[i]);
    printf("%d %d\n", ports[0], ports[1]);
    fflush(stdout);
    for (;;) {
        struct pollfd p[2] = {{.fd = listeners[0], .events = POLLIN}, {.fd = listeners[1], .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return 1;
        for (int i = 0; i < 2; i++) {
            const int fd = p[i].revents ? accept(listeners[i], NULL, NULL) : -1;
            if (fd >= 0 && !fork()) {
                answer(fd, i == 1);
                exit(0);
            }
            if (fd >= 0)
                close(fd);
        }
    }
}
