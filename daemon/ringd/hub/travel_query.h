/* SPDX-License-Identifier: MIT
 *
 * What has to come to the nodes of a plan, asked on behalf of a stage process here that has made
 * it: all nodes are asked what they have of the model, and the answer is foreseen from that
 * (travel.h). The stages are owned by worker and plan_request. Owned by supply.c; loop thread. */
#ifndef DAEMON_TRAVEL_QUERY_H
#define DAEMON_TRAVEL_QUERY_H

#include <jansson.h>

struct model_census;
struct members;
struct spawn;
struct travel_queries;

struct travel_queries *travel_queries_new(struct model_census *census,
                                          struct members *members); /* borrowed */
/* Before the census. Nobody hears anything more; NULL is fine. */
void travel_queries_free(struct travel_queries *t);

/* event: the stage's {"model", "nodes", "shares" or "units", "sizes"}, and perhaps "draft": see
 * daemon/stage/share/stage_travel.h. It gets {"do":"travel"}, with "travel" if anything is lacking
 * or not known; asked by units, with "lacks". */
void travel_query_ask(struct travel_queries *t, struct spawn *stage, const json_t *event);
void travel_query_forget(struct travel_queries *t, const struct spawn *stage); /* it is about to be freed */

/* What the answers of a census (census.h) come to; NULL: nothing is lacking. The ranks are the
 * first of them. Pure, but for the cables and their classes in the records. The caller owns it. */
json_t *travel_show(const struct members *members, const json_t *event, const json_t *answers);

#endif
