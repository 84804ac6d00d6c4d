/* SPDX-License-Identifier: MIT
 *
 * Why a system call failed, as part of a sentence. Like strerror(3), but a limit of this process is
 * named with its number and with the settings that raise it. */
#ifndef NET_REASON_H
#define NET_REASON_H

struct reason {
    char text[96];
};
/* `error` is an errno, negative or not. Any thread. */
struct reason reason_of(int error);

#endif
