/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_cell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_plan.h"
#include "daemon/common/job_spec.h"
#include "engine/file/lent.h"

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static int add_fields(struct cell_rules *rules, const struct field *table, unsigned use, const json_t *object,
                      struct err *err)
{
    static const enum cell_use uses[] = {
        [FIELD_MODEL] = CELL_MODEL,  [FIELD_READS] = CELL_READ,     [FIELD_ADAPTER] = CELL_READ,
        [FIELD_WRITES] = CELL_WRITE, [FIELD_APPENDS] = CELL_APPEND, [FIELD_MAY_READ] = CELL_READ};
    int r = 0;
    for (const struct field *f = table; f->name; f++) {
        const char *path;
        char option[FIELD_OPTION];
        field_option(option, f);
        for (size_t i = 0; field_is_for(f, use) && !r && (path = field_path_at(f, object, i)); i++) {
            if (f->path == FIELD_MAY_READ && !strchr(path, '/'))
                continue;
            if (f->path != FIELD_WRITES && lent_find(path) != -ENODATA)
                continue; /* it is open already */
            r = cell_add(rules, uses[f->path], f->use == JOB_SPEC_OF_DAEMON ? "the folder" : option, path,
                         err);
        }
    }
    return r;
}

/* The folder in which a result is kept that finds no room elsewhere is the daemon's own choice. */
static int add_spec(struct cell_rules *rules, const json_t *message, struct err *err)
{
    const json_t *spec = json_object_get(message, "spec");
    const char *name = text_at(message, "type");
    enum job_type type = JOB_TRAIN;
    rules->must_not_make = json_is_true(json_object_get(spec, "dry_run"));
    int r = job_type_read(&type, name ? name : "", err);
    const unsigned own = !r && type == JOB_TRAIN ? JOB_SPEC_OF_DAEMON : 0;
    return r ? r : add_fields(rules, job_spec_fields(), JOB_SPEC_OF(type) | own, spec, err);
}

int stage_cell_rules(struct cell_rules *ret, const char *state, const json_t *message, struct err *err)
{
    const char *what = text_at(message, "do");
    const json_t *plan = what && !strcmp(what, "measure")
                             ? json_object_get(json_object_get(message, "question"), "plan")
                             : json_object_get(message, "plan");
    int r = 0;
    if (state && !(ret->state = strdup(state)))
        r = err_set(err, -ENOMEM, "out of memory");
    if (!r && what && !strcmp(what, "plan"))
        r = add_spec(ret, message, err);
    else if (!r && what && !strcmp(what, "weights"))
        r = cell_add(ret, CELL_READ, "--model", text_at(message, "model"), err);
    else if (!r)
        r = add_fields(ret, job_plan_fields(), JOB_PLAN_SENT, plan, err);
    return r;
}

int stage_cell_enter(const json_t *cell, const json_t *message, unsigned kept, struct err *err)
{
    struct cell_rules rules = {.kept = kept};
    const char *state = text_at(cell, "state");
    if (!state)
        return err_set(err, -EBADMSG, "the daemon does not say what is its own: same version of both?");
    int r = stage_cell_rules(&rules, state, message, err);
    if (!r)
        r = cell_enter(&rules, err);
    cell_rules_done(&rules);
    return r;
}
