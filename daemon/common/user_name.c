/* SPDX-License-Identifier: MIT */
#include "daemon/common/user_name.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

void user_name(char *ret, size_t size)
{
    struct passwd entry, *found = NULL;
    char room[4096];
    if (!getpwuid_r(geteuid(), &entry, room, sizeof room, &found) && found)
        snprintf(ret, size, "%s", entry.pw_name);
    else
        snprintf(ret, size, "of id %u", geteuid());
}
