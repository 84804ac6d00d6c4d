/* SPDX-License-Identifier: MIT */
#include "daemon/common/spec_keys.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/common/optable.h"

static const struct field *nearest_field(const char *key, enum job_type type)
{
    const struct field *best = NULL;
    size_t least = SIZE_MAX, distance;
    for (const struct field *f = job_spec_fields(); f->name; f++)
        if (field_is_for(f, JOB_SPEC_OF(type)) && opts_is_near(key, f->name, &distance) && distance < least) {
            best = f;
            least = distance;
        }
    return best;
}

static bool is_key(const char *key, enum job_type type)
{
    for (const struct field *f = job_spec_fields(); f->name; f++)
        if (field_is_for(f, JOB_SPEC_OF(type)) && !strcmp(f->name, key))
            return true;
    return false;
}

static int refuse_key(const char *key, enum job_type type, struct err *err)
{
    enum { KEY_SHOWN = 60 };
    const char *name = job_type_name(type);
    const struct field *near = nearest_field(key, type);
    for (enum job_type other = 0; other < JOB_TYPES; other++)
        if (is_key(key, other))
            return err_set(err, -EINVAL, "\"%s\" is for jobs of type %s, not for %s", key,
                           job_type_name(other), name);
    if (near)
        return err_set(err, -EINVAL, "a job of type %s has no \"%.*s\": did you mean \"%s\"?", name,
                       KEY_SHOWN, key, near->name);
    return err_set(
        err, -EINVAL,
        "a job of type %s has no \"%.*s\": `ringctl help %s` lists the options, which are its keys "
        "with _ for -",
        name, KEY_SHOWN, key, name);
}

int spec_keys_check(enum job_type type, const json_t *json, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)json, key, value)
        if (!is_key(key, type))
            return refuse_key(key, type, err);
    return 0;
}
