/* SPDX-License-Identifier: MIT
 *
 * Requests that come from inside the daemon: another node asks, and the handlers of the API answer
 * it as they answer a client. Loop thread. */
#ifndef DAEMON_HTTP_INSIDE_H
#define DAEMON_HTTP_INSIDE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_call;
struct http_feed;
struct mailbox;

/* Where the answer goes: exactly one of the first three is called, once, perhaps before the
 * handler returns. */
struct http_inside {
    /* The texts are borrowed for the call. An error has a JSON body, as http_fail makes it. */
    void (*reply)(void *owner, int status, const char *content_type, const char *body, size_t n);
    /* The handler wants to answer with the event log's events of this job after that one. */
    void (*stream)(void *owner, uint64_t job, uint64_t after);
    /* The handler answers with a stream that it feeds (http_feed.h). The callee holds the feed
     * until http_inside_leave. */
    void (*feed)(void *owner, struct http_feed *f);
    void (*fed)(void *owner); /* that stream has more text, or has come to its end */
    struct mailbox *mailbox;  /* borrowed: for words to the feed's other owner */
    void *owner;
};

/* What was put into the feed, for the caller to free, or NULL. ret_last: no more will come. */
char *http_inside_take(struct http_feed *f, bool *ret_last);
/* Nobody reads this stream any more. */
void http_inside_leave(struct http_feed *f);

/* Nobody waits any more for the answer to this call, which was not given yet: it may come at once
 * now. Later ones are harmless. */
void http_inside_left(struct http_call *call);

/* A request that may read and write. `query`: an object of texts, NULL = none. All is copied but
 * for the functions' owner, which must stay until one of them was called. The call is for a
 * handler of http_setup. */
struct http_call *http_inside_new(const char *method, const char *path, const json_t *query, const char *body,
                                  const struct http_inside *to);

#endif
