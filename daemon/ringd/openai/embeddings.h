/* SPDX-License-Identifier: MIT
 *
 * /v1/embeddings of OpenAI. Pure: any thread. */
#ifndef DAEMON_OPENAI_EMBEDDINGS_H
#define DAEMON_OPENAI_EMBEDDINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/ringd/openai/completion_request.h"

enum { EMBEDDINGS_MAX = 2048 }; /* inputs of a request, as OpenAI */

struct embedding_request {
    json_t *json;                    /* owned */
    const char *model;               /* borrowed: json; NULL: not named */
    struct completion_prompt *input; /* owned [ninput] */
    size_t ninput;
    size_t dimensions; /* of each answer; 0: all that the model has */
    bool is_base64;    /* of f32, little-endian */
};

/* −EINVAL and the refusal; *ret is then untouched. */
int embedding_request_read(struct embedding_request *ret, json_t *json, struct refusal *refusal);
void embedding_request_done(struct embedding_request *request);

/* The answer. `values` [ninput * dim] are the embeddings of the inputs in turn. Of "dimensions" the
 * first are kept and brought to length 1 again, as OpenAI does with models that are trained so
 * (Kusupati et al., "Matryoshka representation learning", 2022). More than dim are refused. */
int embeddings_answer(json_t **ret, const struct embedding_request *request, const char *model,
                      const float *values, size_t dim, size_t prompt_tokens, struct refusal *refusal);

#endif
