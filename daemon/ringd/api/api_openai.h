/* SPDX-License-Identifier: MIT
 *
 * The routes that clients of OpenAI's and Anthropic's APIs know. Whichever node they ask: a model
 * is served by a job, and the request is passed on to that job's head. There, /v1/jobs/{id}/… are
 * the same routes for that one job. */
#ifndef DAEMON_API_OPENAI_H
#define DAEMON_API_OPENAI_H

struct api;
struct http_call;

void api_get_served(struct api *api, struct http_call *call);     /* /v1/models */
void api_get_served_one(struct api *api, struct http_call *call); /* /v1/models/{id} */
void api_post_served(struct api *api, struct http_call *call);    /* all others */

#endif
