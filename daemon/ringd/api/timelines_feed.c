/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/timelines_feed.h"

#include "daemon/ringd/http/http_feed.h"
#include "daemon/ringd/timeline/timelines.h"

static void on_feed(void *owner)
{
    timelines_reader_changed(owner);
}

static void put(void *feed, const char *text, size_t n)
{
    http_feed_put(feed, text, n);
}

static size_t waiting(void *feed)
{
    return http_feed_waiting(feed);
}

static bool is_open(void *feed)
{
    return http_feed_is_open(feed);
}

static void end(void *feed)
{
    http_feed_end(feed);
}

void timelines_feed(struct timelines *t, struct http_call *call)
{
    timelines_read(t, &(struct timelines_reader){.put = put,
                                                 .waiting = waiting,
                                                 .is_open = is_open,
                                                 .end = end,
                                                 .owner = http_feed_new(call, on_feed, t)});
}
