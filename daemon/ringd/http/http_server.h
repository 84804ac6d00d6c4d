/* SPDX-License-Identifier: MIT
 *
 * The HTTP server: libmicrohttpd with its own epoll thread, on a Unix socket and optionally on
 * TCP. Requests are handed to the loop through the mailbox, answers come back and resume the
 * connection. It knows no route; daemon/ringd/api/api.c does. Bodies of requests and answers that
 * wait for their clients are capped: what is new and does not fit is answered with 503. */
#ifndef DAEMON_HTTP_SERVER_H
#define DAEMON_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct event_base;
struct event_log;
struct http;
struct http_call; /* http.h */
struct ledger;
struct mailbox;

struct http_setup {
    struct event_base *base;  /* borrowed: the loop's */
    struct mailbox *mailbox;  /* borrowed */
    struct event_log *events; /* borrowed: event streams */
    const char *unix_path;    /* created 0660, replaced if stale; NULL = none */
    const char *tcp_listen; /* "127.0.0.1:8473", "[::1]:0"; NULL or "" = none. Not loopback: refused without a
                               token */
    const char *token;     /* bearer token for changing anything over TCP; NULL = none is accepted over TCP */
    const char *keys_path; /* of the file with the keys of clients; NULL = none is read or written */
    const char *const *origins; /* borrowed until http_stop [norigins]: of foreign pages that may ask */
    size_t norigins;
    /* On the loop thread, once per request whose headers and body (≤ 8 MiB) are complete. Must
     * lead to exactly one http_reply or http_stream, now or later. */
    void (*handle)(void *owner, struct http_call *call);
    void (*answered)(void *owner, const char *route,
                     unsigned status); /* loop thread, after each answer; may be NULL */
    void *owner;
    /* For the headers of a request, again for its body, and for each MiB of the answer; 0 = 10 s
     */
    unsigned deadline_ms;
    size_t bodies_max;     /* bytes of all requests' bodies together; 0 = 64 MiB */
    struct ledger *ledger; /* borrowed: gets the queues http_bodies and http_answers; may be NULL */
};
enum { HTTP_LINK_ROOM = 384 };

int http_start(struct http **ret, const struct http_setup *setup, struct err *err);
/* Loop thread: answers what is waiting with 503 and ends every stream. Calls already handled stay
 * valid until their http_reply. */
void http_stop(struct http *http);
/* Loop thread: another token counts from the next request on, and sessions end if it differs. */
void http_set_token(struct http *http, const char *token);
/* Loop thread: a link that opens the dashboard once, within TICKET_SECONDS of http_session.h.
 * False: there is no TCP listener. */
bool http_make_link(struct http *http, char ret[HTTP_LINK_ROOM]);
uint16_t http_port(const struct http *http); /* of the TCP listener, 0 = none */

#endif
