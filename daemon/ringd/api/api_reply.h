/* SPDX-License-Identifier: MIT
 *
 * Answers of the HTTP API in JSON. Loop thread. */
#ifndef DAEMON_API_REPLY_H
#define DAEMON_API_REPLY_H

#include <jansson.h>

struct http_call;

/* Answers with JSON, whose reference it takes. */
void api_reply(struct http_call *call, int status, json_t *json);
/* With so many digits of each real number: for numbers that are drawn. */
void api_reply_rounded(struct http_call *call, int status, json_t *json, int digits);

#endif
