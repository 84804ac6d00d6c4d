/* SPDX-License-Identifier: MIT */
#include "file/gguf_path.h"

#include <stdio.h>
#include <string.h>

bool gguf_is_path(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && !strcmp(path + n - 5, ".gguf");
}

/* Where "00001-of-00003.gguf" begins; 0: it does not end so. */
static size_t read_numbers(const char *path, size_t *ret_no, size_t *ret_of)
{
    static const size_t tail = sizeof "00001-of-00003.gguf" - 1;
    const size_t n = strlen(path);
    int used = 0;
    if (n <= tail || path[n - tail - 1] != '-' ||
        sscanf(path + n - tail, "%5zu-of-%5zu.gguf%n", ret_no, ret_of, &used) != 2 || (size_t)used != tail)
        return 0;
    return *ret_no >= 1 && *ret_no <= *ret_of && *ret_of <= GGUF_PARTS_MOST ? n - tail : 0;
}

size_t gguf_path_parts(const char *path)
{
    size_t no, of;
    return read_numbers(path, &no, &of) ? of : 1;
}

size_t gguf_path_number(const char *path)
{
    size_t no, of;
    return read_numbers(path, &no, &of) ? no - 1 : 0;
}

char *gguf_path_part(const char *path, size_t part)
{
    size_t no, of;
    char *ret;
    const size_t at = read_numbers(path, &no, &of);
    if (!at)
        return strdup(path);
    return asprintf(&ret, "%.*s%05zu-of-%05zu.gguf", (int)at, path, part + 1, of) < 0 ? NULL : ret;
}
