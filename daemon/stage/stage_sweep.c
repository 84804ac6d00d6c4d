/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_sweep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE = 24 };

/* What comes with an adapter that is begun with. */
static bool is_shape(const struct field *f)
{
    return !strcmp(f->name, "rank") || !strcmp(f->name, "alpha") || !strcmp(f->name, "dropout");
}

/* As ringctl calls it, without the dashes. */
static const char *name_of(char room[FIELD_OPTION], const struct field *f)
{
    field_option(room, f);
    return room + 2;
}

/* The field whose option is the first n bytes of a text, or NULL. */
static const struct field *swept_field(const char *text, size_t n)
{
    char room[FIELD_OPTION];
    const struct field *f = job_spec_fields();
    while (f->name && !(field_is_for(f, JOB_SPEC_OF_SWEEP) && strlen(name_of(room, f)) == n &&
                        !strncmp(text, name_of(room, f), n)))
        f++;
    return f->name ? f : NULL;
}

static int refuse_option(const char *text, struct err *err)
{
    char known[200] = "", room[FIELD_OPTION];
    size_t used = 0;
    for (const struct field *f = job_spec_fields(); f->name && used < sizeof known; f++)
        if (field_is_for(f, JOB_SPEC_OF_SWEEP))
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     name_of(room, f));
    return err_set(err, -EINVAL,
                   "--sweep %s: adapters that are trained together can differ in %s; give one of these, with "
                   "its values: --sweep lr=1e-4,3e-4",
                   text, known);
}

static json_t *value_json(const struct field *f, const char *text)
{
    char *end;
    if (text[strspn(text, "abcdefghijklmnopqrstuvwxyzE0123456789.+-")] || !*text)
        return NULL; /* it is part of a folder's name */
    if (f->type == FIELD_CHOICE)
        return json_string(text);
    if (f->type == FIELD_WHOLE) {
        errno = 0;
        long long whole = strtoll(text, &end, 10);
        return *end || errno ? NULL : json_integer(whole);
    }
    double number = strtod(text, &end);
    return *end ? NULL : json_real(number);
}

static void sweep_clear(struct sweep *s)
{
    for (size_t i = 0; i < s->n; i++)
        json_decref(s->one[i].spec);
    *s = (struct sweep){0};
}

/* One more adapter: what `of` is, with that value too. */
static int add_value(struct sweep *to, const struct sweep_one *of, const struct field *f, const char *value,
                     const char *text, struct err *err)
{
    char room[FIELD_OPTION];
    const char *name = name_of(room, f);
    json_t *is = value_json(f, value);
    if (!is)
        return err_set(err, -EINVAL, "--sweep %s: \"%s\" is no value of --%s", text, value, name);
    struct sweep_one one = {.spec = json_copy((json_t *)of->spec)};
    json_object_set_new(one.spec, f->name, is);
    int n = snprintf(one.name, sizeof one.name, "%s%s%s-%s", of->name, *of->name ? "-" : "", name, value);
    bool twice = false;
    for (size_t i = 0; i < to->n; i++)
        twice = twice || !strcmp(to->one[i].name, one.name);
    if (!twice && to->n < JOB_MAX_ADAPTERS && n < (int)sizeof one.name) {
        to->one[to->n++] = one;
        return 0;
    }
    json_decref(one.spec);
    return twice
               ? err_set(err, -EINVAL, "--sweep %s: %s is given twice", text, value)
               : err_set(err, -EINVAL,
                         "--sweep %s makes more than %d adapters, or too long a name: leave out some values",
                         text, JOB_MAX_ADAPTERS);
}

/* Each adapter there is so far with each of the values. */
static int add_option(struct sweep *s, const char *text, const struct job_spec *asked, struct err *err)
{
    const char *equals = strchr(text, '=');
    const struct field *f = equals ? swept_field(text, (size_t)(equals - text)) : NULL;
    if (!f)
        return refuse_option(text, err);
    if (is_shape(f) && asked->init_adapter)
        return err_set(err, -EINVAL, "--sweep %s: the adapter of --init-adapter has a fixed shape", text);
    struct sweep more = {0};
    int r = 0;
    for (size_t i = 0; i < s->n && !r; i++)
        for (const char *at = equals; at && !r; at = strchr(at + 1, ',')) {
            char value[VALUE];
            size_t n = strcspn(at + 1, ",");
            snprintf(value, sizeof value, "%.*s", (int)(n < VALUE ? n : VALUE - 1), at + 1);
            r = add_value(&more, &s->one[i], f, value, text, err);
        }
    sweep_clear(s);
    *s = more;
    return r;
}

/* Each result in a folder of its own; --log is one file for all. */
static int place(struct sweep_one *one, const char *out, struct err *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", out, one->name) >= (int)sizeof path)
        return err_set(err, -ENAMETOOLONG, "--adapter-out %s is too long a name", out);
    return json_object_set_new(one->spec, "adapter_out", json_string(path));
}

int sweep_read(struct sweep *ret, const struct job_spec *asked, struct err *err)
{
    const json_t *text;
    size_t i;
    int r = 0;
    ret->n = 1;
    ret->one[0] = (struct sweep_one){.spec = json_copy((json_t *)asked->json)};
    if (!json_array_size(asked->sweep))
        return 0;
    if (asked->full)
        return err_set(err, -EINVAL,
                       "--sweep trains several adapters on frozen weights: leave out --fine-tune-type full");
    json_object_del(ret->one[0].spec, "sweep");
    json_array_foreach (asked->sweep, i, text) {
        if (!r && !json_is_string(text))
            r = err_set(err, -EINVAL, "\"sweep\" must be a list of texts: [\"lr=1e-4,3e-4\"]");
        r = r ? r : add_option(ret, json_string_value(text), asked, err);
    }
    for (size_t a = 0; a < ret->n && !r; a++)
        r = place(&ret->one[a], asked->adapter_out, err);
    return r;
}
