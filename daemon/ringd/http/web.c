/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/http/web.h"

#include <string.h>

const struct web_asset *web_find(const char *path)
{
    for (size_t i = 0; i < n_web_assets; i++) {
        if (!strcmp(web_assets[i].path, path))
            return &web_assets[i];
    }
    return NULL;
}
