/* SPDX-License-Identifier: MIT
 *
 * One request: what a handler of the HTTP API may ask it, and how it answers. http_call.c has the
 * questions, http_answer.c and http_stream.c the answers. Loop thread. */
#ifndef DAEMON_HTTP_H
#define DAEMON_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_call; /* one request waiting for its answer */
enum { HTTP_LEFT = 499 /* the status of a client that has left, as others count it */ };

const char *http_method(const struct http_call *call);
const char *http_path(const struct http_call *call); /* without the query, percent-decoded */
const char *http_query(const struct http_call *call, const char *key); /* NULL if absent */
const char *http_body(const struct http_call *call, size_t *ret_n);
/* May this request change something? Unix socket: yes. TCP: with the token or a session,
 * application/json and no foreign Origin. Host and Origin are checked before `handle` is called at
 * all (421, 403). */
bool http_may_write(const struct http_call *call);
/* May it see what is not for everyone? Unix socket: yes. TCP: with the token or a session. */
bool http_may_read(const struct http_call *call);
/* May it ask what is served? With the token or a session, or with a client's key. */
bool http_may_serve(const struct http_call *call);
/* A request of a client's key counts now: 0, or in how many seconds it may come again. Its answer
 * says so. */
unsigned http_take_turn(struct http_call *call);
bool http_is_local(const struct http_call *call);  /* came over the Unix socket */
bool http_is_inside(const struct http_call *call); /* another node passed it on (http_inside.h) */
/* Does it speak Anthropic's API (its header `anthropic-version`)? */
bool http_is_anthropic(const struct http_call *call);
/* Begins a session (http_session.h) if the request has `Authorization: Ticket …` with one that is
 * good: its answer will carry the cookie, and `ret_key` is what the page keeps, valid as long as
 * the call. */
bool http_open_session(struct http_call *call, const char **ret_key);
/* Does it ask to go on in another protocol (`Upgrade:`), this one? */
bool http_wants(const struct http_call *call, const char *protocol);
/* Which of the API's routes it is; kept by address. */
void http_set_route(struct http_call *call, const char *route);
const char *http_route(const struct http_call *call);  /* as it was set; NULL: it was not */
const char *http_client(const struct http_call *call); /* whose key it has; "": nobody's, or the token */

/* Loop thread. body is copied. Frees call. */
void http_reply(struct http_call *call, int status, const char *content_type, const char *body, size_t n);
/* A file that stays in memory for ever, of the version `tag` (an ETag, quoted): a client that has
 * it already gets 304. */
void http_reply_file(struct http_call *call, const char *content_type, const char *tag, const char *body,
                     size_t n);
/* Of a file, its first `n` bytes. Takes over fd. */
void http_reply_fd(struct http_call *call, const char *content_type, int fd, uint64_t n);
/* Lets it go on in that protocol: 101, and then take(owner, fd) once, on the server's thread, with
 * the connection, which is owner's from then on. Nothing was read of it after the request. It is
 * not called when the client has left, or the server stops. */
void http_upgrade(struct http_call *call, const char *protocol, void (*take)(void *owner, int fd),
                  void *owner);
/* Until the call is answered, `left` is called when its client closes the connection, or the half
 * that it sends on; at most once. The call is still to be answered: http_give_up does. */
void http_on_leave(struct http_call *call, void (*left)(void *owner), void *owner);
/* For a client that has left: HTTP_LEFT, which nobody reads. */
void http_give_up(struct http_call *call);
/* Errors as {"error":{"code":…,"message":…}}. */
void http_fail(struct http_call *call, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The body of such an error; the caller frees. */
char *http_error_text(const char *code, const char *message);
/* Answers with text/event-stream from the event log: events of `job` (0 = all) after `after`
 * (Last-Event-ID wins), a comment line every 10 s; closes itself after the job's "end" event.
 * Frees call. */
void http_stream(struct http_call *call, uint64_t job, uint64_t after);

#endif
