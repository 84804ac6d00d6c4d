/* SPDX-License-Identifier: MIT
 *
 * Owns nothing but what an event stream is about to send. The server's threads pull; a stream with
 * nothing to say is parked until the event log or the guard wakes it. */
#include "daemon/ringd/http/http_call.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_guard.h"
#include "daemon/ringd/event_log.h"
#include "daemon/common/xalloc.h"

enum {
    PING_MS = 10000, /* a comment line, so that a stream whose client has left is noticed */
    SPACING_MS = 200 /* between two times that the streams of all events are woken */
};

static void send_next(struct http_call *call, char *text)
{
    free(call->text);
    call->text = text;
    call->n_text = strlen(text);
    call->sent = 0;
}

/* Puts the next piece into call->text. False: there is none, and with `may_park` the stream is
 * parked until there is one, unless it is at its end. */
static bool stream_advance(struct http_call *call, bool may_park)
{
    struct http *http = call->http;
    bool last = false;
    if (call->is_last)
        return false;
    pthread_mutex_lock(&http->lock);
    char *text = NULL;
    if (http->stopping)
        call->is_last = true;
    else if (call->feed)
        text = call->feed_ops->take(call->feed, &call->is_last);
    else
        text = event_log_next(http->events, call->job, call->after, &call->after, &last);
    if (!text && call->ping_due)
        text = xstrdup(":\n\n");
    /* Parked under the lock that every publisher takes after publishing: no event slips between.
     */
    if (!text && !call->is_last && may_park) {
        call->parked = true;
        MHD_suspend_connection(call->mhd);
    }
    call->ping_due = false;
    pthread_mutex_unlock(&http->lock);
    if (text)
        send_next(call, text);
    call->is_last = call->is_last || (last && call->job);
    return text;
}

/* As many events as fit go out together. */
static ssize_t stream_read(void *arg, uint64_t position, char *buf, size_t room)
{
    (void)position;
    struct http_call *call = arg;
    size_t n = 0;
    while (n < room && (call->sent < call->n_text || stream_advance(call, !n))) {
        size_t part = call->n_text - call->sent < room - n ? call->n_text - call->sent : room - n;
        memcpy(buf + n, call->text + call->sent, part);
        call->sent += part;
        n += part;
    }
    if (!n)
        return call->is_last ? MHD_CONTENT_READER_END_OF_STREAM : 0;
    guard_set(call->http->guard, call->connection->deadline, PING_MS);
    return (ssize_t)n;
}

void http_stream(struct http_call *call, uint64_t job, uint64_t after)
{
    if (call->inside) {
        inside_stream(call, job, after);
        return;
    }
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, stream_read, call, NULL);
    if (!response_dress(r, "text/event-stream")) {
        http_fail(call, 500, "no-memory", "no memory for an event stream");
        return;
    }
    call->job = job;
    call->after = call->last_event_id ? call->last_event_id : after;
    /* Sent at once, so that the client has the headers before the first event. */
    send_next(call, xstrdup("retry: 1000\n\n"));
    call_answer(call, MHD_HTTP_OK, r, true);
}

/* Under lock. */
static void wake(struct http *http, bool all)
{
    for (struct http_call *call = http->calls; call; call = call->next) {
        if (call->parked && call->connection->streaming == call && (all || call->job))
            call_unpark(call);
    }
}

void stream_on_due(void *arg)
{
    struct http *http = arg;
    pthread_mutex_lock(&http->lock);
    http->is_wake_due = false;
    http->woken = clock_now();
    wake(http, true);
    pthread_mutex_unlock(&http->lock);
}

/* The publisher's thread. Who follows one job hears of it at once; who follows everything, as
 * hundreds of dashboards may, a few times a second. */
void stream_on_publish(void *arg)
{
    struct http *http = arg;
    pthread_mutex_lock(&http->lock);
    uint64_t since_us = clock_since_us(clock_now(), http->woken);
    bool is_due = since_us >= SPACING_MS * 1000, later = !is_due && !http->is_wake_due;
    wake(http, is_due);
    if (is_due)
        http->woken = clock_now();
    http->is_wake_due = http->is_wake_due || later;
    pthread_mutex_unlock(&http->lock);
    if (later)
        guard_set(http->guard, http->wake_streams, (unsigned)(SPACING_MS - since_us / 1000));
}
