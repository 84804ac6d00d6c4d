/* SPDX-License-Identifier: MIT
 *
 * The last words of a stage process that a mapped file ends: a page that is no longer in the file,
 * or cannot be read, arrives as SIGBUS. They are written to the page that is shared with the daemon
 * (progress.h). Called once, by the process's main thread. */
#ifndef DAEMON_STAGE_FAULTS_H
#define DAEMON_STAGE_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress;

/* page: borrowed until the process ends. */
void faults_watch(struct progress *page);

/* PURE, and safe in a signal handler, as the next. A line of /proc/PID/maps: where it begins and
 * ends in memory and the file, and its path in the line, NULL where it is none. */
struct fault_mapping {
    uintptr_t begin, end;
    uint64_t offset;
    const char *path; /* borrowed: the line */
};
bool fault_parse(struct fault_mapping *ret, const char *line);
/* ret: "had to end: …" */
void fault_describe(char *ret, size_t size, const char *path, bool is_shorter);

#endif
