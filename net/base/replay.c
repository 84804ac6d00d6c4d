/* SPDX-License-Identifier: MIT */
#include "replay.h"

#include <stddef.h>

/* A number's word stands in the ring of words at its place; the word ahead of the highest is kept
 * out of the window, so that a whole word can be cleared when the window enters it. */
static size_t word_of(uint64_t number)
{
    return number / 64 % REPLAY_WORDS;
}

static uint64_t bit_of(uint64_t number)
{
    return UINT64_C(1) << number % 64;
}

bool replay_is_new(const struct replay *r, uint64_t number)
{
    if (number > r->highest)
        return true;
    if (!number || r->highest - number >= REPLAY_WINDOW)
        return false;
    return !(r->seen[word_of(number)] & bit_of(number));
}

void replay_note(struct replay *r, uint64_t number)
{
    if (number > r->highest) {
        uint64_t first = r->highest / 64 + 1, last = number / 64;

        for (size_t i = 0; i < REPLAY_WORDS && first <= last; i++, first++)
            r->seen[first % REPLAY_WORDS] = 0;
        r->highest = number;
    }
    r->seen[word_of(number)] |= bit_of(number);
}
