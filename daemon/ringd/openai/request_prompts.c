/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/completion_request_impl.h"

#include "daemon/common/xalloc.h"

bool request_are_tokens(const json_t *list)
{
    const json_t *id;
    size_t i;
    json_array_foreach (list, i, id)
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            return false;
    return json_array_size(list) > 0;
}

static int read_one(struct completion_prompt *ret, const char *name, const json_t *given,
                    struct refusal *refusal)
{
    if (json_is_string(given))
        *ret = (struct completion_prompt){json_string_value(given), json_string_length(given), NULL};
    else if (json_is_array(given) && request_are_tokens(given))
        *ret = (struct completion_prompt){.token = given};
    else
        return refusal_set(refusal, REFUSAL_INVALID, name,
                           "\"%s\" must be a text, a list of token ids, or a list of these", name);
    return 0;
}

int request_read_prompts(struct completion_prompt **ret, size_t *ret_n, const char *name, const json_t *given,
                         size_t max, struct refusal *refusal)
{
    const bool is_list = json_is_array(given) && !json_is_integer(json_array_get(given, 0));
    const size_t n = is_list ? json_array_size(given) : 1;
    int rc = 0;
    if (!n || n > max)
        return refusal_set(refusal, REFUSAL_INVALID, name, "\"%s\" must be 1 to %zu texts, and is %zu", name,
                           max, n);
    *ret = xcalloc(n, sizeof **ret);
    for (size_t i = 0; !rc && i < n; i++)
        rc = read_one(&(*ret)[i], name, is_list ? json_array_get(given, i) : given, refusal);
    *ret_n = n;
    return rc;
}
