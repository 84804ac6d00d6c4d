/* SPDX-License-Identifier: MIT
 *
 * xalloc.h for what holds keys: memory of net/base/secret.h, and an end with a sentence when there
 * is none. Any thread. */
#ifndef DAEMON_XSECRET_H
#define DAEMON_XSECRET_H

#include <stddef.h>

void *xsecret(size_t n);           /* zeros; secret_free */
char *xsecret_text(const char *s); /* a copy; NULL stays NULL */

#endif
