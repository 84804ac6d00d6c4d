/* SPDX-License-Identifier: MIT
 *
 * The one place net/ asks the kernel for the time. Any thread. */
#include "clock.h"

#include <time.h>

struct instant clock_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (struct instant){(uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000};
}
