/* SPDX-License-Identifier: MIT
 *
 * The API's routes about the daemon itself: health, metrics, history, configuration, token, events.
 * Loop thread. */
#ifndef DAEMON_API_SERVICE_H
#define DAEMON_API_SERVICE_H

struct http_call;
struct api;

void api_get_health(struct api *api, struct http_call *call);
void api_get_metrics(struct api *api, struct http_call *call);
void api_get_history(struct api *api, struct http_call *call);
void api_post_reload(struct api *api, struct http_call *call);
void api_get_keys(struct api *api, struct http_call *call);
void api_post_key(struct api *api, struct http_call *call);
void api_delete_key(struct api *api, struct http_call *call);
void api_post_ticket(struct api *api, struct http_call *call);
void api_post_session(struct api *api, struct http_call *call);
void api_post_token(struct api *api, struct http_call *call);
void api_get_events(struct api *api, struct http_call *call);

#endif
