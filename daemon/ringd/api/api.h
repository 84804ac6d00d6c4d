/* SPDX-License-Identifier: MIT
 *
 * The HTTP API: its table of routes, and who may use each. The handlers are in api_*.c. Loop
 * thread. */
#ifndef DAEMON_API_H
#define DAEMON_API_H

#include <stddef.h>

struct api;
struct api_setup;
struct http_call;

struct api_route {
    const char *method, *path; /* "{id}" in a path stands for one word */
    enum api_access {
        API_OPEN,
        API_READS,
        API_SERVES,
        API_WRITES
    } access; /* who may: everyone, http_may_read, http_may_serve, http_may_write */
    void (*handle)(struct api *, struct http_call *);
};
const struct api_route *api_routes(size_t *ret_n);

struct api *api_new(const struct api_setup *setup); /* api_setup.h */
/* A model may have come: plans that wait for one look again. */
void api_models_changed(struct api *api);
/* Those that still wait hear that the daemon ends. NULL is fine. */
void api_stop(struct api *api);
/* After the store has closed: its last answers come here. NULL is fine. */
void api_free(struct api *api);

/* Answers the call, now or later. */
void api_handle(struct api *api, struct http_call *call);

#endif
