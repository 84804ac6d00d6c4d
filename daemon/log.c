/* SPDX-License-Identifier: MIT */
#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum log_level threshold = LOG_LEVEL_INFO; /* the one global beside main's arguments */

void log_set_level(const char *name)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (name && !strcmp(name, names[i]))
            threshold = (enum log_level)i;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = {"<3>", "<4>", "<6>", "<7>"}; /* sd-daemon(3) */
    char line[1024];
    if (level > threshold)
        return;
    int n = snprintf(line, sizeof line, "%s", isatty(STDERR_FILENO) ? "" : prefix[level]);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    size_t len = strlen(line);
    line[len] = '\n';
    if (write(STDERR_FILENO, line, len + 1) < 0)
        return; /* nowhere left to say it */
}
