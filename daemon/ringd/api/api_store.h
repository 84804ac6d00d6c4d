/* SPDX-License-Identifier: MIT
 *
 * Models of this node by their names: listed, pulled, pinned, removed, read again. And jobs whose
 * model is named so: a revision becomes a commit before there is a job. Called by api.c and
 * api_jobs.c, on the loop thread. */
#ifndef DAEMON_API_STORE_H
#define DAEMON_API_STORE_H

#include <jansson.h>
#include <stdbool.h>

struct api;
struct http_call;
struct loan;

void api_get_store(struct api *api, struct http_call *call);
/* {"do": "pull|stop|verify|pin|unpin|remove", "model": NAME} */
void api_post_store(struct api *api, struct http_call *call);

/* False: the spec's model is no name, nothing was done. True: `then` is called once its name is
 * exact, with the request, or the call is answered; is_plan: no job is wanted, and the outline of
 * the model has to be on all nodes first: that is waited for. What takes longer than 5 s is
 * answered with 202 and {"waits_for"}: who asks again goes on waiting. Holds request and loan
 * (NULL: none). */
bool api_store_resolve(struct api *api, struct http_call *call, json_t *request, struct loan *loan,
                       bool is_plan,
                       void (*then)(struct api *api, struct http_call *call, json_t *request,
                                    struct loan *loan, bool is_plan));

/* Plans that wait look whether their model has come. */
void api_store_look_again(struct api *api);
/* They hear that the daemon ends. */
void api_store_stop(struct api *api);

#endif
