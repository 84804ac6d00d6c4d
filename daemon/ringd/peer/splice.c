/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/splice.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

enum splice_limits {
    PIPE_BYTES = 256 << 10,
    BURST = 1 << 20, /* bytes at a time: the loop has other things to do */
    CLOSING_S = 10,  /* from one end's close to giving the other up */
};

struct flow {               /* one direction */
    struct splice *s;       /* borrowed: owner */
    int from, to;           /* borrowed */
    int pipe[2];            /* owned */
    size_t waiting;         /* bytes in the pipe */
    bool ended, done;       /* nothing more comes in; all of it has gone out */
    struct event *in, *out; /* owned; one of them waits: for bytes with the pipe empty, else for room */
};
struct splice {
    int fd[2]; /* owned */
    struct flow flow[2];
    struct timer *closing; /* owned */
    uint64_t bytes;
    void (*on_end)(void *owner);
    void *owner;
};

static bool is_later(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* 1: something moved, 0: nothing can now, −errno: an end broke. */
static int move(struct flow *f)
{
    enum { FLAGS = SPLICE_F_MOVE | SPLICE_F_NONBLOCK };
    bool moved = false;
    if (!f->ended) {
        ssize_t n = splice(f->from, NULL, f->pipe[1], NULL, PIPE_BYTES, FLAGS);
        if (n < 0 && !is_later(n))
            return -errno;
        f->ended = n == 0;
        f->waiting += n > 0 ? (size_t)n : 0;
        moved = n > 0;
    }
    if (f->waiting) {
        ssize_t n = splice(f->pipe[0], NULL, f->to, NULL, f->waiting, FLAGS);
        if (n < 0 && !is_later(n))
            return -errno;
        f->waiting -= n > 0 ? (size_t)n : 0;
        f->s->bytes += n > 0 ? (uint64_t)n : 0;
        moved = moved || n > 0;
    }
    return moved;
}

static void pump(struct flow *f)
{
    struct splice *s = f->s;
    uint64_t until = s->bytes + BURST;
    int r;
    do
        r = move(f);
    while (r > 0 && s->bytes < until);
    if (f->ended && !f->waiting && !f->done) {
        f->done = true;
        shutdown(f->to, SHUT_WR);
        timer_set_ms(s->closing, CLOSING_S * UINT64_C(1000));
    }
    if (r < 0 || (s->flow[0].done && s->flow[1].done)) {
        s->on_end(s->owner);
        return;
    }
    if (f->waiting)
        event_add(f->out, NULL);
    else if (!f->ended)
        event_add(f->in, NULL);
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    pump(arg);
}

static void on_closing(void *owner)
{
    struct splice *s = owner;
    s->on_end(s->owner);
}

static int flow_init(struct flow *f, struct event_base *base)
{
    if (pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK))
        return -errno;
    fcntl(f->pipe[1], F_SETPIPE_SZ, PIPE_BYTES); /* a wish: users have a limit in all */
    f->in = event_new(base, f->from, EV_READ, on_event, f);
    f->out = event_new(base, f->to, EV_WRITE, on_event, f);
    return f->in && f->out && !event_add(f->in, NULL) ? 0 : -ENOMEM;
}

int splice_new(struct splice **ret, struct event_base *base, int a, int b, void (*ended)(void *owner),
               void *owner)
{
    struct splice *s = xcalloc(1, sizeof *s);
    int r = 0;
    *s = (struct splice){.fd = {a, b}, .on_end = ended, .owner = owner};
    s->closing = timer_new(base, on_closing, s);
    for (size_t i = 0; i < 2; i++) {
        s->flow[i] = (struct flow){.s = s, .from = s->fd[i], .to = s->fd[1 - i], .pipe = {-1, -1}};
        r = r || evutil_make_socket_nonblocking(s->fd[i]) ? -EIO : flow_init(&s->flow[i], base);
    }
    if (r || !s->closing) {
        splice_free(s);
        return r ? r : -ENOMEM;
    }
    *ret = s;
    return 0;
}

void splice_free(struct splice *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < 2; i++) {
        struct flow *f = &s->flow[i];
        if (f->in)
            event_free(f->in);
        if (f->out)
            event_free(f->out);
        if (f->s && f->pipe[0] >= 0) {
            close(f->pipe[0]);
            close(f->pipe[1]);
        }
    }
    timer_free(s->closing);
    for (size_t i = 0; i < 2; i++)
        close(s->fd[i]);
    free(s);
}

uint64_t splice_bytes(const struct splice *s)
{
    return s->bytes;
}
