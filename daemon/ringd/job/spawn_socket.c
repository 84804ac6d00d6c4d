/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/spawn_socket.h"

#include <endian.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/ipc.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/clock.h"

/* What is taken in one window of time: some five thousand events or 80 MB a second. */
enum { WINDOW_US = 100000, WINDOW_EVENTS = 512, WINDOW_BYTES = 8 << 20, READ_BYTES = 1 << 16 };

struct spawn_socket {
    int fd;
    struct event *on_read, *on_room; /* owned; on_room: the socket takes bytes again */
    struct timer *resume;            /* owned: the next window begins */
    struct instant window;           /* its begin */
    size_t events, bytes;            /* taken in it */
    struct evbuffer *in;             /* owned: of unfinished events, and of those of the next window */
    bool is_closed, is_over;         /* by the stage; nothing is passed on any more */
    struct ipc_frame **waiting;      /* owned: messages not taken yet, the first perhaps in part */
    size_t n_waiting, bytes_waiting;
    const struct spawn_socket_ops *ops;
    void *owner;
};

/* --- events ----------------------------------------------------------------------------------- */

void spawn_socket_stop(struct spawn_socket *s)
{
    s->is_over = true;
    event_del(s->on_read);
    timer_stop(s->resume);
}

static void end(struct spawn_socket *s, const char *why)
{
    spawn_socket_stop(s);
    s->ops->broken(s->owner, why);
}

/* Whether a whole event is there, and how long it is. */
static bool next_event(struct spawn_socket *s, size_t *ret)
{
    uint32_t length;
    char why[120];
    if (s->is_over || evbuffer_copyout(s->in, &length, sizeof length) < (ev_ssize_t)sizeof length)
        return false;
    const size_t n = le32toh(length);
    if (n > SPAWN_EVENT_MAX) {
        snprintf(why, sizeof why, "sent a message of %zu bytes, and ringd takes at most %d", n,
                 SPAWN_EVENT_MAX);
        end(s, why);
        return false;
    }
    *ret = n;
    return evbuffer_get_length(s->in) >= n + sizeof length;
}

/* At most so many. */
static void take_events(struct spawn_socket *s, size_t most)
{
    size_t n;
    for (; most > 0 && next_event(s, &n); most--) {
        evbuffer_drain(s->in, sizeof(uint32_t));
        const char *text = (const char *)evbuffer_pullup(s->in, (ev_ssize_t)n);
        json_t *event = n && text ? json_loadb(text, n, 0, NULL) : NULL;
        const char *kind = json_string_value(json_object_get(event, "ev"));
        evbuffer_drain(s->in, n);
        s->events++;
        if (kind)
            s->ops->event(s->owner, kind, event);
        else if (!s->is_over)
            end(s, "sent a message that ringd cannot read: are both of the same version?");
        json_decref(event);
    }
}

/* The events of this window; when it is full, the stage waits for the next. */
static void take_window(struct spawn_socket *s)
{
    take_events(s, s->events < WINDOW_EVENTS ? WINDOW_EVENTS - s->events : 0);
    if (s->is_over || (s->events < WINDOW_EVENTS && s->bytes < WINDOW_BYTES))
        return;
    const uint64_t gone = clock_since_us(clock_now(), s->window);
    event_del(s->on_read);
    timer_set_us(s->resume, gone < WINDOW_US ? WINDOW_US - gone : 0);
}

static void begin_window(struct spawn_socket *s)
{
    s->window = clock_now();
    s->events = s->bytes = 0;
}

static void on_resume(void *owner)
{
    struct spawn_socket *s = owner;
    begin_window(s);
    if (!s->is_closed)
        event_add(s->on_read, NULL);
    take_window(s);
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    struct spawn_socket *s = arg;
    (void)what;
    if (clock_since_us(clock_now(), s->window) >= WINDOW_US)
        begin_window(s);
    const int n = evbuffer_read(s->in, fd, READ_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        s->is_closed = true;
        event_del(s->on_read);
        s->ops->closed(s->owner);
        return;
    }
    s->bytes += (size_t)n;
    take_window(s);
}

/* A process of the stage's own may hold the socket and go on writing: no more than one event is
 * read. */
void spawn_socket_drain(struct spawn_socket *s)
{
    size_t bytes = 0;
    for (int n = 0; !s->is_over && bytes < SPAWN_EVENT_MAX; bytes += (size_t)n)
        if ((n = evbuffer_read(s->in, s->fd, READ_BYTES)) <= 0)
            break;
    take_events(s, SIZE_MAX);
    spawn_socket_stop(s);
}

/* --- messages --------------------------------------------------------------------------------- */

static void push(struct spawn_socket *s)
{
    size_t sent = 0;
    int r = 0;
    while (sent < s->n_waiting && !(r = ipc_frame_push(s->waiting[sent], s->fd)))
        ipc_frame_free(s->waiting[sent++]);
    s->n_waiting -= sent;
    memmove(s->waiting, s->waiting + sent, s->n_waiting * sizeof(struct ipc_frame *));
    s->bytes_waiting = 0;
    for (size_t i = 0; i < s->n_waiting; i++)
        s->bytes_waiting += ipc_frame_left(s->waiting[i]);
    if (r == -EAGAIN)
        event_add(s->on_room, NULL); /* else the stage is gone: its end is seen by spawn.c */
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    push(arg);
}

int spawn_socket_send(struct spawn_socket *s, struct ipc_frame *frame)
{
    if (s->bytes_waiting > IPC_MAX) {
        ipc_frame_free(frame);
        return -EAGAIN;
    }
    s->waiting = xreallocarray(s->waiting, s->n_waiting + 1, sizeof(struct ipc_frame *));
    s->waiting[s->n_waiting++] = frame;
    push(s);
    return 0;
}

/* --- start and end ---------------------------------------------------------------------------- */

struct spawn_socket *spawn_socket_new(struct event_base *base, int sock, const struct spawn_socket_ops *ops,
                                      void *owner)
{
    struct spawn_socket *s = xcalloc(1, sizeof *s);
    evutil_make_socket_nonblocking(sock);
    *s = (struct spawn_socket){.fd = sock, .ops = ops, .owner = owner, .in = evbuffer_new()};
    s->on_read = event_new(base, sock, EV_READ | EV_PERSIST, on_read, s);
    s->on_room = event_new(base, sock, EV_WRITE, on_room, s);
    s->resume = timer_new(base, on_resume, s);
    begin_window(s);
    event_add(s->on_read, NULL);
    return s;
}

void spawn_socket_free(struct spawn_socket *s)
{
    if (!s)
        return;
    event_free(s->on_read);
    event_free(s->on_room);
    timer_free(s->resume);
    for (size_t i = 0; i < s->n_waiting; i++)
        ipc_frame_free(s->waiting[i]);
    free(s->waiting);
    evbuffer_free(s->in);
    close(s->fd);
    free(s);
}
