/* SPDX-License-Identifier: MIT
 *
 * The HTTP server: libmicrohttpd with its own epoll thread, on a Unix socket and optionally on TCP.
 * Requests are handed to the loop through the mailbox, answers come back and resume the connection.
 * It knows no route; daemon/ringd/http/api.c does. */
#ifndef DAEMON_HTTP_H
#define DAEMON_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct http;
struct event_log;
struct mailbox;
struct http_call; /* one request waiting for its answer */

struct http_setup {
    struct mailbox *mailbox;  /* borrowed */
    struct event_log *events; /* borrowed: event streams */
    const char *unix_path;    /* created 0660, replaced if stale; NULL = none */
    const char *tcp_listen; /* "127.0.0.1:8473", "[::1]:0"; NULL or "" = none. Not loopback: refused without a
                               token */
    const char *token; /* bearer token for changing anything over TCP; NULL = none is accepted over TCP */
    /* On the loop thread, once per request whose headers and body (≤ 8 MiB) are complete. Must lead
     * to exactly one http_reply or http_stream, now or later. */
    void (*handle)(void *owner, struct http_call *call);
    void (*answered)(void *owner, const char *route,
                     unsigned status); /* loop thread, after each answer; may be NULL */
    void *owner;
    unsigned deadline_ms; /* for the headers of a request, and again for its body; 0 = 10 s */
};
int http_start(struct http **ret, const struct http_setup *setup, struct err *err);
/* Loop thread: answers what is waiting with 503 and ends every stream. Calls already handled stay
 * valid until their http_reply. */
void http_stop(struct http *http);
/* Loop thread: another token counts from the next request on. */
void http_set_token(struct http *http, const char *token);
uint16_t http_port(const struct http *http); /* of the TCP listener, 0 = none */

const char *http_method(const struct http_call *call);
const char *http_path(const struct http_call *call); /* without the query, percent-decoded */
const char *http_query(const struct http_call *call, const char *key); /* NULL if absent */
const char *http_body(const struct http_call *call, size_t *ret_n);
/* May this request change something? Unix socket: yes. TCP: with the token, application/json and no
 * foreign Origin. Host and Origin are checked before `handle` is called at all (421, 403). */
bool http_may_write(const struct http_call *call);
/* May it see what is not for everyone? Unix socket and a loopback port: yes. Elsewhere: with the
 * token. */
bool http_may_read(const struct http_call *call);
bool http_is_local(const struct http_call *call); /* came over the Unix socket */
/* Which of the API's routes it is; kept by address. */
void http_set_route(struct http_call *call, const char *route);

/* Loop thread. body is copied. Frees call. */
void http_reply(struct http_call *call, int status, const char *content_type, const char *body, size_t n);
/* A file that stays in memory for ever, of the version `tag` (an ETag, quoted): a client that has
 * it already gets 304. */
void http_reply_file(struct http_call *call, const char *content_type, const char *tag, const char *body,
                     size_t n);
/* Of a file, its first `n` bytes. Takes over fd. */
void http_reply_fd(struct http_call *call, const char *content_type, int fd, uint64_t n);
/* Errors as {"error":{"code":…,"message":…}}. */
void http_fail(struct http_call *call, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The body of such an error; the caller frees. */
char *http_error_text(const char *code, const char *message);
/* Answers with text/event-stream from the event log: events of `job` (0 = all) after `after`
 * (Last-Event-ID wins), a comment line every 10 s; closes itself after the job's "end" event. Frees
 * call. */
void http_stream(struct http_call *call, uint64_t job, uint64_t after);

#endif
