/* SPDX-License-Identifier: MIT
 *
 * The API's routes about membership: GET /v1/members, POST
 * /v1/cluster/{init,invite,join,remove,promote}. Called by api.c, on the loop thread. */
#ifndef DAEMON_API_CLUSTER_H
#define DAEMON_API_CLUSTER_H

struct http_call;
struct node;

void api_get_members(struct node *n, struct http_call *call);
void api_post_init(struct node *n, struct http_call *call);
void api_post_invite(struct node *n, struct http_call *call);
void api_post_join(struct node *n, struct http_call *call);
void api_post_remove(struct node *n, struct http_call *call);
void api_post_promote(struct node *n, struct http_call *call);

#endif
