/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/metrics_write.h"

#include <string.h>

void metrics_describe(FILE *to, const char *name, const char *type, const char *help)
{
    fprintf(to, "# HELP ringd_%s %s\n# TYPE ringd_%s %s\n", name, help, name, type);
}

void metrics_label(FILE *to, const char *name, const char *value)
{
    fprintf(to, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            fputs("\\n", to);
        else if (strchr("\\\"", *value))
            fprintf(to, "\\%c", *value);
        else
            fputc(*value, to);
    }
    fputc('"', to);
}
