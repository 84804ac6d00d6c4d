/* SPDX-License-Identifier: MIT
 *
 * An event stream whose text does not come from the event log: its owner puts it in as the client
 * takes it, or another node that asks for a client of its own. Loop thread; the server's threads
 * take from it under the server's lock. */
#ifndef DAEMON_HTTP_FEED_H
#define DAEMON_HTTP_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_call;
struct http_feed;

/* Answers the call, and frees it. `changed` is called on the loop thread after the client took
 * what was there, and after it left. The feed must end before http_stop. */
struct http_feed *http_feed_new(struct http_call *call, void (*changed)(void *owner), void *owner);
/* Events in their text form, copied. Nothing happens once the client has left. */
void http_feed_put(struct http_feed *f, const char *text, size_t n);
/* Bytes put that were not taken yet; 0 when the client has left. */
size_t http_feed_waiting(struct http_feed *f);
bool http_feed_is_open(struct http_feed *f);
/* The stream ends after what was put. Frees the feed for its owner; `changed` is not called any
 * more. */
void http_feed_end(struct http_feed *f);
/* The event after which the client of this call wants to go on, by its Last-Event-ID header; 0 =
 * not given. */
uint64_t http_feed_after(const struct http_call *call);

#endif
