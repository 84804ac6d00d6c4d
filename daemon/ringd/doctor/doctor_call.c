/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/doctor/doctor_call.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ringd/peer/half_open.h"
#include "daemon/common/xalloc.h"

enum { MOST_CALLS = 64 };

struct call {
    struct doctor_calls *c; /* borrowed: owner */
    char port[IF_NAMESIZE], address[INET6_ADDRSTRLEN];
    int fd;              /* owned */
    struct event *event; /* owned: an answer */
    const char *result;
};
struct doctor_calls {
    struct event_base *base; /* borrowed */
    struct call at[MOST_CALLS];
    size_t n, waiting;
    void (*answered)(void *owner);
    void *owner;
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Without a goodbye: the other end is not to wait for a handshake. */
static void hang_up(struct call *call)
{
    setsockopt(call->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(call->fd);
    call->fd = -1;
}

static void on_answer(evutil_socket_t fd, short what, void *arg)
{
    struct call *call = arg;
    struct doctor_calls *c = call->c;
    int error = 0;
    socklen_t n = sizeof error;
    (void)what;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    call->result = error ? "refused" : "open";
    hang_up(call);
    if (!--c->waiting)
        c->answered(c->owner);
}

static void dial(struct doctor_calls *c, const char *port, const json_t *heard)
{
    struct call *call = &c->at[c->n];
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_scope_id = if_nametoindex(port)};
    to.sin6_port = htons((uint16_t)json_integer_value(json_object_get(heard, "tcp_port")));
    *call = (struct call){.c = c, .result = "silent"};
    snprintf(call->port, sizeof call->port, "%s", port);
    snprintf(call->address, sizeof call->address, "%s", text_of(heard, "address"));
    if (!to.sin6_scope_id || inet_pton(AF_INET6, call->address, &to.sin6_addr) != 1)
        return;
    call->fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (call->fd < 0)
        return;
    c->n++;
    if (connect(call->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) {
        call->result = "refused";
        hang_up(call);
        return;
    }
    call->event = event_new(c->base, call->fd, EV_WRITE, on_answer, call);
    event_add(call->event, NULL);
    c->waiting++;
}

static bool is_two_way(const json_t *heard)
{
    return !strcmp(text_of(heard, "state"), "two-way");
}

struct doctor_calls *doctor_calls_start(struct event_base *base, const json_t *ports,
                                        void (*answered)(void *owner), void *owner)
{
    struct doctor_calls *c = xcalloc(1, sizeof *c);
    size_t i, k;
    json_t *port, *heard;
    *c = (struct doctor_calls){.base = base, .answered = answered, .owner = owner};
    json_array_foreach (ports, i, port) {
        json_array_foreach (json_object_get(port, "heard"), k, heard) {
            if (is_two_way(heard) && c->n < MOST_CALLS)
                dial(c, text_of(port, "name"), heard);
        }
    }
    if (c->waiting)
        return c;
    doctor_calls_free(c);
    return NULL;
}

static const struct call *call_of(const struct doctor_calls *c, const char *port, const char *address)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->at[i].port, port) && !strcmp(c->at[i].address, address))
            return &c->at[i];
    return NULL;
}

void doctor_calls_tell(const struct doctor_calls *c, json_t *ports, uint16_t own_port)
{
    size_t i, k;
    json_t *port, *heard;
    json_array_foreach (ports, i, port) {
        json_array_foreach (json_object_get(port, "heard"), k, heard) {
            const char *address = text_of(heard, "address");
            const struct call *call = c ? call_of(c, text_of(port, "name"), address) : NULL;
            if (!call)
                continue;
            json_object_set_new(heard, "tcp", json_string(call->result));
            json_object_set_new(heard, "half_open", json_boolean(half_open_from("", address, own_port)));
        }
    }
}

void doctor_calls_free(struct doctor_calls *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++) {
        if (c->at[i].event)
            event_free(c->at[i].event);
        if (c->at[i].fd >= 0)
            close(c->at[i].fd);
    }
    free(c);
}
