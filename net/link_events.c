/* SPDX-License-Identifier: MIT
 *
 * What libevent reports of a link: bytes, the end of the connection, the timer. Each report goes to
 * the file that owns the link's state. Called by libevent, on the loop. */
#include "link_impl.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static bool is_reading(const struct link *link)
{
    if (link->freed || !link->bev)
        return false;
    return link->state == LINK_HANDSHAKE || link->state == LINK_HELLO ||
           (link->state == LINK_UP && link->kind != LINK_DATA);
}

static bool is_enough(struct link *link)
{
    if (link_session_pulls(link))
        return link_session_pull(link);
    return evbuffer_get_length(bufferevent_get_input(link->bev)) >= link->need;
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct link *link = arg;

    link_enter(link);
    (void)bev;
    while (is_reading(link) && is_enough(link)) {
        if (link->state == LINK_HANDSHAKE)
            link_shake_step(link);
        else
            link_session_step(link);
    }
    if (link->state == LINK_DOWN && link->bev) /* lingering: only the end counts */
        evbuffer_drain(bufferevent_get_input(link->bev), SIZE_MAX);
    link_exit(link);
}

static void on_drained(struct bufferevent *bev, void *arg)
{
    struct link *link = arg;

    (void)bev;
    link_enter(link);
    if (link->state == LINK_DOWN)
        shutdown(link->fd, SHUT_WR);
    else
        link_session_try_up(link);
    link_exit(link);
}

/* By the other end's kernel, in order. A connection that was reset looks the same once the error
 * has been told to a write. */
static bool is_closed(const struct link *link)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;

    return !getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &n) && info.tcpi_state == TCP_CLOSE_WAIT;
}

static void on_broken(struct link *link, bool is_at_end)
{
    if (link->state == LINK_DOWN)
        link_down(link, link->end, link->text);
    else if (link->state == LINK_HANDSHAKE && link->dialed && link->kind == LINK_JOIN)
        link_fail(
            link, LINK_END_HANDSHAKE,
            "%s closed the connection during the handshake: it does not know this token. It may belong to "
            "another cluster, or the token was made too long ago; `ringctl invite` makes a new one",
            link->who);
    else if (link->state == LINK_HANDSHAKE && link->dialed)
        link_fail(
            link, LINK_END_HANDSHAKE,
            "%s closed the connection during the handshake: most likely it belongs to another cluster "
            "(its secret is "
            "not this cluster's); if it should belong here, let it join with a token of `ringctl invite`",
            link->who);
    else if (link->state == LINK_HANDSHAKE)
        link_fail(link, LINK_END_HANDSHAKE, "%s closed the connection during the handshake", link->who);
    else if (link->state == LINK_UP && is_at_end && is_closed(link))
        link_fail(link, LINK_END_ENDED, "ringd on %s has ended: the connection closed without a goodbye",
                  link->who);
    else
        link_fail(link, LINK_END_LOST, "the connection to %s was lost: it closed without a goodbye",
                  link->who);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct link *link = arg;
    int error = EVUTIL_SOCKET_ERROR();

    (void)bev;
    link_enter(link);
    if (what & BEV_EVENT_CONNECTED) {
        link_name_address(link, link->fd);
        link_shake_start(link);
    } else if (link->state == LINK_DIALING) {
        link_try_next(link, error ? error : ECONNREFUSED);
    } else if (!(what & BEV_EVENT_WRITING) || link->state == LINK_DOWN) {
        on_broken(link, what & BEV_EVENT_EOF);
    } /* else: the peer no longer takes bytes, but its reason may still be waiting to be read; then comes the
         end */
    link_exit(link);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct link *link = arg;

    (void)fd;
    (void)what;
    link_enter(link);
    switch (link->state) {
    case LINK_DIALING:
        if (link->lookup) {
            link_fail(
                link, LINK_END_TIMEOUT,
                "cannot resolve \"%.60s\": no answer within %d s; see that the name servers of this machine "
                "answer, or give an address",
                link->who, LINK_LOOKUP_US / 1000000);
            break;
        }
        link_fail(
            link, LINK_END_CONNECT,
            "%s did not answer within %d s: check the cable, the address, and that ringd is running there",
            link->who, LINK_DIAL_US / 1000000);
        break;
    case LINK_HANDSHAKE:
        link_fail(link, LINK_END_TIMEOUT,
                  "%s did not finish the handshake within %.1f s: it may be stuck, or another program",
                  link->who, (double)link->handshake_us / 1e6);
        break;
    case LINK_HELLO:
        link_fail(link, LINK_END_TIMEOUT,
                  "%s did not answer our hello within %.1f s: it may be overloaded or stuck", link->who,
                  (double)link->handshake_us / 1e6);
        break;
    case LINK_UP: link_session_tick(link); break;
    case LINK_DOWN:
        if (!link_lingers(link))
            link_down(link, link->end, link->text);
        break;
    }
    link_exit(link);
}

int link_set_timer(struct link *link)
{
    link->timer = evtimer_new(link->base, on_timer, link);
    return link->timer ? 0 : -ENOMEM;
}

int link_attach(struct link *link, int fd)
{
    link->bev = bufferevent_socket_new(link->base, fd, 0);
    if (!link->bev)
        return -ENOMEM;
    link->fd = fd;
    bufferevent_setcb(link->bev, on_read, on_drained, on_event, link);
    bufferevent_set_max_single_read(link->bev, SEAL_MAX + SEAL_TAG);
    bufferevent_set_max_single_write(link->bev, SEAL_MAX + SEAL_TAG);
    return 0;
}
