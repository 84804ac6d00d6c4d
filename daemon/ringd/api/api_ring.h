/* SPDX-License-Identifier: MIT
 *
 * The API's view of the ring: GET /v1/ring, and the part of GET /v1/status about it. Called by
 * api.c, on the loop thread. */
#ifndef DAEMON_API_RING_H
#define DAEMON_API_RING_H

#include <jansson.h>

struct http_call;
struct members;
struct api;

json_t *api_ring_encode(const struct members *m);
void api_get_ring(struct api *api, struct http_call *call);

#endif
