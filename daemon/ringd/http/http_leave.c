/* SPDX-License-Identifier: MIT
 *
 * Owns the watch on the connection of a client that waits for its answer. The server does not look
 * at a connection that is parked, so the loop does. Loop thread. */
#include <event2/event.h>
#include <poll.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_call.h"
#include "daemon/ringd/http/http_inside.h"

void http_inside_left(struct http_call *call)
{
    const struct call_leave leave = call->leave;
    leave_stop(call);
    call->leave.left = NULL;
    if (leave.left)
        leave.left(leave.owner);
}

/* It may also have sent its next request, which is for the server to read. */
static void on_news(evutil_socket_t fd, short what, void *arg)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    (void)what;
    if (poll(&p, 1, 0) == 1 && p.revents & (POLLRDHUP | POLLHUP | POLLERR))
        http_inside_left(arg);
}

void leave_stop(struct http_call *call)
{
    if (call->leave.event)
        event_free(call->leave.event);
    call->leave.event = NULL;
}

/* The connection stays open while the call is parked, and the watch ends before it is resumed.
 * Edges alone wake the loop: a reset is no EV_CLOSED, and what lies unread would wake it for
 * ever. */
void http_on_leave(struct http_call *call, void (*left)(void *owner), void *owner)
{
    call->leave = (struct call_leave){.left = left, .owner = owner};
    if (call->inside || !call->http)
        return;
    call->leave.event = event_new(call->http->base, call->connection->fd,
                                  EV_READ | EV_CLOSED | EV_PERSIST | EV_ET, on_news, call);
    if (call->leave.event)
        event_add(call->leave.event, NULL);
}
