/* SPDX-License-Identifier: MIT
 *
 * What is counted of requests for a model that is served, since its job began here: how long each
 * step of an answer took, and how requests ended. /metrics shows it (api/metrics_serve.c). Pure. */
#ifndef DAEMON_SERVE_METRICS_H
#define DAEMON_SERVE_METRICS_H

#include <stddef.h>
#include <stdint.h>

enum { LATENCY_ENDS = 16 };
extern const double latency_ends[LATENCY_ENDS]; /* seconds, rising */

struct latencies {
    uint64_t bucket[LATENCY_ENDS]; /* not longer than that, and longer than the end before */
    uint64_t n;                    /* all, also those longer than every end */
    double sum;                    /* seconds */
};
void latencies_add(struct latencies *l, uint64_t us);

enum call_outcome { CALL_ANSWERED, CALL_LEFT, CALL_REFUSED, CALL_FAILED, CALL_OUTCOMES };
/* By a status of HTTP, or HTTP_LEFT. */
enum call_outcome call_outcome_of(unsigned status);
const char *call_outcome_name(enum call_outcome outcome);

struct serve_metrics {
    struct latencies queue;          /* from the request until its prompt is begun */
    struct latencies first_token;    /* from the request until its first token */
    struct latencies between_tokens; /* of one answer; 0 for those that come together */
    struct latencies whole;          /* of calls that were answered */
    uint64_t calls[CALL_OUTCOMES];
};
/* A call has ended with that status, after so long. */
void serve_metrics_call(struct serve_metrics *m, unsigned status, uint64_t us);

#endif
