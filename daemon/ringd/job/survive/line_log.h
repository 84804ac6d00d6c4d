/* SPDX-License-Identifier: MIT
 *
 * What rank 0 of a training job says of its steps, kept by the node of rank 1 as well, which gets
 * it from stage to stage (daemon/stage/hold/line_feed.h). A head that stands still and is then lost
 * takes its last words with it; who heads the job in the next attempt has them from here. Of
 * LINE_LOG_BYTES the newest are kept, and of those before how far they went. Owned by the worker of
 * that rank; loop thread. */
#ifndef DAEMON_LINE_LOG_H
#define DAEMON_LINE_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINE_LOG_BYTES = 512 << 10 /* a message of less than 1 MiB has them */ };

struct line_log_line;

struct line_log {
    /* Owned: {kind: {adapter: step}}, what had been said before the first line, and in "so-far" of
     * each adapter the latest of these events; NULL: that is not known, and there are no lines. */
    json_t *before;
    struct line_log_line *first, **end; /* owned; end is NULL before the first line */
    size_t bytes;
};

/* Events that are kept: what is said once of a step, and "so-far". */
bool line_log_keeps(const char *kind);
/* The stage's event "lines": JSON objects, a line each. The first of an attempt, "said", takes the
 * place of all there was. What cannot be read leaves nothing, for there would be a gap. */
void line_log_add(struct line_log *l, const json_t *event);
/* For the next head: {"before", "lines": [event, …]}, without lines of steps below `from`. A new
 * object; NULL: there is nothing. */
json_t *line_log_encode(const struct line_log *l, uint64_t from);
void line_log_clear(struct line_log *l);

#endif
