/* SPDX-License-Identifier: MIT
 *
 * The loop alone changes the keys; the server's threads read them, under the lock. So the disk is
 * waited for without it. */
#include "daemon/ringd/http/http_keys.h"

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_call.h"

/* Takes over the copy: in use, if it was written. */
static int take_over(struct http *http, struct client_keys next, int r)
{
    if (!r) {
        const struct client_keys before = http->keys;
        pthread_mutex_lock(&http->lock);
        http->keys = next;
        pthread_mutex_unlock(&http->lock);
        next = before;
    }
    client_keys_done(&next);
    return r;
}

int http_add_key(struct http *http, const char *name, unsigned rate, char ret_key[CLIENT_KEY_ROOM],
                 struct err *err)
{
    struct client_keys next = client_keys_copy(&http->keys);
    const int r = client_keys_add(&next, name, rate, ret_key, err);
    return take_over(http, next, r);
}

int http_remove_key(struct http *http, const char *name, struct err *err)
{
    struct client_keys next = client_keys_copy(&http->keys);
    const int r = client_keys_remove(&next, name, err);
    return take_over(http, next, r);
}

json_t *http_show_keys(struct http *http)
{
    return client_keys_show(&http->keys);
}

int http_merge_keys(struct http *http, const json_t *list, bool *ret_news, struct err *err)
{
    struct client_keys next = client_keys_copy(&http->keys);
    const int r = client_keys_merge(&next, list, ret_news, err);
    if (r || *ret_news)
        return take_over(http, next, r);
    client_keys_done(&next);
    return 0;
}

json_t *http_tell_keys(struct http *http)
{
    return client_keys_tell(&http->keys);
}

unsigned http_take_turn(struct http_call *call)
{
    struct http *http = call->http;
    if (!http || !*call->client)
        return 0;
    pthread_mutex_lock(&http->lock);
    call->retry_after = client_keys_take(&http->keys, call->client, clock_now());
    pthread_mutex_unlock(&http->lock);
    return call->retry_after;
}
