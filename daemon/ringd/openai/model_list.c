/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/model_list.h"

json_t *model_openai(const struct served_model *m)
{
    json_t *json = json_pack("{s:s,s:s,s:I,s:s}", "id", m->name, "object", "model", "created",
                             (json_int_t)m->created, "owned_by", "ringd");
    if (m->max_context)
        json_object_set_new(json, "max_model_len", json_integer((json_int_t)m->max_context));
    if (m->parent)
        json_object_set_new(json, "parent", json_string(m->parent));
    return json;
}

json_t *model_anthropic(const struct served_model *m)
{
    char created[sizeof "-2147481748-01-01T00:00:00Z"] = "";
    struct tm tm;
    if (gmtime_r(&m->created, &tm))
        strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_pack("{s:s,s:s,s:s,s:s}", "type", "model", "id", m->name, "display_name", m->name,
                     "created_at", created);
}

json_t *model_list_openai(const struct served_model *models, size_t n)
{
    json_t *data = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(data, model_openai(&models[i]));
    return json_pack("{s:s,s:o}", "object", "list", "data", data);
}

json_t *model_list_anthropic(const struct served_model *models, size_t n)
{
    json_t *data = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(data, model_anthropic(&models[i]));
    return json_pack("{s:o,s:b,s:s?,s:s?}", "data", data, "has_more", 0, "first_id",
                     n ? models[0].name : NULL, "last_id", n ? models[n - 1].name : NULL);
}
