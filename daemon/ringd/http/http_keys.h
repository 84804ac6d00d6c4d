/* SPDX-License-Identifier: MIT
 *
 * Keys of clients (client_keys.h) of a server that runs. Loop thread. */
#ifndef DAEMON_HTTP_KEYS_H
#define DAEMON_HTTP_KEYS_H

#include "daemon/ringd/http/client_keys.h"

struct http;

/* As client_keys_add, client_keys_remove and client_keys_show; they count from the next request
 * on. */
int http_add_key(struct http *http, const char *name, unsigned rate, char ret_key[CLIENT_KEY_ROOM],
                 struct err *err);
int http_remove_key(struct http *http, const char *name, struct err *err);
json_t *http_show_keys(struct http *http);
/* As client_keys_merge and client_keys_tell. */
int http_merge_keys(struct http *http, const json_t *list, bool *ret_news, struct err *err);
json_t *http_tell_keys(struct http *http);

#endif
