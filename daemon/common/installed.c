/* SPDX-License-Identifier: MIT */
#include "daemon/common/installed.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"

/* The folder of the running program, without a slash at its end; NULL where /proc is missing. The
 * caller frees. */
static char *own_folder(void)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return NULL;
    self[n] = '\0';
    *strrchr(self, '/') = '\0'; /* also of "…/ringd (deleted)", after an upgrade */
    return xstrdup(self);
}

/* PREFIX of PREFIX/bin and PREFIX/sbin, "" of /bin; NULL for a folder that no installation has. The
 * caller frees. */
static char *own_prefix(void)
{
    char *folder = own_folder(), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash && (!strcmp(slash, "/bin") || !strcmp(slash, "/sbin"))) {
        *slash = '\0';
        return folder;
    }
    free(folder);
    return NULL;
}

static int check_program(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EISDIR;
    return access(path, X_OK) ? -errno : 0;
}

char *installed_program(const char *name, const char *folder)
{
    char *own = own_folder(), *prefix = own_prefix();
    char *path = xasprintf("%s/%s", own ? own : ".", name);
    if (prefix && check_program(path)) {
        free(path);
        path = xasprintf("%s/%s/%s", prefix, folder, name);
    }
    free(own);
    free(prefix);
    return path;
}

char *installed_file(const char *path)
{
    char *prefix = own_prefix(), *file = prefix ? xasprintf("%s/%s", prefix, path) : NULL;
    free(prefix);
    if (!file || !access(file, F_OK))
        return file;
    free(file);
    return NULL;
}

int installed_check_stage(const char *path, struct err *err)
{
    int r = check_program(path);
    return !r ? 0
              : err_set(err, r,
                        "ringd-stage cannot be started from %s: %s; every job needs it: install ringd again, "
                        "or name the program with --stage-binary",
                        path, strerror(-r));
}
