/* SPDX-License-Identifier: MIT
 *
 * The daemon's only logger: one line to standard error, with the time of day (on a terminal) or
 * date and time (in a file) before it. Where standard error is the journal, which $JOURNAL_STREAM
 * says, it is an entry with fields, so that `journalctl RINGD_JOB=7` finds what was said of a job.
 * Nothing waits for a reader: while a pipe is full or journald stands still, lines are dropped and
 * counted, and the next one that gets through says how many. Lines are cleaned (text_clean.h).
 * Loop thread. */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* What happened, for those who look for it: MESSAGE_ID= in the journal, explained in
 * systemd/ringd.catalog (`journalctl -x`). */
#define LOG_ID_JOB_FAILED "ff2224d66fc845b5b762b0cac62fdfb0"
#define LOG_ID_STAGE_FAILED "263b17c56caa40cf8dab4c46f971f92b"
#define LOG_ID_NODE_LOST "ae74e7170fab42eda71098b47ed9299e"

/* What a line is about; zero and NULL: nothing of the kind. */
struct log_about {
    const char *id;   /* LOG_ID_… */
    uint64_t job;     /* RINGD_JOB=; the line begins with it */
    const char *peer; /* RINGD_PEER=: a node's name */
    int stage;        /* RINGD_STAGE=: rank + 1 */
};

uint64_t log_dropped(void);           /* lines that nobody read in time, since the start */
void log_set_level(const char *name); /* "error" … "debug" */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_about(enum log_level level, const struct log_about *about, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
/* Of a job: "job 7: …" */
#define log_job(level, number, ...) log_about(level, &(struct log_about){.job = (number)}, __VA_ARGS__)
/* Of the stage of that rank here. */
#define log_stage(level, number, rank, ...)                                                                  \
    log_about(level, &(struct log_about){.job = (number), .stage = (rank) + 1}, __VA_ARGS__)
/* About the node of that name. */
#define log_peer(level, name, ...) log_about(level, &(struct log_about){.peer = (name)}, __VA_ARGS__)

#endif
