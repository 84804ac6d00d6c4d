/* SPDX-License-Identifier: MIT
 *
 * What a value may be, in words: the same words for an option, a line of a configuration file and a
 * field of JSON. Pure: any thread. */
#ifndef DAEMON_RANGE_TEXT_H
#define DAEMON_RANGE_TEXT_H

#include <stddef.h>

enum { RANGE_TEXT = 160 };

/* "a whole number from 1 to 64". Below −2^63 and from 2^63 on a limit is none. */
void range_whole(char ret[RANGE_TEXT], double min, double max);
/* "a number from 0 to 0.5"; a limit that is infinite is none. */
void range_number(char ret[RANGE_TEXT], double min, double max);
/* "red, green or blue" of "red|green|blue". */
void range_words(char ret[RANGE_TEXT], const char *words);

#endif
