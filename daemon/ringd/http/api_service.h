/* SPDX-License-Identifier: MIT
 *
 * The API's routes about the daemon itself: health, metrics, history, configuration, token. Loop
 * thread. */
#ifndef DAEMON_API_SERVICE_H
#define DAEMON_API_SERVICE_H

struct http_call;
struct node;

void api_get_health(struct node *n, struct http_call *call);
void api_get_metrics(struct node *n, struct http_call *call);
void api_get_history(struct node *n, struct http_call *call);
void api_post_reload(struct node *n, struct http_call *call);
void api_post_token(struct node *n, struct http_call *call);

#endif
