/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_sweep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE = 24 };

/* What may differ between adapters whose microbatches are as many and of the same rows' shapes. */
static const struct {
    const char *name, *key;
    enum { WHOLE, NUMBER, WORD } is;
    bool is_shape; /* comes with an adapter that is begun with */
} options[] = {
    {"lr", "lr", NUMBER, false},
    {"lr-schedule", "lr_schedule", WORD, false},
    {"warmup", "warmup", WHOLE, false},
    {"weight-decay", "weight_decay", NUMBER, false},
    {"max-grad-norm", "max_grad_norm", NUMBER, false},
    {"rank", "rank", WHOLE, true},
    {"alpha", "alpha", NUMBER, true},
    {"dropout", "dropout", NUMBER, true},
    {"lora-plus-ratio", "lora_plus_ratio", NUMBER, false},
    {"seed", "seed", WHOLE, false},
};
enum { OPTIONS = sizeof options / sizeof *options };

static int refuse_option(const char *text, struct err *err)
{
    char known[200] = "";
    size_t used = 0;
    for (size_t i = 0; i < OPTIONS; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", options[i].name);
    return err_set(err, -EINVAL,
                   "--sweep %s: adapters that are trained together can differ in %s; give one of these, with "
                   "its values: --sweep lr=1e-4,3e-4",
                   text, known);
}

static json_t *value_json(size_t option, const char *text)
{
    char *end;
    if (text[strspn(text, "abcdefghijklmnopqrstuvwxyzE0123456789.+-")] || !*text)
        return NULL; /* it is part of a folder's name */
    if (options[option].is == WORD)
        return json_string(text);
    if (options[option].is == WHOLE) {
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
static int add_value(struct sweep *to, const struct sweep_one *of, size_t option, const char *value,
                     const char *text, struct err *err)
{
    json_t *is = value_json(option, value);
    if (!is)
        return err_set(err, -EINVAL, "--sweep %s: \"%s\" is no value of --%s", text, value,
                       options[option].name);
    struct sweep_one one = {.spec = json_copy((json_t *)of->spec)};
    json_object_set_new(one.spec, options[option].key, is);
    int n = snprintf(one.name, sizeof one.name, "%s%s%s-%s", of->name, *of->name ? "-" : "",
                     options[option].name, value);
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
static int add_option(struct sweep *s, const char *text, const json_t *spec, struct err *err)
{
    const char *equals = strchr(text, '=');
    size_t option = 0, length = equals ? (size_t)(equals - text) : 0;
    while (option < OPTIONS &&
           (strlen(options[option].name) != length || strncmp(text, options[option].name, length) != 0))
        option++;
    if (option == OPTIONS)
        return refuse_option(text, err);
    if (options[option].is_shape && json_object_get(spec, "init_adapter"))
        return err_set(err, -EINVAL, "--sweep %s: the adapter of --init-adapter has a fixed shape", text);
    struct sweep more = {0};
    int r = 0;
    for (size_t i = 0; i < s->n && !r; i++)
        for (const char *at = equals; at && !r; at = strchr(at + 1, ',')) {
            char value[VALUE];
            size_t n = strcspn(at + 1, ",");
            snprintf(value, sizeof value, "%.*s", (int)(n < VALUE ? n : VALUE - 1), at + 1);
            r = add_value(&more, &s->one[i], option, value, text, err);
        }
    sweep_clear(s);
    *s = more;
    return r;
}

/* Each result in a folder of its own; --log is one file for all. */
static int place(struct sweep_one *one, struct err *err)
{
    char path[4096];
    const char *out = json_string_value(json_object_get(one->spec, "adapter_out"));
    if (snprintf(path, sizeof path, "%s/%s", out ? out : "", one->name) >= (int)sizeof path)
        return err_set(err, -ENAMETOOLONG, "--adapter-out %s is too long a name", out);
    return out ? json_object_set_new(one->spec, "adapter_out", json_string(path)) : 0;
}

int sweep_read(struct sweep *ret, const json_t *spec, struct err *err)
{
    const json_t *list = json_object_get(spec, "sweep"), *text;
    const char *type = json_string_value(json_object_get(spec, "fine_tune_type"));
    size_t i;
    int r = 0;
    ret->n = 1;
    ret->one[0] = (struct sweep_one){.spec = json_copy((json_t *)spec)};
    if (list && !json_is_null(list) && !json_is_array(list))
        return err_set(err, -EINVAL, "\"sweep\" must be a list: [\"lr=1e-4,3e-4\"]");
    if (!json_array_size(list))
        return 0;
    if (type && !strcmp(type, "full"))
        return err_set(err, -EINVAL,
                       "--sweep trains several adapters on frozen weights: leave out --fine-tune-type full");
    json_object_del(ret->one[0].spec, "sweep");
    json_array_foreach (list, i, text) {
        if (!r && !json_is_string(text))
            r = err_set(err, -EINVAL, "\"sweep\" must be a list of texts: [\"lr=1e-4,3e-4\"]");
        r = r ? r : add_option(ret, json_string_value(text), spec, err);
    }
    for (size_t a = 0; a < ret->n && !r; a++)
        r = place(&ret->one[a], err);
    return r;
}
