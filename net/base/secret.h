/* SPDX-License-Identifier: MIT
 *
 * Memory for what holds keys: no core has it, it is not swapped out where the limit of locked
 * memory allows that, a page that nobody may touch lies behind it, and it is wiped when it is let
 * go. Each piece takes pages of its own, so this is for few objects, whole ones. Any thread. */
#ifndef NET_SECRET_H
#define NET_SECRET_H

#include <stddef.h>

void *secret_new(size_t n); /* zeros; NULL: no memory */
void secret_free(void *p);  /* NULL is nothing */

#endif
