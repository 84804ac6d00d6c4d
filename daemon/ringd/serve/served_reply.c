/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/http/http.h"
#include "daemon/ringd/serve/served.h"

static void reply(struct http_call *call, unsigned status, json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT);
    http_reply(call, (int)status, "application/json", text ? text : "{}", text ? strlen(text) : 2);
    free(text);
    json_decref(answer);
}

json_t *served_request(const struct served *served, json_t *request)
{
    if (served->adapter)
        json_object_set_new(request, "adapter", json_string(served->adapter));
    return request;
}

unsigned served_status(bool is_anthropic, const struct refusal *refusal)
{
    return is_anthropic ? refusal_anthropic_status(refusal) : refusal_openai_status(refusal);
}

unsigned served_refuse(struct http_call *call, bool is_anthropic, const struct refusal *refusal)
{
    const unsigned status = served_status(is_anthropic, refusal);
    reply(call, status, is_anthropic ? refusal_anthropic(refusal) : refusal_openai(refusal));
    return status;
}

void served_reply(struct http_call *call, json_t *answer)
{
    reply(call, 200, answer);
}
