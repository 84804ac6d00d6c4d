/* SPDX-License-Identifier: MIT
 *
 * What the desk knows of one model, from the events of its stage. Loop thread. */
#ifndef DAEMON_DESK_MODEL_H
#define DAEMON_DESK_MODEL_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/openai/chat_format.h"
#include "daemon/ringd/serve/desk_stats.h"
#include "net/clock.h"

/* What a stage says of itself once it takes requests. */
struct desk_model {
    uint64_t job;
    struct chat_format format;
    size_t max_context; /* tokens of a prompt and its answer */
    size_t dim;         /* values of an embedding */
    size_t kv_blocks;
    json_t *load; /* owned: its last event "load", or NULL */
    struct desk_stats stats;
    double speed; /* tokens that it generated per second, lately; 0: it has nothing to do */
    struct desk_sample {
        struct instant at;
        uint64_t tokens;
    } since; /* from which on that is counted */
};
/* For people and programs; a new object. */
json_t *desk_model_encode(const struct desk_model *model);

/* A whole number of an event; 0: it has none. */
size_t desk_size_of(const json_t *event, const char *key);
/* Its event "load": how much it has to do now, and how fast it is. */
void desk_model_hear_load(struct desk_model *m, const json_t *event);

#endif
