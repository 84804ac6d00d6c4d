/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/http/http_keys.h"

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/http/http_call.h"

int http_add_key(struct http *http, const char *name, unsigned rate, char ret_key[CLIENT_KEY_ROOM],
                 struct err *err)
{
    pthread_mutex_lock(&http->lock);
    const int r = client_keys_add(&http->keys, name, rate, ret_key, err);
    pthread_mutex_unlock(&http->lock);
    return r;
}

int http_remove_key(struct http *http, const char *name, struct err *err)
{
    pthread_mutex_lock(&http->lock);
    const int r = client_keys_remove(&http->keys, name, err);
    pthread_mutex_unlock(&http->lock);
    return r;
}

json_t *http_show_keys(struct http *http)
{
    pthread_mutex_lock(&http->lock);
    json_t *list = client_keys_show(&http->keys);
    pthread_mutex_unlock(&http->lock);
    return list;
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
