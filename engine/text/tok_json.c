/* SPDX-License-Identifier: MIT
 *
 * Typed access to tokenizer.json's objects. Called while a tokenizer opens, by the file that owns
 * each component. */
#include "text/tok_json.h"

#include <errno.h>
#include <string.h>

#include "text/vocab.h"

int tok_json_bool(const json_t *obj, const char *where, const char *key, bool fallback, bool *ret,
                  struct err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (v && !json_is_boolean(v) && !json_is_null(v))
        return err_set(err, -EINVAL, "%s: \"%s\" must be true or false", where, key);
    *ret = v && !json_is_null(v) ? json_is_true(v) : fallback;
    return 0;
}

int tok_json_count(const json_t *obj, const char *where, const char *key, size_t limit, size_t *ret,
                   struct err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || (size_t)json_integer_value(v) > limit)
        return err_set(err, -EINVAL, "%s: \"%s\" must be a number from 0 to %zu", where, key, limit);
    *ret = (size_t)json_integer_value(v);
    return 0;
}

int tok_json_optional(const json_t *obj, const char *where, const char *key, const char **ret,
                      struct err *err)
{
    const json_t *v = json_object_get(obj, key);
    if (v && !json_is_string(v) && !json_is_null(v))
        return err_set(err, -EINVAL, "%s: \"%s\" must be a string", where, key);
    *ret = json_string_value(v);
    return 0;
}

int tok_json_string(const json_t *obj, const char *where, const char *key, const char **ret, struct err *err)
{
    const char *text = NULL;
    int r = tok_json_optional(obj, where, key, &text, err);
    if (r == 0 && !text)
        r = err_set(err, -EINVAL, "%s: \"%s\" is missing; it must be a string", where, key);
    if (r == 0)
        *ret = text;
    return r;
}

int tok_json_id(const json_t *value, const char *where, uint32_t *ret, struct err *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) >= VOCAB_ID_LIMIT)
        return err_set(err, -EINVAL, "%s: the id must be a whole number from 0 to %u", where,
                       VOCAB_ID_LIMIT - 1);
    *ret = (uint32_t)json_integer_value(value);
    return 0;
}

/* An object with a string "type". */
static int type_of(const json_t *obj, const char *where, const char **ret, struct err *err)
{
    if (!json_is_object(obj))
        return err_set(err, -EINVAL, "%s must be an object or null", where);
    return tok_json_string(obj, where, "type", ret, err);
}

int tok_json_each(const json_t *component, const char *where, const char *list_key, size_t depth,
                  int (*parse)(void *owner, const char *type, const json_t *component, struct err *err),
                  void *owner, struct err *err)
{
    if (!component || json_is_null(component))
        return 0;
    const char *type;
    int r = type_of(component, where, &type, err);
    if (r)
        return r;
    if (strcmp(type, "Sequence") != 0)
        return parse(owner, type, component, err);
    const json_t *list = json_object_get(component, list_key);
    if (!json_is_array(list))
        return err_set(err, -EINVAL, "%s: a Sequence needs \"%s\", a list", where, list_key);
    if (depth >= TOK_JSON_DEPTH)
        return err_set(err, -EINVAL, "%s: Sequences are nested more than %d deep", where, TOK_JSON_DEPTH);
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++)
        r = tok_json_each(json_array_get(list, i), where, list_key, depth + 1, parse, owner, err);
    return r;
}
