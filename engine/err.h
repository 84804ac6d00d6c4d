/* SPDX-License-Identifier: MIT
 *
 * One sentence about what went wrong, for the person who can mend it. The engine never logs: it fills this in
 * and returns a negative errno; the program decides what to print. */
#ifndef ENGINE_ERR_H
#define ENGINE_ERR_H

struct err {
    char text[512]; /* NUL-terminated UTF-8 without control characters; long texts are cut */
};

/* Writes the sentence and returns `code` (a negative errno), so that a failing function reads
 * `return err_set(err, -EINVAL, "…")`. `err` may be NULL. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the sentence already there: the caller knows which file, layer or node it was.
 * Returns code. */
int err_prefix(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
