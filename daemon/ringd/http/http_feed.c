/* SPDX-License-Identifier: MIT
 *
 * Owns the text between the one who puts and the server's thread that takes. Both sides hold the
 * feed; all of it is under the server's lock. */
#include "daemon/ringd/http/http_feed.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_call.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/common/xalloc.h"

struct http_feed {
    struct http *http;      /* borrowed */
    struct http_call *call; /* borrowed; NULL once the client has left */
    char *text;             /* owned, NUL-terminated; NULL = nothing waits */
    size_t n;
    bool is_left;   /* its owner has ended it */
    bool is_posted; /* `changed` is on its way */
    void (*changed)(void *owner);
    void *owner;
};

/* Loop thread, by mail. */
static void on_changed(void *arg)
{
    struct http_feed *f = arg;
    pthread_mutex_lock(&f->http->lock);
    f->is_posted = false;
    pthread_mutex_unlock(&f->http->lock);
    f->changed(f->owner);
}

/* Under lock. */
static void post(struct http_feed *f)
{
    if (f->is_left || f->is_posted)
        return;
    f->is_posted = true;
    mailbox_post(f->http->mailbox, on_changed, f);
}

bool http_feed_can(const struct http_call *call)
{
    return !call->inside;
}

static char *take(struct http_feed *f, bool *ret_last)
{
    char *text = f->text;
    *ret_last = !text && f->is_left;
    f->text = NULL;
    f->n = 0;
    if (text)
        post(f);
    return text;
}

static void leave(struct http_feed *f)
{
    struct http *http = f->http;
    pthread_mutex_lock(&http->lock);
    bool last = f->is_left;
    f->call = NULL;
    post(f);
    pthread_mutex_unlock(&http->lock);
    if (last) {
        free(f->text);
        free(f);
    }
}

struct http_feed *http_feed_new(struct http_call *call, void (*changed)(void *owner), void *owner)
{
    static const struct call_feed_ops ops = {take, leave};
    struct http_feed *f = xcalloc(1, sizeof *f);
    *f = (struct http_feed){.http = call->http, .call = call, .changed = changed, .owner = owner};
    call->feed = f;
    call->feed_ops = &ops;
    http_stream(call, 0, 0);
    return f;
}

void http_feed_put(struct http_feed *f, const char *text, size_t n)
{
    pthread_mutex_lock(&f->http->lock);
    if (f->call && n) {
        f->text = xrealloc(f->text, f->n + n + 1);
        memcpy(f->text + f->n, text, n);
        f->n += n;
        f->text[f->n] = '\0';
        call_unpark(f->call);
    }
    pthread_mutex_unlock(&f->http->lock);
}

size_t http_feed_waiting(struct http_feed *f)
{
    pthread_mutex_lock(&f->http->lock);
    size_t n = f->call ? f->n : 0;
    pthread_mutex_unlock(&f->http->lock);
    return n;
}

bool http_feed_is_open(struct http_feed *f)
{
    pthread_mutex_lock(&f->http->lock);
    bool is_open = f->call;
    pthread_mutex_unlock(&f->http->lock);
    return is_open;
}

void http_feed_end(struct http_feed *f)
{
    pthread_mutex_lock(&f->http->lock);
    f->is_left = true;
    bool last = !f->call;
    if (f->call)
        call_unpark(f->call);
    /* On the loop's own thread nothing is delivered meanwhile, and from now on nothing is
     * posted. */
    mailbox_forget(f->http->mailbox, f);
    pthread_mutex_unlock(&f->http->lock);
    if (last) {
        free(f->text);
        free(f);
    }
}

uint64_t http_feed_after(const struct http_call *call)
{
    return call->last_event_id;
}
