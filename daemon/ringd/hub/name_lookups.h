/* SPDX-License-Identifier: MIT
 *
 * Names of models looked up: which commit ORG/NAME is now. A process of ringd-fetch asks the hub,
 * or knows what a user has added. So many at once. Owned by supply.c; loop thread. */
#ifndef DAEMON_NAME_LOOKUPS_H
#define DAEMON_NAME_LOOKUPS_H

#include <jansson.h>

struct fetchers;
struct name_lookups;

struct name_lookups *name_lookups_new(struct fetchers *fetchers); /* borrowed */
void name_lookups_free(struct name_lookups *l);                   /* those who wait hear so; NULL is fine */

/* The exact name, {"model"}, borrowed; or why not, a sentence. */
typedef void name_answer(void *owner, const json_t *answer, int r, const char *why);
/* `done` is called once, perhaps at once. */
void name_lookups_ask(struct name_lookups *l, const char *name, name_answer *done, void *owner);

#endif
