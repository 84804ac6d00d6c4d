/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/completion_request.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/ringd/openai/completion_request_impl.h"

static int read_request(struct completion_request *ret, enum completion_api api, json_t *json,
                        bool count_only, struct refusal *refusal)
{
    struct completion_request r = {.api = api, .json = json_incref(json), .n = 1, .nprompts = 1};
    int rc = json_is_object(json)
                 ? 0
                 : refusal_set(refusal, REFUSAL_INVALID, NULL, "the body must be a JSON object");
    if (!rc)
        rc = request_read_text(&r.model, json, "model", REQUEST_MODEL_MAX, refusal);
    if (!rc && api == API_CHAT)
        rc = request_read_chat(&r, refusal);
    else if (!rc && api == API_COMPLETIONS)
        rc = request_read_completions(&r, refusal);
    else if (!rc)
        rc = request_read_messages(&r, count_only, refusal);
    if (rc)
        completion_request_done(&r);
    else
        *ret = r;
    return rc;
}

int completion_request_read(struct completion_request *ret, enum completion_api api, json_t *json,
                            struct refusal *refusal)
{
    return read_request(ret, api, json, false, refusal);
}

int completion_request_read_count(struct completion_request *ret, json_t *json, struct refusal *refusal)
{
    return read_request(ret, API_MESSAGES, json, true, refusal);
}

void completion_request_done(struct completion_request *r)
{
    free(r->prompts);
    free(r->sampling.biases);
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->template_args);
    json_decref(r->json);
}
