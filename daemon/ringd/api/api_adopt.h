/* SPDX-License-Identifier: MIT
 *
 * The API's route for jobs whose head is lost for good. */
#ifndef DAEMON_API_ADOPT_H
#define DAEMON_API_ADOPT_H

struct api;
struct http_call;

/* POST /v1/jobs/{id}/adopt/{name}: job {id} of node {name}, by the node that keeps its dossier. */
void api_post_adopt(struct api *api, struct http_call *call);

#endif
