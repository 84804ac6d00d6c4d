/* SPDX-License-Identifier: MIT
 *
 * Reasons of the system, as text. Called by net/ and by the programs; no state. */
#include "reason.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct reason reason_of(int error)
{
    struct reason reason;
    struct rlimit files;

    error = error < 0 ? -error : error;
    if (error == EMFILE && !getrlimit(RLIMIT_NOFILE, &files))
        snprintf(reason.text, sizeof reason.text,
                 "out of file descriptors: %llu allowed (ulimit -n / LimitNOFILE=)",
                 (unsigned long long)files.rlim_cur);
    else
        snprintf(reason.text, sizeof reason.text, "%s", strerror(error));
    return reason;
}
