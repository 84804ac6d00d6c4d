/* SPDX-License-Identifier: MIT
 *
 * What comes over the socket between ringd and a stage, in pieces of any size: as the daemon reads
 * it from a stage that was taken over, and as a stage reads it. A message is passed on whole or not
 * at all, and nothing after the first that is nonsense. Input: u8 length of the first piece ‖ bytes
 * as they lie on the socket. */
#include "tests/fuzz/lib/fuzz.h"

#include <event2/event.h>
#include <jansson.h>
#include <sys/socket.h>

#include "daemon/common/ipc.h"
#include "daemon/ringd/job/spawn_socket.h"

enum { MOST = 32768 }; /* what a socket takes at once, with room to spare */

struct seen {
    size_t events, bytes;
    bool is_broken, is_closed;
};

static void on_event(void *owner, const char *kind, json_t *event)
{
    struct seen *seen = owner;
    expect(!seen->is_broken && json_is_object(event));
    expect(!strcmp(kind, json_string_value(json_object_get(event, "ev"))));
    seen->bytes += strlen("{\"ev\":\"\"}") + strlen(kind) + 4; /* no fewer */
    seen->events++;
}

static void on_broken(void *owner, const char *why)
{
    struct seen *seen = owner;
    expect(!seen->is_broken && *why);
    seen->is_broken = true;
}

static void on_closed(void *owner)
{
    ((struct seen *)owner)->is_closed = true;
}

static void put(int sock, const uint8_t *data, size_t n)
{
    expect(n == 0 || send(sock, data, n, MSG_NOSIGNAL) == (ssize_t)n);
}

static void as_daemon(const uint8_t *data, size_t n, size_t first)
{
    static struct event_base *base;
    static const struct spawn_socket_ops ops = {on_event, on_broken, on_closed};
    struct seen seen = {0};
    int fds[2];
    base = base ? base : event_base_new();
    expect(base && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    struct spawn_socket *s = spawn_socket_new(base, fds[0], &ops, &seen);
    put(fds[1], data, first);
    event_base_loop(base, EVLOOP_NONBLOCK);
    put(fds[1], data + first, n - first);
    close(fds[1]);
    event_base_loop(base, EVLOOP_NONBLOCK);
    spawn_socket_drain(s);
    expect(seen.bytes <= n);
    spawn_socket_free(s);
}

static void as_stage(const uint8_t *data, size_t n)
{
    int fds[2], r = 0;
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    put(fds[1], data, n);
    close(fds[1]);
    while (r >= 0) {
        struct ipc_lane lane;
        json_t *message = NULL;
        int fd = -1;
        r = ipc_receive(fds[0], &message, &lane, &fd);
        expect(fd == -1 && (r == 0) == (message != NULL));
        json_decref(message);
    }
    expect(r == -EPIPE || r == -EBADMSG || r == -ECONNRESET);
    close(fds[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1 || n > MOST)
        return 0;
    const size_t first = data[0] < n ? data[0] : n - 1;
    as_daemon(data + 1, n - 1, first);
    as_stage(data + 1, n - 1);
    return 0;
}
