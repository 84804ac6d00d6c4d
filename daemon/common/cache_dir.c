/* SPDX-License-Identifier: MIT */
#include "daemon/common/cache_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int cache_dir(char *ret, size_t size, const char *what, struct err *err)
{
    const char *own = getenv("CACHE_DIRECTORY"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = own && *own     ? snprintf(ret, size, "%s/%s", own, what)
            : xdg && *xdg   ? snprintf(ret, size, "%s/ringd/%s", xdg, what)
            : home && *home ? snprintf(ret, size, "%s/.cache/ringd/%s", home, what)
                            : -1;
    return n > 0 && (size_t)n < size
               ? 0
               : err_set(err, -ENOENT,
                         "ringd has no folder to keep %s: start it with CACHE_DIRECTORY set to one", what);
}
