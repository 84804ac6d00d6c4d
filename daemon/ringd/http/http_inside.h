/* SPDX-License-Identifier: MIT
 *
 * Requests that come from inside the daemon: another node asks, and the handlers of the API answer
 * it as they answer a client. Loop thread. */
#ifndef DAEMON_HTTP_INSIDE_H
#define DAEMON_HTTP_INSIDE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct http_call;

/* Where the answer goes: exactly one of the two is called, once, perhaps before the handler
 * returns. */
struct http_inside {
    /* The texts are borrowed for the call. An error has a JSON body, as http_fail makes it. */
    void (*reply)(void *owner, int status, const char *content_type, const char *body, size_t n);
    /* The handler wants to answer with the event log's events of this job after that one. */
    void (*stream)(void *owner, uint64_t job, uint64_t after);
    void *owner;
};

/* A request that may read and write. `query`: an object of texts, NULL = none. All is copied but
 * for the functions' owner, which must stay until one of them was called. The call is for a handler
 * of http_setup. */
struct http_call *http_inside_new(const char *method, const char *path, const json_t *query, const char *body,
                                  const struct http_inside *to);

#endif
