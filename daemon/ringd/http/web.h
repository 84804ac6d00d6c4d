/* SPDX-License-Identifier: MIT
 *
 * The dashboard's files, as they were in web/ (those of dygraphs and marked in Debian's packages)
 * when ringd was built. The table is made by web/embed and never changes. web_find is called by
 * api.c, on the loop thread. */
#ifndef DAEMON_WEB_H
#define DAEMON_WEB_H

#include <stddef.h>

struct web_asset {
    const char *path;       /* as a browser asks for it */
    const char *type, *tag; /* Content-Type; ETag, quoted */
    const char *begin, *end;
};
extern const struct web_asset web_assets[];
extern const size_t n_web_assets;

/* NULL: no such file. */
const struct web_asset *web_find(const char *path);

#endif
