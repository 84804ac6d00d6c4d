/* SPDX-License-Identifier: MIT
 *
 * Names of GGUF files: which path is one, and those of the parts of a split one. Pure, any
 * thread. */
#ifndef FILE_GGUF_PATH_H
#define FILE_GGUF_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* By its name alone: it ends with .gguf. */
bool gguf_is_path(const char *path);

/* NAME-00001-of-00003.gguf has three parts; every other path is one. */
enum { GGUF_PARTS_MOST = 4096 };
size_t gguf_path_parts(const char *path);
/* Which part this path is, from 0. */
size_t gguf_path_number(const char *path);
/* The path of one of them, in a fresh string; NULL without memory. */
char *gguf_path_part(const char *path, size_t part);

#endif
