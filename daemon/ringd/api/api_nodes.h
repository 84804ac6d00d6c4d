/* SPDX-License-Identifier: MIT
 *
 * The API's routes about nodes, the links between them, ports, and the doctor. Loop thread. */
#ifndef DAEMON_API_NODES_H
#define DAEMON_API_NODES_H

struct api;
struct http_call;

void api_get_nodes(struct api *api, struct http_call *call);
void api_get_links(struct api *api, struct http_call *call);
void api_get_ports(struct api *api, struct http_call *call);
/* ?model=DIR compares that directory on all nodes. */
void api_get_doctor(struct api *api, struct http_call *call);
/* {"model":DIR}: every node reads all of that directory first. */
void api_post_doctor(struct api *api, struct http_call *call);

/* {"node": NAME, "reason": TEXT} */
void api_post_drain(struct api *api, struct http_call *call);
void api_post_undrain(struct api *api, struct http_call *call);

#endif
