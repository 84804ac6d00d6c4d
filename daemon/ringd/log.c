/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/text_clean.h"
#include "daemon/ringd/systemd.h"

enum { HEAD_ROOM = 128 /* time, level and job */, TEXT_ROOM = 1024 };

/* The one global beside main's arguments. */
static struct {
    enum log_level threshold;
    uint64_t dropped, dropped_ever; /* lines: since the last one that got through, since the start */
} logger = {.threshold = LOG_LEVEL_INFO};

void log_set_level(const char *name)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (name && !strcmp(name, names[i]))
            logger.threshold = (enum log_level)i;
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

/* 0, or a negative errno. */
static int send_entry(enum log_level level, const struct log_about *about, const char *text)
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

/* A line goes out whole and at once, or not at all: a pipe with room for less than PIPE_BUF, or a
 * terminal that is held, is not writable. */
static bool write_at_once(const char *line, size_t n)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT))
        return false;
    return write(STDERR_FILENO, line, n) >= 0 || errno != EAGAIN; /* another error: nobody could read of it */
}

/* text: cleaned, shorter than TEXT_ROOM. False: the reader of the log is behind. */
static bool put_line(enum log_level level, const struct log_about *about, const char *text)
{
    char line[HEAD_ROOM + TEXT_ROOM];
    const bool journal = to_journal();
    const int r = journal ? send_entry(level, about, text) : -ENOENT;
    if (!r || r == -EAGAIN || r == -EWOULDBLOCK)
        return !r;
    size_t n = begin_line(line, sizeof line, level, journal);
    if (about->job)
        n += (size_t)snprintf(line + n, sizeof line - n, "job %llu: ", (unsigned long long)about->job);
    n += (size_t)snprintf(line + n, TEXT_ROOM, "%s", text);
    line[n] = '\n';
    return write_at_once(line, n + 1);
}

/* The first line that gets through after others did not says so. */
static bool tell_dropped(void)
{
    char text[96];
    if (!logger.dropped)
        return true;
    snprintf(text, sizeof text, "%llu lines of the log were lost: nobody read it in time",
             (unsigned long long)logger.dropped);
    if (!put_line(LOG_LEVEL_WARNING, &(struct log_about){0}, text))
        return false;
    logger.dropped = 0;
    return true;
}

__attribute__((format(printf, 3, 0))) static void
write_line(enum log_level level, const struct log_about *about, const char *fmt, va_list ap)
{
    char whole[TEXT_ROOM], text[TEXT_ROOM];
    if (level > logger.threshold)
        return;
    vsnprintf(whole, sizeof whole, fmt, ap);
    text_clean(text, sizeof text, whole, false);
    if (tell_dropped() && put_line(level, about, text))
        return;
    logger.dropped++;
    logger.dropped_ever++;
}

uint64_t log_dropped(void)
{
    return logger.dropped_ever;
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
