/* SPDX-License-Identifier: MIT
 *
 * The models of this node, and how much of each the other nodes hold: these are asked, and who says
 * nothing is named. Owned by supply.c; loop thread. */
#ifndef DAEMON_HOLDERS_H
#define DAEMON_HOLDERS_H

#include <jansson.h>

struct model_census;
struct holders;
struct members;

struct holders *holders_new(struct model_census *census, struct members *members); /* borrowed */
/* Before the census. Who waits hears that the daemon ends; NULL is fine. */
void holders_free(struct holders *h);

/* As supply_answer (supply.h). */
typedef void holders_answer(void *owner, const json_t *answer, int r, const char *why);
/* store: {"models": [{"model", …}, …], …}, copied. Each model of the answer has "holders", and the
 * answer "unheard" (docs/API.md). */
void holders_ask(struct holders *h, const json_t *store, holders_answer *done, void *owner);

/* The same of what a census said, in place. Pure. */
void holders_add(json_t *store, const json_t *answers);

#endif
