/* SPDX-License-Identifier: MIT
 *
 * One request of a client for what is served, from its arrival to its last byte: a line in the
 * journal at its end. It says who asked for what, and how much came
 * of it; it never has a word of the request or the answer. Loop thread. */
#ifndef DAEMON_VISIT_H
#define DAEMON_VISIT_H

#include <stddef.h>
#include <stdint.h>

struct desk;
struct http_call;
struct visit;

/* desk: borrowed, as long as the visit. */
struct visit *visit_begin(struct desk *desk, const struct http_call *call);
/* It is for the model that this job of this node serves, called `name` (copied). job 0: another
 * node's. */
void visit_model(struct visit *v, uint64_t job, const char *name);
void visit_tokens(struct visit *v, size_t in, size_t out); /* so many, so far */
/* Its answer had that status, or the client left before its end (HTTP_LEFT). Frees it. */
void visit_end(struct visit *v, unsigned status);
/* It goes on at that node, whose journal has its end. Frees it. */
void visit_pass_on(struct visit *v, const char *node);

#endif
