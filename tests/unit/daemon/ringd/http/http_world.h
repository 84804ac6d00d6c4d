/* SPDX-License-Identifier: MIT
 *
 * The HTTP server with real sockets for its tests: a loop in its own thread with a small handler,
 * and a plain client that writes requests byte by byte where that is the point. */
#ifndef TESTS_UNIT_HTTP_WORLD_H
#define TESTS_UNIT_HTTP_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_server.h"
#include "daemon/ringd/http/http_access.h"
#include "daemon/ringd/http/http_feed.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/api/timelines_feed.h"
#include "daemon/ringd/timeline/timelines.h"
#include "net/clock.h"

enum { DEADLINE_MS = 300, PATIENCE_MS = 10000, LARGE = 4 << 20, BODIES = 1 << 20 };

struct fixture {
    char dir[64], path[128];
    struct event_base *base;
    struct mailbox *box;
    struct event_log *events;
    struct http *http;
    struct http_call *held; /* by GET /hold; loop thread */
    pthread_t loop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held;              /* under lock */
    struct http_call *watched; /* of GET /watched; loop thread */
    unsigned left;             /* under lock: clients of it that left */
    struct http_feed *feed;    /* of GET /feed; loop thread, as the next */
    unsigned fed;
};

static inline void echo(struct http_call *call)
{
    size_t n;
    const char *body = http_body(call, &n), *word = http_query(call, "word");
    char text[512];
    snprintf(text, sizeof text, "%s %s word=%s write=%d read=%d n=%zu body=%.20s serve=%d", http_method(call),
             http_path(call), word ? word : "-", http_may_write(call), http_may_read(call), n, body,
             http_may_serve(call));
    http_reply(call, 200, "text/plain", text, strlen(text));
}

static inline void on_left(void *owner)
{
    struct fixture *f = owner;
    http_give_up(f->watched);
    pthread_mutex_lock(&f->lock);
    f->left++;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* Three batches, each once the one before was taken; and no more when the client has left. */
static inline void feed(void *owner)
{
    struct fixture *f = owner;
    char text[64];
    if (!http_feed_is_open(f->feed) || f->fed == 3) {
        http_feed_end(f->feed);
        pthread_mutex_lock(&f->lock);
        f->feed = NULL;
        f->is_held = true;
        pthread_cond_signal(&f->changed);
        pthread_mutex_unlock(&f->lock);
        return;
    }
    snprintf(text, sizeof text, "id: %u\nevent: step\ndata: {}\n\n", ++f->fed);
    http_feed_put(f->feed, text, strlen(text));
}

/* Three steps of 3 MiB wait for a reader, and two of them fit; two more were dropped before. */
static inline void read_timelines(struct http_call *call)
{
    enum { LONG = 3 << 20 };
    struct timelines *t = timelines_new();
    char *text = calloc(1, LONG + 1);
    memset(text, 'x', LONG);
    for (int i = 0; i < 3; i++)
        timelines_add(t, json_pack("{s:i s:s}", "step", i + 1, "text", text));
    free(text);
    timelines_feed(t, call);
    timelines_end(t, 2);
    timelines_free(t);
}

static inline void handle(void *owner, struct http_call *call)
{
    struct fixture *f = owner;
    const char *path = http_path(call);
    if (!strcmp(path, "/events")) {
        const char *job = http_query(call, "job");
        http_stream(call, job ? strtoull(job, NULL, 10) : 0, 0);
    } else if (!strcmp(path, "/hold")) {
        f->held = call;
        pthread_mutex_lock(&f->lock);
        f->is_held = true;
        pthread_cond_signal(&f->changed);
        pthread_mutex_unlock(&f->lock);
    } else if (!strcmp(path, "/watched")) {
        http_on_leave(f->watched = call, on_left, f);
        pthread_mutex_lock(&f->lock);
        f->is_held = true;
        pthread_cond_signal(&f->changed);
        pthread_mutex_unlock(&f->lock);
    } else if (!strcmp(path, "/session")) {
        const char *key = "refused";
        bool ok = http_open_session(call, &key);
        http_reply(call, ok ? 201 : 401, "text/plain", key, strlen(key));
    } else if (!strcmp(path, "/large")) {
        char *text = calloc(1, LARGE);
        http_reply(call, 200, "text/plain", text, LARGE);
        free(text);
    } else if (!strcmp(path, "/feed")) {
        f->feed = http_feed_new(call, feed, f);
        feed(f);
    } else if (!strcmp(path, "/timelines")) {
        read_timelines(call);
    } else if (!strcmp(path, "/silent")) {
        f->feed = http_feed_new(call, feed, f);
    } else if (!strcmp(path, "/missing")) {
        http_fail(call, 404, "not-found", "there is no \"%s\"", path);
    } else {
        echo(call);
    }
}

static inline void *run_loop(void *arg)
{
    struct fixture *f = arg;
    event_base_loop(f->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

/* Only the test of slow clients is in a hurry: elsewhere a busy machine may take its time. */
static inline int set_up_with(void **state, unsigned deadline_ms, size_t bodies_max)
{
    static const char *const origins[] = {"https://chat.example"};
    struct fixture *f = calloc(1, sizeof *f);
    struct err err;
    char keys[160];
    strcpy(f->dir, "/tmp/ringd-http-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/sock", f->dir);
    snprintf(keys, sizeof keys, "%s/keys", f->dir);
    f->base = event_base_new();
    f->events = event_log_new(64, SIZE_MAX);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    assert_int_equal(mailbox_new(&f->box, f->base), 0);
    struct http_setup setup = {.base = f->base,
                               .mailbox = f->box,
                               .events = f->events,
                               .unix_path = f->path,
                               .tcp_listen = "127.0.0.1:0",
                               .token = "sesame",
                               .keys_path = keys,
                               .origins = origins,
                               .norigins = 1,
                               .handle = handle,
                               .owner = f,
                               .deadline_ms = deadline_ms,
                               .bodies_max = bodies_max};
    if (http_start(&f->http, &setup, &err))
        fail_msg("%s", err.text);
    pthread_create(&f->loop, NULL, run_loop, f);
    *state = f;
    return 0;
}

static inline int set_up(void **state)
{
    return set_up_with(state, 0, 0);
}

static inline int set_up_hasty(void **state)
{
    return set_up_with(state, DEADLINE_MS, 0);
}

static inline int set_up_tight(void **state)
{
    return set_up_with(state, 0, BODIES);
}

static inline void stop_http(void *arg)
{
    struct fixture *f = arg;
    http_stop(f->http);
    f->http = NULL;
    event_base_loopbreak(f->base);
}

static inline void stop(struct fixture *f)
{
    if (!f->http)
        return;
    mailbox_post(f->box, stop_http, f);
    pthread_join(f->loop, NULL);
}

static inline int tear_down(void **state)
{
    struct fixture *f = *state;
    stop(f);
    mailbox_free(f->box);
    event_log_free(f->events);
    event_base_free(f->base);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    assert_int_equal(access(f->path, F_OK), -1);
    snprintf(f->path, sizeof f->path, "%s/keys", f->dir);
    unlink(f->path);
    rmdir(f->dir);
    free(f);
    return 0;
}

/* --- a client --- */

static inline int dial_tcp(const struct fixture *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(http_port(f->http)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static inline int dial_unix(const struct fixture *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(a.sun_path, f->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* The server may close before all is written: that is for the reader to find out. */
static inline void say(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t wrote = send(fd, text, n, MSG_NOSIGNAL);
        if (wrote <= 0)
            return;
        text += wrote;
        n -= (size_t)wrote;
    }
}

/* Reads on until `until` has come (NULL: until the end). False: it ended, or nothing came in
 * time. */
static inline bool hear(int fd, char *buf, size_t size, const char *until)
{
    size_t n = strlen(buf);
    while (!until || !strstr(buf, until)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MS) != 1)
            fail_msg("nothing came for %d ms after: %s", PATIENCE_MS, buf);
        ssize_t got = read(fd, buf + n, size - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        buf[n] = '\0';
    }
    return true;
}

/* One request on a connection of its own; the whole answer, headers included. */
static const char *ask(int fd, const char *request, char *buf, size_t size)
{
    buf[0] = '\0';
    say(fd, request, strlen(request));
    hear(fd, buf, size, NULL);
    close(fd);
    return buf;
}

static inline void expect(int fd, const char *request, const char *status, const char *part)
{
    char buf[4096];
    ask(fd, request, buf, sizeof buf);
    if (strncmp(buf, "HTTP/1.1 ", 9) != 0 || strncmp(buf + 9, status, strlen(status)) != 0 ||
        !strstr(buf, part))
        fail_msg("asked: %s\nwanted: %s … %s\ngot: %s", request, status, part, buf);
}

#define HOST "Host: localhost\r\nConnection: close\r\n"

#endif
