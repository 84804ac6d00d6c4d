/* SPDX-License-Identifier: MIT
 *
 * The timelines of every step of one job, for one reader who takes them while the job runs. The
 * text that waits for the reader is capped: a step that does not fit is left out and counted. Owned
 * by the job; loop thread. */
#ifndef DAEMON_TIMELINES_H
#define DAEMON_TIMELINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timelines;

struct timelines *timelines_new(void);
/* Ends the stream as it is. Before http_stop. */
void timelines_free(struct timelines *t);

/* One step. Takes the reference. It waits for the reader, also for the first one to come. */
void timelines_add(struct timelines *t, json_t *timeline);
/* The job has ended: the last event says how many steps were written, and how many are missing:
 * `dropped` and those that did not fit. */
void timelines_end(struct timelines *t, uint64_t dropped);

/* Who takes the text, as http_feed.h says it; `end` also frees it. */
struct timelines_reader {
    void (*put)(void *owner, const char *text, size_t n);
    size_t (*waiting)(void *owner);
    bool (*is_open)(void *owner);
    void (*end)(void *owner);
    void *owner;
};
bool timelines_is_read(const struct timelines *t); /* there is a reader, and there can be one */
void timelines_read(struct timelines *t, const struct timelines_reader *reader);
/* The reader has taken what there was, or has left. */
void timelines_reader_changed(struct timelines *t);

#endif
