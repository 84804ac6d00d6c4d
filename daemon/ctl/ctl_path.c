/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by the commands that hand a path to the daemon, or compare one with the
 * daemon's. One thread. */
#include "daemon/ctl/ctl_path.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "engine/file/gguf_path.h"

bool ctl_model_is_name(const char *text)
{
    return model_name_is(text) && access(text, F_OK);
}

char *ctl_absolute_path(const char *path)
{
    char *resolved = realpath(path, NULL);
    if (resolved && gguf_is_path(path) == gguf_is_path(resolved))
        return resolved;
    free(resolved); /* a link to a blob: what it is shows in its own name */
    /* Of a folder that is not there yet, the one it will lie in: so it has the same name before and
     * after. */
    char *own = xstrdup(path);
    for (size_t n = strlen(own); n > 1 && own[n - 1] == '/'; n--)
        own[n - 1] = '\0';
    char *slash = strrchr(own, '/'), *name = slash ? slash + 1 : own;
    char *folder = realpath(!slash ? "." : slash == own ? "/" : (*slash = '\0', own), NULL);
    char *cwd = folder || *path == '/' ? NULL : getcwd(NULL, 0);
    char *joined = folder ? xasprintf("%s/%s", strcmp(folder, "/") ? folder : "", name)
                   : cwd  ? xasprintf("%s/%s", cwd, path)
                          : xstrdup(path);
    free(folder);
    free(own);
    free(cwd);
    return joined;
}
