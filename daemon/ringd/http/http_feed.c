/* SPDX-License-Identifier: MIT
 *
 * Owns the text between the one who puts and the server's thread that takes. Both sides hold the
 * feed; all of it is under the server's lock. Of a request of another node both sides are on the
 * loop thread, and there is no lock. */
#include "daemon/ringd/http/http_feed.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_call.h"
#include "daemon/ringd/http/http_inside.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/common/xalloc.h"

struct http_feed {
    struct http *http;         /* borrowed; NULL: another node reads it */
    struct http_inside inside; /* of such a node */
    struct mailbox *mailbox;   /* borrowed */
    struct http_call *call;    /* borrowed; NULL once the client has left, or without one */
    bool is_read;              /* somebody takes what is put */
    char *text;                /* owned, NUL-terminated; NULL = nothing waits */
    size_t n;
    bool is_left;   /* its owner has ended it */
    bool is_posted; /* `changed` is on its way */
    void (*changed)(void *owner);
    void *owner;
};

static void lock(struct http *http)
{
    if (http)
        pthread_mutex_lock(&http->lock);
}

static void unlock(struct http *http)
{
    if (http)
        pthread_mutex_unlock(&http->lock);
}

static void feed_free(struct http_feed *f)
{
    free(f->text);
    free(f);
}

/* Loop thread, by mail. */
static void on_changed(void *arg)
{
    struct http_feed *f = arg;
    lock(f->http);
    f->is_posted = false;
    unlock(f->http);
    f->changed(f->owner);
}

/* Under lock. */
static void post(struct http_feed *f)
{
    if (f->is_left || f->is_posted)
        return;
    f->is_posted = true;
    mailbox_post(f->mailbox, on_changed, f);
}

/* Under lock. */
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
    lock(http);
    bool last = f->is_left;
    f->call = NULL;
    f->is_read = false;
    post(f);
    unlock(http);
    if (last)
        feed_free(f);
}

/* Of a client: under lock. */
static void wake(struct http_feed *f)
{
    if (f->call)
        call_unpark(f->call);
}

struct http_feed *http_feed_new(struct http_call *call, void (*changed)(void *owner), void *owner)
{
    static const struct call_feed_ops ops = {take, leave};
    struct http_feed *f = xcalloc(1, sizeof *f);
    *f = (struct http_feed){.http = call->http, .is_read = true, .changed = changed, .owner = owner};
    if (call->inside) {
        f->inside = *call->inside;
        f->mailbox = f->inside.mailbox;
        call_free(call);
        f->inside.feed(f->inside.owner, f);
        return f;
    }
    f->call = call;
    f->mailbox = call->http->mailbox;
    call->feed = f;
    call->feed_ops = &ops;
    http_stream(call, 0, 0);
    return f;
}

void http_feed_put(struct http_feed *f, const char *text, size_t n)
{
    if (!n)
        return;
    lock(f->http);
    const bool is_read = f->is_read;
    if (is_read) {
        f->text = xrealloc(f->text, f->n + n + 1);
        memcpy(f->text + f->n, text, n);
        f->n += n;
        f->text[f->n] = '\0';
        wake(f);
    }
    unlock(f->http);
    if (is_read && !f->http)
        f->inside.fed(f->inside.owner);
}

size_t http_feed_waiting(struct http_feed *f)
{
    lock(f->http);
    size_t n = f->is_read ? f->n : 0;
    unlock(f->http);
    return n;
}

bool http_feed_is_open(struct http_feed *f)
{
    lock(f->http);
    bool is_open = f->is_read;
    unlock(f->http);
    return is_open;
}

void http_feed_end(struct http_feed *f)
{
    struct http *http = f->http;
    lock(http);
    f->is_left = true;
    bool is_read = f->is_read;
    wake(f);
    /* On the loop's own thread nothing is delivered meanwhile, and from now on nothing is
     * posted. */
    mailbox_forget(f->mailbox, f);
    unlock(http);
    if (!is_read)
        feed_free(f);
    else if (!http)
        f->inside.fed(f->inside.owner);
}

char *http_inside_take(struct http_feed *f, bool *ret_last)
{
    char *text = take(f, ret_last);
    *ret_last = f->is_left; /* all that there is, is taken */
    return text;
}

void http_inside_leave(struct http_feed *f)
{
    leave(f);
}

uint64_t http_feed_after(const struct http_call *call)
{
    return call->last_event_id;
}
