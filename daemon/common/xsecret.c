/* SPDX-License-Identifier: MIT */
#include "daemon/common/xsecret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/base/secret.h"

void *xsecret(size_t n)
{
    void *p = secret_new(n);
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes of keys\n", n);
        abort();
    }
    return p;
}

char *xsecret_text(const char *s)
{
    return s ? memcpy(xsecret(strlen(s) + 1), s, strlen(s) + 1) : NULL;
}
