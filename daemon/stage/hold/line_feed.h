/* SPDX-License-Identifier: MIT
 *
 * What rank 0 says of its steps goes to its own daemon, and with GO to rank 1 as well, whose daemon
 * keeps it (ringd/job/survive/line_log.h). GO of a round has what was said up to the round before,
 * and copies of a step are whole in the round after it: so a head that is lost with its last words
 * costs no step of which there are copies. This is the queue of rank 0: JSON objects, a line each.
 * Main thread of ringd-stage. */
#ifndef DAEMON_STAGE_LINE_FEED_H
#define DAEMON_STAGE_LINE_FEED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/common/job_plan.h"

/* Bytes that wait, at most. */
enum { LINE_FEED_MOST = 1 << 20 };

struct line_feed {
    char *text; /* owned [n]: whole lines */
    size_t n, room;
    bool is_over; /* there was too much: nothing more goes, for it would leave a gap */
};

void line_feed_done(struct line_feed *f);
/* line: borrowed. Without room for it, or memory, the feed is over. */
void line_feed_add(struct line_feed *f, const json_t *line);
/* Bytes at the beginning of f->text that go with a GO, which has room for so many: whole lines. */
size_t line_feed_next(struct line_feed *f, size_t room);
void line_feed_sent(struct line_feed *f, size_t n);

/* Bytes of lines in a GO, at most: those of the steps of a round, and a sample. 0: the job has no
 * copies. */
static inline size_t line_feed_room(const struct job_plan *plan)
{
    return plan->copies && plan->ranks > 1 ? (32 + plan->round_steps) * 512 : 0;
}

#endif
