/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by the commands that submit jobs. */
#include "daemon/ctl/ctl_spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/ctl_result.h"
#include "daemon/common/xalloc.h"

static json_t *list_json(const struct opts *o, const char *name)
{
    const char *const *items;
    size_t n = opts_list(o, name, &items);
    json_t *list = n ? json_array() : NULL;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(items[i]));
    return list;
}

/* NULL for an option that has no value. */
static json_t *value_json(const struct opts *o, const struct opt_def *def)
{
    const char *text = def->type == OPT_LIST ? NULL : opts_str(o, def->name);
    if (def->type == OPT_FLAG)
        return json_boolean(opts_flag(o, def->name));
    if (def->type == OPT_LIST)
        return list_json(o, def->name);
    if (!text)
        return NULL;
    switch (def->type) {
    case OPT_INT: return json_integer(opts_int(o, def->name));
    case OPT_FLOAT: return json_real(opts_float(o, def->name));
    case OPT_PATH: {
        char *path = ctl_absolute_path(text);
        json_t *value = json_string(path);
        free(path);
        return value;
    }
    default: return json_string(text);
    }
}

json_t *ctl_spec_new(const struct ctl *ctl)
{
    json_t *spec = json_object();
    for (const struct opt_def *def = ctl->command->options; def->name; def++) {
        json_t *value = value_json(ctl->opts, def);
        char *key = xstrdup(def->name);
        for (char *p = key; (p = strchr(p, '-'));)
            *p = '_';
        if (value)
            json_object_set_new(spec, key, value);
        free(key);
    }
    return spec;
}

int ctl_spec_template_args(const struct ctl *ctl, json_t *spec)
{
    const char *const *items;
    size_t n = opts_list(ctl->opts, "template-arg", &items);
    json_t *args = n ? json_object() : NULL;
    json_object_del(spec, "template_arg");
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(items[i], '=');
        if (!eq || eq == items[i]) {
            json_decref(args);
            return ctl_usage(ctl, "--template-arg \"%s\": NAME=VALUE is needed, as enable_thinking=false",
                             items[i]);
        }
        char *name = xstrndup(items[i], (size_t)(eq - items[i]));
        json_t *value = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
        json_object_set_new(args, name, value ? value : json_string(eq + 1));
        free(name);
    }
    if (args)
        json_object_set_new(spec, "template_args", args);
    return CTL_OK;
}

json_t *ctl_spec_ids(const char *text)
{
    json_t *ids = json_array();
    for (const char *p = text;;) {
        char *end;
        errno = 0;
        long long id = strtoll(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX || (*end && *end != ',')) {
            json_decref(ids);
            return NULL;
        }
        json_array_append_new(ids, json_integer(id));
        if (!*end)
            return ids;
        p = end + 1;
    }
}

int ctl_spec_send(const struct ctl *ctl, const char *path, const char *type, json_t *spec, unsigned within_s,
                  json_t **ret)
{
    json_t *body = json_pack("{s:s,s:o,s:o*}", "type", type, "spec", spec, "seen", result_seen(spec));
    if (!body)
        return ctl_fail(CTL_USAGE, "the options cannot be sent: a path or a text is not UTF-8");
    int rc = ctl_request_within(ctl, "POST", path, body, within_s, ret);
    json_decref(body);
    return rc;
}

int ctl_spec_submit(const struct ctl *ctl, const char *type, json_t *spec, char ret_name[CTL_JOB_NAME])
{
    enum { ANSWER_S = 60 };
    json_t *reply = NULL;
    int rc = ctl_spec_send(ctl, "/v1/jobs", type, spec, ANSWER_S, &reply);
    if (rc)
        return rc;
    json_int_t id = json_integer_value(json_object_get(reply, "id"));
    if (id > 0)
        result_announce(reply);
    json_decref(reply);
    if (id <= 0)
        return ctl_fail(CTL_FAILED,
                        "the daemon took the job but gave it no number: is it a ringd of another version?");
    snprintf(ret_name, CTL_JOB_NAME, "%" JSON_INTEGER_FORMAT, id);
    return CTL_OK;
}
