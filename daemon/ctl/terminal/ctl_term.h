/* SPDX-License-Identifier: MIT
 *
 * What ringctl knows of the terminal it writes on: how wide it is, and whether it wants colours.
 * One thread. */
#ifndef DAEMON_CTL_TERM_H
#define DAEMON_CTL_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TERM_NO_LIMIT = 0 };
/* Columns of the terminal behind a stream, TERM_NO_LIMIT where it is none: files and pipes get
 * whole lines. */
size_t term_width(FILE *to);
size_t term_height(FILE *to); /* lines, as above */

/* --color auto, always or never, kept in the environment as NO_COLOR or CLICOLOR_FORCE, so that a
 *  ringctl started by this one (ringctl local) does the same. */
void term_set_colors(const char *when);
bool term_has_colors(FILE *to);

enum paint { PAINT_NONE, PAINT_HEAD, PAINT_GOOD, PAINT_BUSY, PAINT_WAIT, PAINT_BAD, PAINT_DIM };
/* The paint of a word of state ("up", "failed", …), PAINT_NONE for others. */
enum paint paint_of_state(const char *word, size_t bytes);
/* Escape sequences; "" for PAINT_NONE. */
const char *paint_on(enum paint paint);
const char *paint_off(enum paint paint);

/* Columns of UTF-8 text. */
size_t text_columns(const char *text, size_t bytes);
/* Bytes of the first `columns` columns. */
size_t text_bytes(const char *text, size_t bytes, size_t columns);

#endif
