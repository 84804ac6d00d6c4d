/* SPDX-License-Identifier: MIT */
#include "daemon/common/job_type.h"

#include <errno.h>
#include <string.h>

const struct field_choice job_types[] = {{"train", JOB_TRAIN}, {"generate", JOB_GENERATE},
                                         {"score", JOB_SCORE}, {"serve", JOB_SERVE},
                                         {"eval", JOB_EVAL},   {NULL, 0}};

const char *job_type_name(enum job_type type)
{
    return type < JOB_TYPES ? job_types[type].name : "?";
}

enum job_class job_class_of(enum job_type type)
{
    return type == JOB_TRAIN ? JOB_CLASS_TRAIN : type == JOB_SERVE ? JOB_CLASS_SERVE : JOB_CLASS_INTERACTIVE;
}

const char *job_class_name(enum job_class c)
{
    static const char *const names[JOB_CLASSES] = {"serve", "interactive", "train"};
    return c < JOB_CLASSES ? names[c] : "?";
}

const char *job_type_unit(enum job_type type)
{
    static const char *const units[JOB_TYPES] = {"step", "token", "row", "token", "row"};
    return units[type];
}

int job_type_read(enum job_type *ret, const char *name, struct err *err)
{
    for (enum job_type type = 0; type < JOB_TYPES; type++)
        if (!strcmp(name, job_types[type].name)) {
            *ret = type;
            return 0;
        }
    return err_set(err, -EINVAL, "a job is of type train, generate, score, serve or eval, not \"%.40s\"",
                   name);
}
