/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ringd/systemd.h"

static enum log_level threshold = LOG_LEVEL_INFO; /* the one global beside main's arguments */

void log_set_level(const char *name)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (name && !strcmp(name, names[i]))
            threshold = (enum log_level)i;
}

/* systemd names device and inode of the stream it gave us; where standard error is still that, it
 * leads to the journal. */
static bool to_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && !fstat(STDERR_FILENO, &st) &&
           st.st_dev == device && st.st_ino == inode;
}

static bool send_entry(enum log_level level, const struct log_about *about, const char *text)
{
    static const char *const priority[] = {"3", "4", "6", "7"}; /* syslog(3) */
    char job[24], stage[16];
    struct systemd_field fields[7] = {
        {"MESSAGE", text}, {"PRIORITY", priority[level]}, {"SYSLOG_IDENTIFIER", "ringd"}};
    size_t n = 3;
    if (about->id)
        fields[n++] = (struct systemd_field){"MESSAGE_ID", about->id};
    snprintf(job, sizeof job, "%llu", (unsigned long long)about->job);
    if (about->job)
        fields[n++] = (struct systemd_field){"RINGD_JOB", job};
    if (about->peer)
        fields[n++] = (struct systemd_field){"RINGD_PEER", about->peer};
    snprintf(stage, sizeof stage, "%d", about->stage - 1);
    if (about->stage)
        fields[n++] = (struct systemd_field){"RINGD_STAGE", stage};
    return systemd_log(fields, n);
}

/* What the journal adds by itself, and nobody else: the priority of sd-daemon(3) as that reads it,
 * or time and level for a reader. */
static size_t begin_line(char *line, size_t size, enum log_level level, bool journal)
{
    static const char *const priority[] = {"<3>", "<4>", "<6>", "<7>"}, *const word[] = {
                                                                            "error: ", "warning: ", "", ""};
    struct timespec now;
    struct tm local;
    char at[32] = "";
    if (journal)
        return (size_t)snprintf(line, size, "%s", priority[level]);
    if (!clock_gettime(CLOCK_REALTIME, &now) && localtime_r(&now.tv_sec, &local))
        strftime(at, sizeof at, isatty(STDERR_FILENO) ? "%H:%M:%S " : "%F %H:%M:%S ", &local);
    return (size_t)snprintf(line, size, "%s%s", at, word[level]);
}

__attribute__((format(printf, 3, 0))) static void
write_line(enum log_level level, const struct log_about *about, const char *fmt, va_list ap)
{
    char line[1024];
    bool journal = to_journal();
    if (level > threshold)
        return;
    size_t n = begin_line(line, sizeof line, level, journal);
    size_t text = n;
    if (about->job)
        n += (size_t)snprintf(line + n, sizeof line - n, "job %llu: ", (unsigned long long)about->job);
    vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    if (journal && send_entry(level, about, line + text))
        return;
    size_t len = strlen(line);
    line[len] = '\n';
    if (write(STDERR_FILENO, line, len + 1) < 0)
        return; /* nowhere left to say it */
}

void log_line(enum log_level level, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(level, &(struct log_about){0}, fmt, ap);
    va_end(ap);
}

void log_about(enum log_level level, const struct log_about *about, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(level, about, fmt, ap);
    va_end(ap);
}
