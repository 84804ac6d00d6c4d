/* SPDX-License-Identifier: MIT */
#include "file/boot_id.h"

#include <stdio.h>

void boot_id(char ret[BOOT_ID])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || fscanf(f, "%63s", ret) != 1)
        snprintf(ret, BOOT_ID, "-");
    if (f)
        fclose(f);
}
