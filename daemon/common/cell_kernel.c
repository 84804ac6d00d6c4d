/* SPDX-License-Identifier: MIT */
#include "daemon/common/cell_kernel.h"

#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned cell_kernel_landlock(void)
{
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version > 0 ? (unsigned)version : 0;
}

bool cell_kernel_filters(void)
{
    const uint32_t action = SECCOMP_RET_ERRNO;
    return !syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action);
}
