/* SPDX-License-Identifier: MIT
 *
 * The API's routes about the adapters of a job that serves. Loop thread. */
#ifndef DAEMON_API_ADAPTERS_H
#define DAEMON_API_ADAPTERS_H

struct api;
struct http_call;

void api_post_adapter(struct api *api, struct http_call *call);
void api_delete_adapter(struct api *api, struct http_call *call);

#endif
