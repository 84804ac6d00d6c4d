/* SPDX-License-Identifier: MIT
 *
 * Which numbers of a sender were heard already, so that nobody repeats them: a window that slides
 * with the highest one, as RFC 6479 has it. PURE; no memory of its own. */
#ifndef NET_REPLAY_H
#define NET_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    REPLAY_WORDS = 16,
    REPLAY_WINDOW = (REPLAY_WORDS - 1) * 64, /* so far behind the highest number one may come */
};
struct replay { /* all zero: nothing heard yet */
    uint64_t highest;
    uint64_t seen[REPLAY_WORDS];
};

/* A number from 1 on that was not noted, and is not too old to tell. */
bool replay_is_new(const struct replay *r, uint64_t number);
void replay_note(struct replay *r, uint64_t number); /* of one that is new */

#endif
