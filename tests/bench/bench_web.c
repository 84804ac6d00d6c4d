/* SPDX-License-Identifier: MIT
 *
 * What open dashboards do to a daemon: many streams of events held open and read, and so many
 * requests a second for its status, over its Unix socket. bench_web.sh runs it beside a job. Says
 * what it got, in one line for the script to read: "streams EVENTS requests
 * SECONDS-OF-THE-SLOWEST". usage: bench_web SOCKET STREAMS RATE SECONDS */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS_MAX = 1000, ANSWER_MS = 10000 };

struct load {
    struct sockaddr_un at;
    struct pollfd streams[STREAMS_MAX];
    size_t nstreams, events, requests;
    double slowest;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_web: %s: %s\n", what,
            errno ? strerror(errno) : "the daemon closed the connection");
    exit(1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int ask(const struct load *l, const char *path)
{
    char request[200];
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&l->at, sizeof l->at))
        fail("connecting");
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    if (send(fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        fail("asking");
    return fd;
}

/* Until the daemon has something for that connection. */
static void await(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    errno = ETIMEDOUT;
    if (poll(&p, 1, ANSWER_MS) != 1)
        fail("waiting for an answer");
    errno = 0;
}

static void open_streams(struct load *l, size_t n)
{
    char buf[4096];
    for (; l->nstreams < n; l->nstreams++) {
        int fd = ask(l, "/v1/events?after=now");
        await(fd);
        ssize_t got = read(fd, buf, sizeof buf - 1);
        if (got <= 0)
            fail("opening a stream");
        buf[got] = '\0';
        if (!strstr(buf, " 200 ")) {
            fprintf(stderr, "bench_web: stream %zu was refused: %.60s\n", l->nstreams + 1, buf);
            exit(1);
        }
        l->streams[l->nstreams] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
}

static void read_streams(struct load *l, int ms)
{
    char buf[16384];
    if (poll(l->streams, l->nstreams, ms) <= 0)
        return;
    for (size_t i = 0; i < l->nstreams; i++) {
        if (!l->streams[i].revents)
            continue;
        ssize_t got = read(l->streams[i].fd, buf, sizeof buf - 1);
        if (got <= 0)
            fail("reading a stream");
        buf[got] = '\0';
        for (const char *p = buf; (p = strstr(p, "\nevent: ")); p++)
            l->events++;
    }
}

static void request(struct load *l)
{
    char buf[16384];
    double begun = seconds();
    int fd = ask(l, "/v1/status");
    ssize_t got, all = 0;
    do {
        await(fd);
        got = read(fd, buf, sizeof buf);
        all += got > 0 ? got : 0;
    } while (got > 0);
    if (all < 200)
        fail("the answer is too short");
    close(fd);
    l->requests++;
    if (seconds() - begun > l->slowest)
        l->slowest = seconds() - begun;
}

int main(int argc, char **argv)
{
    static struct load l = {.at.sun_family = AF_UNIX};
    if (argc != 5 || strlen(argv[1]) >= sizeof l.at.sun_path || strtoul(argv[2], NULL, 10) > STREAMS_MAX ||
        strtod(argv[3], NULL) <= 0) {
        fprintf(stderr, "usage: bench_web SOCKET STREAMS RATE SECONDS\n");
        return 2;
    }
    strcpy(l.at.sun_path, argv[1]);
    open_streams(&l, strtoul(argv[2], NULL, 10));
    double every = 1 / strtod(argv[3], NULL), begun = seconds(), end = begun + strtod(argv[4], NULL);
    for (double due = begun; due < end; due += every) {
        double now = seconds();
        for (; now < due; now = seconds())
            read_streams(&l, (int)((due - now) * 1000) + 1);
        request(&l);
    }
    printf("%zu %zu %zu %.4f\n", l.nstreams, l.events, l.requests, l.slowest);
    return 0;
}
