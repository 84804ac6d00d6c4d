/* SPDX-License-Identifier: MIT
 *
 * GET /v1/models: the models this node knows of, so that nobody has to type their paths. Called by
 * api.c, on the loop thread. */
#ifndef DAEMON_API_MODELS_H
#define DAEMON_API_MODELS_H

struct http_call;
struct node;

void api_get_models(struct node *n, struct http_call *call);

#endif
