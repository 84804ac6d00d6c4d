/* SPDX-License-Identifier: MIT
 *
 * The timelines of a job as an event stream of the HTTP server. Loop thread. */
#ifndef DAEMON_TIMELINES_FEED_H
#define DAEMON_TIMELINES_FEED_H

struct http_call;
struct timelines;

/* Answers the call with the stream, and frees it. Nobody else reads them. */
void timelines_feed(struct timelines *t, struct http_call *call);

#endif
