/* SPDX-License-Identifier: MIT
 *
 * What a JSON value takes in memory, about: much more than its text where that is a list of small
 * numbers. For queues that are capped in bytes. Pure: any thread. */
#ifndef DAEMON_JSON_WEIGHT_H
#define DAEMON_JSON_WEIGHT_H

#include <jansson.h>
#include <stddef.h>

/* In bytes, as glibc's malloc rounds what Jansson 2.14 asks for; 0 for NULL. */
size_t json_weight(const json_t *value);

#endif
