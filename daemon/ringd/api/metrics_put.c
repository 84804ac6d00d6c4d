/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/api/metrics_put.h"

#include <string.h>

void put_metric(FILE *to, const char *name, const char *type, const char *help)
{
    fprintf(to, "# HELP ringd_%s %s\n# TYPE ringd_%s %s\n", name, help, name, type);
}

void put_single(FILE *to, const char *name, const char *type, const char *help, double value)
{
    put_metric(to, name, type, help);
    fprintf(to, "ringd_%s %.17g\n", name, value);
}

void put_label(FILE *to, const char *name, const char *value)
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
