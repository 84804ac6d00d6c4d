/* SPDX-License-Identifier: MIT
 *
 * Whose rights this process has, for sentences about files that it cannot open. Any thread; may
 * ask a directory of users, which may be slow. */
#ifndef DAEMON_USER_NAME_H
#define DAEMON_USER_NAME_H

#include <stddef.h>

/* Its name, or "of id 998" where it has none. */
void user_name(char *ret, size_t size);

#endif
