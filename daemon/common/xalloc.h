/* SPDX-License-Identifier: MIT
 *
 * Small bookkeeping memory of the programs: aborts with a sentence when there is none (a few
 * kilobytes that cannot be had mean the machine is lost). Never for tensors or anything whose size
 * a peer or a file decides. Any thread. */
#ifndef DAEMON_XALLOC_H
#define DAEMON_XALLOC_H

#include <stddef.h>

void *xmalloc(size_t n);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *p, size_t n);
void *xreallocarray(void *p, size_t count, size_t size);
char *xstrdup(const char *s); /* NULL stays NULL */
char *xstrndup(const char *s, size_t n);
void *xmemdup(const void *p, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
