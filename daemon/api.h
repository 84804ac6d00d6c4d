/* SPDX-License-Identifier: MIT
 *
 * The HTTP API's routes: from a request to what the node knows, and back as JSON. Loop thread. */
#ifndef DAEMON_API_H
#define DAEMON_API_H

struct http_call;

/* http_setup.handle: owner is the struct node. */
void api_handle(void *owner, struct http_call *call);

#endif
