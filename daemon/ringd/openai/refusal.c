/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/refusal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "daemon/common/text_clean.h"

static const struct {
    unsigned openai, anthropic; /* statuses of HTTP */
    const char *openai_type, *openai_code, *anthropic_type;
} kinds[REFUSALS] = {
    [REFUSAL_INVALID] = {400, 400, "invalid_request_error", NULL, "invalid_request_error"},
    [REFUSAL_UNSUPPORTED] = {400, 400, "invalid_request_error", "unsupported_parameter",
                             "invalid_request_error"},
    [REFUSAL_TOO_LONG] = {400, 400, "invalid_request_error", "context_length_exceeded",
                          "invalid_request_error"},
    [REFUSAL_NO_KEY] = {401, 401, "invalid_request_error", "invalid_api_key", "authentication_error"},
    [REFUSAL_FORBIDDEN] = {403, 403, "invalid_request_error", "forbidden", "permission_error"},
    [REFUSAL_NO_MODEL] = {404, 404, "invalid_request_error", "model_not_found", "not_found_error"},
    [REFUSAL_TOO_LARGE] = {413, 413, "invalid_request_error", "request_too_large", "request_too_large"},
    [REFUSAL_RATE] = {429, 429, "requests", "rate_limit_exceeded", "rate_limit_error"},
    [REFUSAL_BUSY] = {503, 529, "server_error", "overloaded", "overloaded_error"},
    [REFUSAL_INTERNAL] = {500, 500, "server_error", NULL, "api_error"},
};

int refusal_set(struct refusal *ret, enum refusal_kind kind, const char *param, const char *fmt, ...)
{
    /* Fields of clients are quoted. No terminal obeys them, and what is cut stays UTF-8. */
    char text[2 * sizeof ret->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ret->kind = kind;
    text_clean(ret->text, sizeof ret->text, text, false);
    text_clean(ret->param, sizeof ret->param, param ? param : "", false);
    return -EINVAL;
}

unsigned refusal_openai_status(const struct refusal *r)
{
    return kinds[r->kind].openai;
}

unsigned refusal_anthropic_status(const struct refusal *r)
{
    return kinds[r->kind].anthropic;
}

json_t *refusal_openai(const struct refusal *r)
{
    return json_pack("{s:{s:s,s:s,s:s?,s:s?}}", "error", "message", r->text, "type",
                     kinds[r->kind].openai_type, "param", *r->param ? r->param : NULL, "code",
                     kinds[r->kind].openai_code);
}

json_t *refusal_anthropic(const struct refusal *r)
{
    return json_pack("{s:s,s:{s:s,s:s}}", "type", "error", "error", "type", kinds[r->kind].anthropic_type,
                     "message", r->text);
}
