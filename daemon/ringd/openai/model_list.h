/* SPDX-License-Identifier: MIT
 *
 * /v1/models and /v1/models/NAME, in the form of OpenAI or Anthropic: both clients ask the same
 * routes, and Anthropic's sends a header anthropic-version. Pure: any thread. */
#ifndef DAEMON_OPENAI_MODEL_LIST_H
#define DAEMON_OPENAI_MODEL_LIST_H

#include <jansson.h>
#include <stddef.h>
#include <time.h>

struct served_model {
    const char *name;
    time_t created;     /* when it was put in place */
    size_t max_context; /* tokens; 0: unknown, the answer leaves it out */
    const char *parent; /* of an adapter: the model that it is for; else NULL */
};

json_t *model_openai(const struct served_model *model);
json_t *model_anthropic(const struct served_model *model);
json_t *model_list_openai(const struct served_model *models, size_t n);
json_t *model_list_anthropic(const struct served_model *models, size_t n);

#endif
