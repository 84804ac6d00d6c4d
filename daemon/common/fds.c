/* SPDX-License-Identifier: MIT
 *
 * The limit of file descriptors. Called by main.c at start and by http.c; no state. */
#include "daemon/common/fds.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#define WAY_OUT "raise the limit with `ulimit -n`, or of a service with LimitNOFILE="

size_t fds_allowed(void)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > SIZE_MAX ? SIZE_MAX : (size_t)files.rlim_cur;
}

int fds_raise(char ret_note[256], struct err *err)
{
    struct rlimit files;
    ret_note[0] = '\0';
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* if it is refused, the old limit is judged */
    }
    size_t allowed = fds_allowed();
    if (allowed < FDS_LEAST)
        return err_set(err, -EINVAL,
                       "%zu file descriptors are allowed, and ringd needs at least %d: " WAY_OUT, allowed,
                       FDS_LEAST);
    if (allowed < FDS_ENOUGH)
        snprintf(ret_note, 256, "%zu file descriptors are allowed, and a busy node needs up to %d: " WAY_OUT,
                 allowed, FDS_ENOUGH);
    return 0;
}
