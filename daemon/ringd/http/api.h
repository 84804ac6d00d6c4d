/* SPDX-License-Identifier: MIT
 *
 * The HTTP API's routes: from a request to what the node knows, and back as JSON. Loop thread. */
#ifndef DAEMON_API_H
#define DAEMON_API_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct http_call;
struct node;

struct api_route {
    const char *method, *path; /* "{id}" in a path stands for one word */
    enum api_access {
        API_OPEN,
        API_READS,
        API_WRITES
    } access; /* who may: everyone, http_may_read, http_may_write */
    void (*handle)(struct node *, struct http_call *);
};
const struct api_route *api_routes(size_t *ret_n);

/* http_setup.handle: owner is the struct node. */
void api_handle(void *owner, struct http_call *call);
/* Answers with JSON, whose reference it takes. */
void api_reply(struct http_call *call, int status, json_t *json);
/* With so many digits of each real number: for what is drawn and not reckoned with. */
void api_reply_rounded(struct http_call *call, int status, json_t *json, int digits);

#endif
