/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by the API's handlers. */
#include "daemon/ringd/api/api_reply.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/http/http.h"

void api_reply(struct http_call *call, int status, json_t *json)
{
    api_reply_rounded(call, status, json, 17);
}

void api_reply_rounded(struct http_call *call, int status, json_t *json, int digits)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(digits));
    json_decref(json);
    if (text)
        http_reply(call, status, "application/json", text, strlen(text));
    else
        http_fail(call, 500, "internal", "the answer could not be written");
    free(text);
}
