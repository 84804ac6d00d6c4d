/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by the commands that submit jobs. */
#include "daemon/ctl/ctl_spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_loan.h"
#include "daemon/ctl/ctl_path.h"
#include "daemon/ctl/ctl_result.h"
#include "daemon/ctl/spec_options.h"
#include "daemon/common/job_spec.h"
#include "daemon/common/xalloc.h"

int ctl_spec_pairs(const struct ctl *ctl, const char *option, const char *key, const char *example,
                   json_t *spec)
{
    const char *const *items;
    size_t n = opts_list(ctl->opts, option, &items);
    json_t *args = n ? json_object() : NULL;
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(items[i], '=');
        if (!eq || eq == items[i]) {
            json_decref(args);
            return ctl_usage(ctl, "--%s \"%s\": %s is needed", option, items[i], example);
        }
        char *name = xstrndup(items[i], (size_t)(eq - items[i]));
        json_t *value = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
        json_object_set_new(args, name, value ? value : json_string(eq + 1));
        free(name);
    }
    if (args)
        json_object_set_new(spec, key, args);
    return CTL_OK;
}

static json_t *list_json(const struct opts *o, const char *name)
{
    const char *const *items;
    size_t n = opts_list(o, name, &items);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(list, json_string(items[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* "1,2,3" → [1,2,3]; NULL if it is anything else. */
static json_t *ids_json(const char *text)
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

static json_t *path_json(const char *text)
{
    char *path = ctl_absolute_path(text);
    json_t *value = json_string(path);
    free(path);
    return value;
}

/* A path has a slash or a dot; no name has. */
static bool is_path(const struct field *f, const char *text)
{
    return f->path == FIELD_MAY_READ ? strpbrk(text, "/.") != NULL : f->path != FIELD_NO_PATH;
}

static json_t *value_json(const struct opts *o, const struct field *f, const char *name)
{
    switch (f->type) {
    case FIELD_FLAG: return json_boolean(opts_flag(o, name));
    case FIELD_WHOLE: return json_integer(opts_int(o, name));
    case FIELD_NUMBER: return json_real(opts_float(o, name));
    case FIELD_LIST: return strcmp(f->items, "integer") ? list_json(o, name) : ids_json(opts_str(o, name));
    default:
        if ((f->path == FIELD_MODEL || f->path == FIELD_ADAPTER) && ctl_model_is_name(opts_str(o, name)))
            return json_string(opts_str(o, name));
        return is_path(f, opts_str(o, name)) ? path_json(opts_str(o, name)) : json_string(opts_str(o, name));
    }
}

int ctl_spec_named_path(const struct ctl *ctl, const char *option, bool is_adapter, const char *text,
                        json_t *to)
{
    const char *eq = strchr(text, '='), *slash = strchr(text, '/');
    const bool has_name = eq && (!slash || eq < slash);
    const char *given = has_name ? eq + 1 : text;
    const bool is_of_store = is_adapter && ctl_model_is_name(given);
    char *path = is_of_store ? xstrdup(given) : ctl_absolute_path(given), *slash_at = strrchr(path, '/');
    const char *last = slash_at ? slash_at + 1 : path;
    char *name = has_name ? xstrndup(text, (size_t)(eq - text))
                          : xstrndup(last, is_of_store ? strcspn(last, "@") : strlen(last));
    int rc = CTL_OK;
    if (json_object_get(to, name))
        rc =
            ctl_usage(ctl, "--%s: there are two with the name \"%s\": give one another NAME=…", option, name);
    else if (json_object_set_new(to, name, json_string(path)))
        rc = ctl_usage(ctl, "--%s: a name or a path is not UTF-8", option);
    free(name);
    free(path);
    return rc;
}

static int put_named_paths(const struct ctl *ctl, const struct field *f, const char *option, json_t *spec)
{
    const char *const *items;
    const size_t n = opts_list(ctl->opts, option, &items);
    json_t *named = json_object();
    int rc = CTL_OK;
    for (size_t i = 0; i < n && !rc; i++)
        rc = ctl_spec_named_path(ctl, option, f->path == FIELD_ADAPTER, items[i], named);
    if (rc)
        json_decref(named);
    else
        json_object_set_new(spec, f->name, named);
    return rc;
}

static int put_value(const struct ctl *ctl, const struct field *f, const char *name, json_t *spec)
{
    const bool is_ids = f->type == FIELD_LIST && !strcmp(f->items, "integer");
    if (f->type == FIELD_OBJECT && f->path)
        return put_named_paths(ctl, f, name, spec);
    if (f->type == FIELD_OBJECT)
        return ctl_spec_pairs(ctl, name, f->name, f->arg, spec);
    if (!json_object_set_new(spec, f->name, value_json(ctl->opts, f, name)))
        return CTL_OK;
    return is_ids ? ctl_usage(ctl, "--%s \"%s\": token ids separated by commas are needed, as 1,2,3", name,
                              opts_str(ctl->opts, name))
                  : ctl_usage(ctl, "--%s is not UTF-8", name);
}

int ctl_spec_read(const struct ctl *ctl, json_t **ret)
{
    const unsigned jobs = JOB_SPEC_OF(JOB_TYPES) - 1;
    json_t *spec = json_object();
    int rc = CTL_OK;
    for (const struct field *f = job_spec_fields(); f->name && !rc; f++) {
        char option[FIELD_OPTION];
        const char *name = option + 2;
        field_option(option, f);
        if (!spec_option_is_for(f, ctl->command->spec))
            continue;
        const bool is_ours = !(f->use & jobs) && opts_str(ctl->opts, name);
        if (opts_is_set(ctl->opts, name) || is_ours)
            rc = put_value(ctl, f, name, spec);
    }
    if (rc)
        json_decref(spec);
    else
        *ret = spec;
    return rc;
}

int ctl_spec_check(const struct ctl *ctl, enum job_type type, const json_t *spec)
{
    struct job_spec read;
    struct err err;
    return job_spec_read(&read, type, spec, &err) ? ctl_usage(ctl, "%s", err.text) : CTL_OK;
}

int ctl_spec_send(const struct ctl *ctl, const char *path, enum job_type type, json_t *spec,
                  unsigned within_s, json_t **ret)
{
    struct ctl_loan loan;
    json_t *body =
        json_pack("{s:s,s:o,s:o*}", "type", job_type_name(type), "spec", spec, "seen", result_seen(spec));
    if (!body)
        return ctl_fail(CTL_USAGE, "the options cannot be sent: a path or a text is not UTF-8");
    ctl_loan_hand_in(&loan, ctl, spec);
    if (*loan.ticket)
        json_object_set_new(body, "loan", json_string(loan.ticket));
    int rc = ctl_request_within(ctl, "POST", path, body, within_s, ret);
    if (rc == CTL_FAILED && *loan.why && !ctl->complaint)
        ctl_complain(ctl, rc, "%s", loan.why);
    json_decref(body);
    return rc;
}

int ctl_spec_submit(const struct ctl *ctl, enum job_type type, json_t *spec, char ret_name[CTL_JOB_NAME])
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
