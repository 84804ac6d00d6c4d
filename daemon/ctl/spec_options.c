/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/spec_options.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/job_spec.h"
#include "daemon/common/xalloc.h"

/* What an option's row points to. */
struct texts {
    char option[FIELD_OPTION], placeholder[RANGE_TEXT], def[32];
};

bool spec_option_is_for(const struct field *f, unsigned use)
{
    return f->arg && (f->use & use);
}

static enum opt_type type_of(const struct field *f)
{
    switch (f->type) {
    case FIELD_FLAG: return OPT_FLAG;
    case FIELD_WHOLE: return OPT_INT;
    case FIELD_NUMBER: return OPT_FLOAT;
    case FIELD_CHOICE: return OPT_CHOICE;
    case FIELD_OBJECT: return OPT_LIST;
    case FIELD_LIST: return strcmp(f->items, "integer") ? OPT_LIST : OPT_STRING;
    default: return f->path == FIELD_MAY_READ ? OPT_CHOICE : f->path ? OPT_PATH : OPT_STRING;
    }
}

/* NULL where a missing value stays missing. */
static const char *default_of(char ret[32], const struct field *f)
{
    const bool is_number = f->type == FIELD_WHOLE || f->type == FIELD_NUMBER;
    if (f->type == FIELD_CHOICE) {
        for (const struct field_choice *c = f->choices; c->name; c++)
            if (c->value == (unsigned)f->def)
                return c->name;
        return NULL;
    }
    if (!is_number)
        return f->text;
    snprintf(ret, 32, "%.15g", f->def);
    return f->def >= f->min && f->def <= f->max ? ret : NULL;
}

static struct opt_def option_of(const struct field *f, struct texts *texts)
{
    field_option(texts->option, f);
    if (f->type == FIELD_CHOICE)
        field_words(texts->placeholder, f);
    return (struct opt_def){.name = texts->option + 2,
                            .type = type_of(f),
                            .placeholder = f->type == FIELD_CHOICE ? texts->placeholder : f->arg,
                            .def = default_of(texts->def, f),
                            .min = f->min,
                            .max = f->max,
                            .help = f->doc,
                            .required = f->missing != NULL};
}

static size_t count(const struct opt_def *defs)
{
    size_t n = 0;
    while (defs && defs[n].name)
        n++;
    return n;
}

struct opt_def *spec_options_new(unsigned use, const struct opt_def *own, const struct opt_def *global)
{
    const size_t n_own = count(own), n_global = count(global);
    size_t n = 0;
    for (const struct field *f = job_spec_fields(); f->name; f++)
        n += spec_option_is_for(f, use);
    struct opt_def *defs = xcalloc(1, (n + n_own + n_global + 1) * sizeof *defs + n * sizeof(struct texts)),
                   *to = defs;
    struct texts *texts = (struct texts *)(defs + n + n_own + n_global + 1);
    for (const struct field *f = job_spec_fields(); f->name; f++)
        if (spec_option_is_for(f, use))
            *to++ = option_of(f, texts++);
    for (size_t i = 0; i < n_own; i++)
        *to++ = own[i];
    for (size_t i = 0; i < n_global; i++)
        *to++ = global[i];
    return defs;
}
