/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/serve/serve_metrics.h"

const double latency_ends[LATENCY_ENDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                           0.5,   1,      2.5,   5,    10,    25,   50,  100};

void latencies_add(struct latencies *l, uint64_t us)
{
    const double seconds = 1e-6 * (double)us;
    size_t i = 0;
    while (i < LATENCY_ENDS && seconds > latency_ends[i])
        i++;
    if (i < LATENCY_ENDS)
        l->bucket[i]++;
    l->n++;
    l->sum += seconds;
}

enum call_outcome call_outcome_of(unsigned status)
{
    return status < 400          ? CALL_ANSWERED
           : status == HTTP_LEFT ? CALL_LEFT
           : status < 500        ? CALL_REFUSED
                                 : CALL_FAILED;
}

const char *call_outcome_name(enum call_outcome outcome)
{
    static const char *const names[CALL_OUTCOMES] = {"answered", "left", "refused", "failed"};
    return names[outcome];
}

void serve_metrics_call(struct serve_metrics *m, unsigned status, uint64_t us)
{
    const enum call_outcome outcome = call_outcome_of(status);
    m->calls[outcome]++;
    if (outcome == CALL_ANSWERED)
        latencies_add(&m->whole, us);
}
