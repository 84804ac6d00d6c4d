/* SPDX-License-Identifier: MIT
 *
 * The headers of a hub's answer that count, line by line as they come. Hostile input: what is too
 * long is left out. Pure: any thread. */
#ifndef DAEMON_HUB_HEADERS_H
#define DAEMON_HUB_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/model/model_name.h"

enum { HUB_URL = 8192, HUB_HEADERS_MAX = 64 << 10 /* bytes of all lines of an answer */ };

struct hub_headers {
    unsigned status;
    char commit[MODEL_COMMIT + 1]; /* X-Repo-Commit; "": none, or no commit */
    char etag[128];                /* X-Linked-Etag, else ETag */
    bool is_linked;                /* the former */
    bool has_size, is_linked_size; /* X-Linked-Size, else Content-Length */
    uint64_t size;
    bool has_range; /* Content-Range: the first byte that comes, and of how many */
    uint64_t from, total;
    unsigned retry_after_s;      /* 0: it does not say, or says a date */
    char location[HUB_URL];      /* "" : none, or one that is too long */
    char code[64], message[256]; /* X-Error-Code and X-Error-Message, cleaned */
    size_t bytes;                /* of all lines */
    bool is_elsewhere;           /* set by hub_http.c: another host than the hub's has answered */
};

/* A line as it came, with or without its end. A status line forgets those before it. False: there
 * are too many bytes of them. */
bool hub_headers_take(struct hub_headers *to, const char *line, size_t n);

#endif
