/* SPDX-License-Identifier: MIT
 *
 * One sentence about what went wrong, for the person who can mend it. The engine never logs: it
 * fills this in and returns a negative errno; the program decides what to print. */
#ifndef ENGINE_ERR_H
#define ENGINE_ERR_H

#include <stddef.h>

struct err {
    char text[512]; /* NUL-terminated UTF-8 without control characters; long texts are cut */
};

/* Writes the sentence and returns `code` (a negative errno), so that a failing function reads
 * `return err_set(err, -EINVAL, "…")`. `err` may be NULL. With −EMFILE, strerror's text in the
 * sentence is replaced by one that names the limit. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the sentence already there: the caller knows which file, layer or node it
 * was. Returns code. */
int err_prefix(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Two amounts of bytes for one sentence ("needs 20.1 MiB and has 8.0 MiB"): both in the unit that
 * suits the larger one, with so many digits (at most three) that different amounts read
 * differently, and little memory not as none. */
struct err_amounts {
    char need[32], have[32];
};
struct err_amounts err_amounts(size_t need, size_t have);

#endif
