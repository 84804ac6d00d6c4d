/* SPDX-License-Identifier: MIT
 *
 * The bodies of requests: each has a cap, and all that are held at a moment have a budget
 * together. A body counts from its first byte until its call goes. When the budget is spent, a new
 * body is refused and nothing that is held is lost. The server's threads; body_done also the loop.
 */
#ifndef DAEMON_HTTP_BODY_H
#define DAEMON_HTTP_BODY_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/ringd/ledger.h"

enum {
    BODY_MAX = 8 << 20,
    BODIES_MAX = 64 << 20,
};

struct body_refusal {
    unsigned status;           /* 413 or 503 */
    const char *code, *reason; /* as http_fail takes them */
};

struct body {
    struct ledger_queue *bodies; /* borrowed: of all; NULL = a body that is in no budget */
    size_t announced;            /* its length, 0 = not known */
    bool follows;                /* the headers say that there is one */
    char *data;                  /* owned, NUL-terminated; NULL = empty */
    size_t n, room;
    const struct body_refusal *refusal; /* borrowed: why it was not kept; NULL = it was */
};

/* The headers are complete; `length` and `encoding` are Content-Length and Transfer-Encoding, or
 * NULL. A length that is too much, or more than the budget has left, is refused before a byte is
 * read. */
void body_begin(struct body *body, struct ledger_queue *bodies, const char *length, const char *encoding);
/* What came of it; copied. A body without a length may turn out too large only here: then what was
 * held of it goes, and so does what follows. */
void body_add(struct body *body, const char *data, size_t n);
void body_done(struct body *body);

#endif
