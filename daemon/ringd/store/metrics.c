/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/store/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

static const double bucket_ends[METRICS_BUCKETS] = METRICS_BUCKET_ENDS;
static const char *const end_states[METRICS_END_STATES] = METRICS_END_NAMES;

struct metrics {
    struct metrics_counts counts;
    json_t *last; /* owned: name → bytes at the last sample, from which rates come */
};

struct metrics *metrics_new(void)
{
    struct metrics *m = xcalloc(1, sizeof *m);
    m->last = json_object();
    return m;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    json_decref(m->last);
    free(m);
}

void metrics_event(struct metrics *m, const char *kind, const json_t *event)
{
    double seconds = json_number_value(json_object_get(event, "step_seconds"));
    if (!strcmp(kind, "token"))
        m->counts.generated++;
    if (strcmp(kind, "step") || seconds <= 0)
        return;
    size_t i = 0;
    while (i < METRICS_BUCKETS && seconds > bucket_ends[i])
        i++;
    if (i < METRICS_BUCKETS)
        m->counts.bucket[i]++;
    m->counts.steps++;
    m->counts.step_seconds += seconds;
    m->counts.tokens += (uint64_t)json_integer_value(json_object_get(event, "tokens"));
    m->counts.bubble = json_number_value(json_object_get(event, "bubble"));
}

void metrics_job_ended(struct metrics *m, const char *state)
{
    for (size_t i = 0; i < METRICS_END_STATES; i++)
        m->counts.ended[i] += !strcmp(state, end_states[i]);
}

void metrics_message_dropped(struct metrics *m)
{
    m->counts.messages_dropped++;
}

void metrics_request(struct metrics *m, const char *route, unsigned status)
{
    size_t i = 0;
    route = route ? route : "other";
    while (i + 1 < METRICS_ROUTES && m->counts.requests[i].route && m->counts.requests[i].route != route)
        i++;
    m->counts.requests[i].route = route;
    m->counts.requests[i].count[status / 100 < METRICS_CLASSES ? status / 100 : 0]++;
}

const struct metrics_counts *metrics_counts(const struct metrics *m)
{
    return &m->counts;
}

/* --- series ----------------------------------------------------------------------------------- */

void metrics_add(json_t *rows, const char *name, int64_t now, double value)
{
    json_array_append_new(rows, json_pack("[s,I,f]", name, (json_int_t)now, value));
}

/* What a counter gained a second; nothing to say at first, or when it began anew. */
void metrics_add_rate(struct metrics *m, json_t *rows, const char *name, int64_t now, double seconds,
                      double total)
{
    const json_t *before = json_object_get(m->last, name);
    double gained = total - json_number_value(before);
    if (before && seconds > 0 && gained >= 0)
        metrics_add(rows, name, now, gained / seconds);
    json_object_set_new(m->last, name, json_real(total));
}
