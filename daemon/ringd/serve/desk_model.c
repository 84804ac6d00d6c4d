/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/serve/desk_model.h"

enum { SPEED_US = 900000 /* a busy stage reports each second */ };

size_t desk_size_of(const json_t *event, const char *key)
{
    const json_int_t value = json_integer_value(json_object_get(event, key));
    return value > 0 ? (size_t)value : 0;
}

/* Between two reports that lie far enough apart. A stage that began afresh counts from 0. */
static void measure_speed(struct desk_model *m, const json_t *event)
{
    const struct desk_sample now = {clock_now(), desk_size_of(event, "generated_tokens")};
    const int64_t us = clock_since_us(now.at, m->since.at);
    const bool has_work = desk_size_of(event, "running") + desk_size_of(event, "waiting") > 0;
    if (m->load && now.tokens >= m->since.tokens && us >= SPEED_US)
        m->speed = (double)(now.tokens - m->since.tokens) * 1e6 / (double)us;
    if (!has_work)
        m->speed = 0;
    if (!m->load || !has_work || now.tokens < m->since.tokens || us >= SPEED_US)
        m->since = now;
}

void desk_model_hear_load(struct desk_model *m, const json_t *event)
{
    measure_speed(m, event);
    json_decref(m->load);
    m->load = json_deep_copy(event);
    json_object_del(m->load, "ev"); /* it is shown as it is */
}

json_t *desk_model_encode(const struct desk_model *m)
{
    return json_pack("{s:I s:I s:I s:f s:O?}", "max_context", (json_int_t)m->max_context, "dim",
                     (json_int_t)m->dim, "kv_blocks", (json_int_t)m->kv_blocks, "tokens_per_second", m->speed,
                     "load", m->load);
}
