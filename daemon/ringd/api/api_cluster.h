/* SPDX-License-Identifier: MIT
 *
 * The API's routes about membership: GET /v1/members, POST
 * /v1/cluster/{init,invite,join,remove,promote}. Called by api.c, on the loop thread. */
#ifndef DAEMON_API_CLUSTER_H
#define DAEMON_API_CLUSTER_H

struct http_call;
struct api;

void api_get_members(struct api *api, struct http_call *call);
void api_post_init(struct api *api, struct http_call *call);
void api_post_invite(struct api *api, struct http_call *call);
void api_post_join(struct api *api, struct http_call *call);
void api_post_remove(struct api *api, struct http_call *call);
void api_post_promote(struct api *api, struct http_call *call);

#endif
