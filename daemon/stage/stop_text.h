/* SPDX-License-Identifier: MIT
 *
 * Where an answer ends by one of the texts of --stop. Pure: any thread. */
#ifndef DAEMON_STOP_TEXT_H
#define DAEMON_STOP_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* Where the first of the stop texts ([TEXT, …], or NULL) that is in text [n] begins, if it ends
 * behind byte `before`; n: none is. */
size_t stop_text_find(const json_t *stops, const char *text, size_t n, size_t before);

#endif
