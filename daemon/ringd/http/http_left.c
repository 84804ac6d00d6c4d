/* SPDX-License-Identifier: MIT
 *
 * Clients that leave before their answer is made. The server does not look at a connection whose
 * request waits, so the loop does. */
#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_call.h"

/* Something came, or the end: what a client sends ahead is left where it is, and then it is looked
 * at no more. */
static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct http_call *call = arg;
    char byte;
    (void)what;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
        call->left(call->left_owner);
}

void http_on_left(struct http_call *call, struct event_base *base, void (*left)(void *owner), void *owner)
{
    if (!call->connection || call->inside)
        return;
    call->left = left;
    call->left_owner = owner;
    call->left_event = event_new(base, call->connection->fd, EV_READ, on_readable, call);
    if (call->left_event)
        event_add(call->left_event, NULL);
}

void call_forget_left(struct http_call *call)
{
    if (call->left_event)
        event_free(call->left_event);
    call->left_event = NULL;
}
