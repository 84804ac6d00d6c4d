/* SPDX-License-Identifier: MIT
 *
 * How a command of ringctl fails, and the arguments that several commands take. Owns nothing; every
 * command calls it. One thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/text_clean.h"
#include "daemon/ctl/ctl.h"

__attribute__((format(printf, 1, 0))) static void fail(const char *fmt, va_list ap)
{
    char text[4096], clean[sizeof text];
    vsnprintf(text, sizeof text, fmt, ap);
    text_clean(clean, sizeof clean, text, true);
    fprintf(stderr, "ringctl: %s\n", clean);
}

int ctl_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(fmt, ap);
    va_end(ap);
    return status;
}

int ctl_complain(const struct ctl *ctl, int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (ctl->complaint)
        vsnprintf(ctl->complaint, ctl->complaint_size, fmt, ap);
    else
        fail(fmt, ap);
    va_end(ap);
    return status;
}

int ctl_usage(const struct ctl *ctl, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "ringctl %s: ", ctl->command->name);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\nTry: ringctl %s --help\n", ctl->command->name);
    va_end(ap);
    return CTL_USAGE;
}

int ctl_no_args(const struct ctl *ctl)
{
    return ctl->n_args ? ctl_usage(ctl, "\"%s\": it takes no arguments", ctl->args[0]) : CTL_OK;
}

/* What may stand in a path as it is: a node's name has letters, digits and a few signs. */
static bool is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return *name && strlen(name) < 64 && !name[strspn(name, plain)];
}

int ctl_job_arg(const struct ctl *ctl, const char **ret)
{
    if (ctl->n_args != 1)
        return ctl_usage(ctl,
                         "give the name of one job, such as 7, or 7@b on node b: `ringctl jobs` lists them");
    char *end;
    errno = 0;
    unsigned long long id = strtoull(ctl->args[0], &end, 10);
    if ((*end && (*end != '@' || !is_plain(end + 1))) || errno || !id || !strchr("123456789", *ctl->args[0]))
        return ctl_usage(ctl, "\"%s\" is not the name of a job, such as 7 or 7@b: `ringctl jobs` lists them",
                         ctl->args[0]);
    *ret = ctl->args[0];
    return CTL_OK;
}
