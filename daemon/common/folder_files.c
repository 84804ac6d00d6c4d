/* SPDX-License-Identifier: MIT */
#include "daemon/common/folder_files.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool folder_file_is_read(const char *name)
{
    static const char *const endings[] = {".json", ".jsonl", ".jinja", ".safetensors", ".have"};
    const char *ending = *name == '.' ? NULL : strrchr(name, '.');
    for (size_t i = 0; ending && i < sizeof endings / sizeof *endings; i++)
        if (!strcmp(ending, endings[i]))
            return true;
    return false;
}

static bool may_lead_to(const char *real, const char *slash, const char *folder)
{
    const char *ending = strrchr(slash, '.');
    char path[PATH_MAX + 16];
    if (ending && (!strcmp(ending, ".safetensors") || !strcmp(ending, ".jsonl")))
        return true;
    snprintf(path, sizeof path, "%.*s/config.json", (int)(slash - real), real);
    if (!access(path, F_OK))
        return true;
    snprintf(path, sizeof path, "%s", folder);
    for (int up = 0; up < 2; up++) {
        char *last = strrchr(path, '/');
        if (!last || (up == 1 && strcmp(last, "/snapshots")))
            return false;
        *last = '\0';
    }
    strcat(path, "/blobs/");
    return !strncmp(real, path, strlen(path));
}

bool folder_file_may_lie(const char *real, const char *folder)
{
    const char *slash = strrchr(real, '/');
    const size_t n = strlen(folder);
    if (!slash)
        return false;
    return (n == (size_t)(slash - real) && !strncmp(real, folder, n)) || may_lead_to(real, slash, folder);
}
