/* SPDX-License-Identifier: MIT
 *
 * How many lines the journal gets of requests of clients. Pure. */
#ifndef DAEMON_VISIT_LINES_H
#define DAEMON_VISIT_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "net/clock.h"

/* So many lines a second: a client in a hurry must not push others out of the journal. */
struct visit_lines {
    struct instant since; /* of this second */
    unsigned n;           /* lines of it */
    uint64_t left_out;    /* since the last line; the next one says it */
};
/* May a line be written now? ret_left_out: how many were not, before it. */
bool visit_lines_take(struct visit_lines *lines, struct instant now, uint64_t *ret_left_out);

#endif
