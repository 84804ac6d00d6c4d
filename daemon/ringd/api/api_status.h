/* SPDX-License-Identifier: MIT
 *
 * GET /v1/status: this node, its ring, what runs and what is wrong. The question that dashboards,
 * scripts and probes repeat: its answer is made once and given for a moment. Owned by the API;
 * loop thread. */
#ifndef DAEMON_API_STATUS_H
#define DAEMON_API_STATUS_H

struct api_status;
struct http_call;
struct api;

struct api_status *api_status_new(void);
void api_status_free(struct api_status *s);

void api_get_status(struct api *api, struct http_call *call);

#endif
