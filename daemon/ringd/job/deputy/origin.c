/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/deputy/origin.h"

#include <string.h>

#include "daemon/ringd/cluster/identity.h"

json_t *origin_encode(const struct origin *o)
{
    return json_pack("{s:o s:I}", "node", id_json(o->head), "job", (json_int_t)o->job);
}

bool origin_read(struct origin *ret, const json_t *o)
{
    const char *hex = json_string_value(json_object_get(o, "node"));
    const json_int_t job = json_integer_value(json_object_get(o, "job"));
    *ret = (struct origin){.job = job > 0 ? (uint64_t)job : 0};
    return hex && ret->job && !id_parse(ret->head, hex);
}

json_t *takeover_encode(const struct takeover *t)
{
    return json_pack("{s:o s:I}", "from", id_json(t->from), "attempt", (json_int_t)t->attempt);
}

bool takeover_read(struct takeover *ret, const json_t *t)
{
    const char *from = json_string_value(json_object_get(t, "from"));
    const json_int_t attempt = json_integer_value(json_object_get(t, "attempt"));
    *ret = (struct takeover){.attempt = (uint32_t)attempt};
    return from && !id_parse(ret->from, from) && attempt >= 0 && attempt < UINT32_MAX;
}
