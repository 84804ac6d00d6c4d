/* SPDX-License-Identifier: MIT
 *
 * Stop strings: an answer ends before the first of them that is complete. Text that may be the
 * beginning of one is held back. Bytes come one at a time, so the cut does not depend on how tokens
 * divide the text. Of several that end with the same byte the longest counts. Pure: any thread. */
#ifndef DAEMON_OPENAI_STOP_SCAN_H
#define DAEMON_OPENAI_STOP_SCAN_H

#include <stddef.h>

enum {
    STOPS_MAX = 16,  /* of a request; OpenAI has 4 */
    STOP_BYTES = 256 /* of each */
};

/* All zero at the beginning, but for `texts` and `n`. */
struct stop_scan {
    const char *const *texts; /* borrowed [n]: none is empty or longer than STOP_BYTES */
    size_t n;
    char held[STOP_BYTES]; /* what may be the beginning of a stop string */
    size_t nheld;
};

/* Takes a byte. `out` gets what is no part of a stop string, and *ret_n how much that is. Returns
 * the stop string that is complete now; the text before it is in `out`. Else NULL. */
const char *stop_scan_push(struct stop_scan *scan, char byte, char out[STOP_BYTES], size_t *ret_n);
/* The text is at its end: what was held back. */
size_t stop_scan_end(struct stop_scan *scan, char out[STOP_BYTES]);

#endif
