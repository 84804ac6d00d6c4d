/* SPDX-License-Identifier: MIT
 *
 * GET /v1/model-paths: the models this node knows of, so that nobody has to type their paths.
 * Called by api.c, on the loop thread. */
#ifndef DAEMON_API_MODELS_H
#define DAEMON_API_MODELS_H

struct http_call;
struct api;

void api_get_models(struct api *api, struct http_call *call);

#endif
