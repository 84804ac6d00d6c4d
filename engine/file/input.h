/* SPDX-License-Identifier: MIT
 *
 * Small files read whole, and bits of them quoted in sentences. What is in them is untrusted. */
#ifndef FILE_INPUT_H
#define FILE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "err.h"

/* A file to read: what was lent to this process (lent.h) stands before the file system. The
 * caller closes it, and reads with pread or mmap, because a lent one has the offset of all others
 * of its kind. −errno. */
int input_open(const char *path);
/* As stat(2): 0 or −errno. Of a folder that was lent, only that it is one is known. */
int input_stat(const char *path, struct stat *ret);
bool input_is_there(const char *path);

/* The whole regular file, NUL-terminated (the NUL is not counted), in a fresh buffer the caller
 * frees. −ENOENT where there is none, −EFBIG above `limit` bytes; the sentence names the path. */
int input_read(const char *path, size_t limit, char **ret, size_t *ret_n, struct err *err);

/* DIR/NAME in a fresh string, or NULL without memory. */
char *input_path(const char *dir, const char *name);

/* Makes a folder for what is kept, its parents too; 0 where it is there already. −errno. */
int input_make_dir(const char *dir);

/* A foreign string, fit for a terminal and a sentence: cut to the struct, control characters shown
 * as '?'. */
struct input_quote {
    char text[80];
};
struct input_quote input_quote(const char *s);

#endif
