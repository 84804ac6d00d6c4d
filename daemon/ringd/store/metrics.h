/* SPDX-License-Identifier: MIT
 *
 * What is counted since the start, and the rates of series between two samples. metrics_text shows
 * the counts. Loop thread. */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct metrics;

enum {
    METRICS_ROUTES = 64,
    METRICS_CLASSES = 6 /* of status: 1xx … 5xx */,
    METRICS_BUCKETS = 10,
    METRICS_END_STATES = 3
};

#define METRICS_BUCKET_ENDS                                                                                  \
    {                                                                                                        \
        0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300                                                         \
    } /* seconds */
#define METRICS_END_NAMES                                                                                    \
    {                                                                                                        \
        "done", "failed", "cancelled"                                                                        \
    }

struct metrics_counts {
    uint64_t steps, tokens, generated, ended[METRICS_END_STATES];
    uint64_t messages_dropped;        /* of other daemons: a wrong sender, a wrong field */
    uint64_t bucket[METRICS_BUCKETS]; /* steps not longer than that, and longer than the one before */
    double step_seconds, bubble;
    struct {
        const char *route; /* borrowed: the API's table */
        uint64_t count[METRICS_CLASSES];
    } requests[METRICS_ROUTES];
};

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);

/* An event of a job submitted here: "step" and "token" count. */
void metrics_event(struct metrics *m, const char *kind, const json_t *event);
void metrics_job_ended(struct metrics *m, const char *state);
void metrics_message_dropped(struct metrics *m);
/* route: of the API's table (it is kept by its address), NULL for one that is none. */
void metrics_request(struct metrics *m, const char *route, unsigned status);

const struct metrics_counts *metrics_counts(const struct metrics *m);

/* Adds [name, time, value] to rows. */
void metrics_add(json_t *rows, const char *name, int64_t now, double value);
/* The same with what a counter gained a second; nothing at first, or when it began anew. */
void metrics_add_rate(struct metrics *m, json_t *rows, const char *name, int64_t now, double seconds,
                      double total);

#endif
