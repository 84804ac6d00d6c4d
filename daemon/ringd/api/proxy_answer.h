/* SPDX-License-Identifier: MIT
 *
 * The answering side of proxied requests: runs the API's handler for another node, and sends the
 * answer in parts as that node asks for them. Owned by the proxy; loop thread. */
#ifndef DAEMON_PROXY_ANSWER_H
#define DAEMON_PROXY_ANSWER_H

#include "daemon/ringd/api/proxy.h"

enum {
    PROXY_PART = 192 << 10,   /* bytes of an answer in a message, before base64 */
    PROXY_ANSWER = 16 << 20,  /* bytes of a whole answer, at most */
    PROXY_REQUEST = 512 << 10 /* bytes of a request's body, at most */
};

struct proxy_answers;

struct proxy_answers *proxy_answers_new(const struct proxy_setup *setup); /* setup is borrowed */
void proxy_answers_free(struct proxy_answers *a);

void proxy_answers_ask(struct proxy_answers *a, const uint8_t from[16], const json_t *body);
void proxy_answers_more(struct proxy_answers *a, const uint8_t from[16], const json_t *body);
void proxy_answers_published(struct proxy_answers *a, uint64_t job);

#endif
