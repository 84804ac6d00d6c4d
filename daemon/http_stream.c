/* SPDX-License-Identifier: MIT
 *
 * Owns nothing but what an event stream is about to send. The server's threads pull; a stream with nothing to
 * say is parked until the hub or the guard wakes it. */
#include "daemon/http_call.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/http_guard.h"
#include "daemon/hub.h"
#include "daemon/xalloc.h"

enum { PING_MS = 10000 /* a comment line, so that a stream whose client has left is noticed */ };

static void send_next(struct http_call *call, char *text)
{
    free(call->text);
    call->text = text;
    call->n_text = strlen(text);
    call->sent = 0;
}

/* Puts the next piece into call->text. False: parked until there is one. */
static bool stream_advance(struct http_call *call)
{
    struct http *http = call->http;
    bool last = false;
    pthread_mutex_lock(&http->lock);
    char *text = NULL;
    if (http->stopping)
        call->is_last = true;
    else
        text = hub_next(http->setup.hub, call->job, call->after, &call->after, &last);
    if (!text && call->ping_due)
        text = xstrdup(":\n\n");
    /* Parked under the lock that every publisher takes after publishing: no event slips between. */
    bool park = !text && !call->is_last;
    if (park) {
        call->parked = true;
        MHD_suspend_connection(call->mhd);
    }
    call->ping_due = false;
    pthread_mutex_unlock(&http->lock);
    if (text)
        send_next(call, text);
    call->is_last = call->is_last || (last && call->job);
    return !park;
}

static ssize_t stream_read(void *arg, uint64_t position, char *buf, size_t room)
{
    (void)position;
    struct http_call *call = arg;
    if (call->sent == call->n_text) {
        if (call->is_last)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (!stream_advance(call))
            return 0;
        if (call->sent == call->n_text)
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t n = call->n_text - call->sent < room ? call->n_text - call->sent : room;
    memcpy(buf, call->text + call->sent, n);
    call->sent += n;
    guard_set(call->http->guard, call->connection->deadline, PING_MS);
    return (ssize_t)n;
}

void http_stream(struct http_call *call, uint64_t job, uint64_t after)
{
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

/* The publisher's thread. */
void stream_on_publish(void *arg)
{
    struct http *http = arg;
    pthread_mutex_lock(&http->lock);
    for (struct http_call *call = http->calls; call; call = call->next) {
        if (call->parked && call->connection->streaming == call)
            call_unpark(call);
    }
    pthread_mutex_unlock(&http->lock);
}
