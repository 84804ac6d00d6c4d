/* SPDX-License-Identifier: MIT */
#include "secret.h"

#include <sodium.h>
#include <string.h>

void *secret_new(size_t n)
{
    /* What follows the last byte is checked when it is freed; what goes before it, begins on a
     * multiple of 16 only if the size is one. */
    const size_t size = (n + 15) & ~(size_t)15;
    void *p = size >= n && sodium_init() >= 0 ? sodium_malloc(size) : NULL;

    return p ? memset(p, 0, size) : NULL;
}

void secret_free(void *p)
{
    sodium_free(p);
}
