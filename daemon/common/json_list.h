/* SPDX-License-Identifier: MIT
 *
 * Lists of texts in JSON. Pure: any thread. */
#ifndef DAEMON_JSON_LIST_H
#define DAEMON_JSON_LIST_H

#include <jansson.h>
#include <stdbool.h>

/* Is it one of the list? What is no text is none; NULL is an empty list. */
bool json_list_has(const json_t *list, const char *text);

#endif
