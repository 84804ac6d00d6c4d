/* SPDX-License-Identifier: MIT
 *
 * PEFT's rules of matching: see peft_rules.h. A text is a regular expression of whole names; a list
 * holds whole names or their last words. */
#include "model/peft_rules.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "file/input.h"
#include "text/pattern.h"

enum { MAX_LAYERS_PATTERNS = 8 };

/* rank_pattern or alpha_pattern: the first that matches counts. */
struct keyed {
    struct pattern **at; /* owned */
    double *value;       /* owned */
    size_t n;
};

struct peft_rules {
    struct pattern_scratch *scratch;               /* owned */
    const json_t *targets, *excluded, *layers;     /* borrowed; NULL: none */
    struct pattern *target_text, *excluded_text;   /* owned; where they are texts */
    struct pattern *layer_at[MAX_LAYERS_PATTERNS]; /* owned; ends behind the number of the layer and a dot */
    size_t nlayer_at;
    bool all;
    struct keyed ranks, alphas;
    struct tune_form usual;
};

__attribute__((format(printf, 3, 4))) static int compile(struct pattern **ret, struct err *err,
                                                         const char *fmt, ...)
{
    char *text;
    va_list args;
    va_start(args, fmt);
    const int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0)
        return err_set(err, -ENOMEM, "out of memory");
    const int r = pattern_new_regex(ret, text, err);
    free(text);
    return r;
}

static int matches(const struct peft_rules *p, const struct pattern *pattern, const char *module,
                   struct pattern_hit *hit, struct err *err)
{
    struct pattern_walk walk = PATTERN_WALK;
    return pattern_next(pattern, p->scratch, module, strlen(module), &walk, hit, err);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_string(v) && !*json_string_value(v)) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

static int texts_only(const json_t *list, const char *key, struct err *err)
{
    bool good = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        good = good && json_is_string(json_array_get(list, i));
    return good ? 0 : err_set(err, -EINVAL, "\"%s\" must be a text or a list of texts", key);
}

/* A text to match whole names with, or a list. */
static int read_names(const json_t *config, const char *key, const json_t **ret_list,
                      struct pattern **ret_text, struct err *err)
{
    const json_t *v = json_object_get(config, key);
    if (is_empty(v))
        return 0;
    if (json_is_string(v)) {
        const int r = compile(ret_text, err, "\\A(?:%s)\\z", json_string_value(v));
        return r ? err_prefix(err, r, "\"%s\"", key) : 0;
    }
    *ret_list = v;
    return texts_only(v, key, err);
}

static int read_layers(struct peft_rules *p, const json_t *config, struct err *err)
{
    const json_t *layers = json_object_get(config, "layers_to_transform"),
                 *patterns = json_object_get(config, "layers_pattern");
    if (is_empty(layers))
        return 0;
    bool good = json_is_array(layers) || json_is_integer(layers);
    for (size_t i = 0; i < json_array_size(layers); i++)
        good = good && json_is_integer(json_array_get(layers, i));
    if (!good)
        return err_set(err, -EINVAL, "\"layers_to_transform\" must be a number or a list of numbers");
    p->layers = layers;
    if (is_empty(patterns)) {
        p->nlayer_at = 1;
        return compile(&p->layer_at[0], err, "\\A.*?\\.[^.]*\\.\\d+\\.");
    }
    const size_t n = json_is_string(patterns) ? 1 : json_array_size(patterns);
    int r = json_is_string(patterns) ? 0 : texts_only(patterns, "layers_pattern", err);
    if (!r && n > MAX_LAYERS_PATTERNS)
        r = err_set(err, -ENOTSUP, "\"layers_pattern\" has more than %d texts", MAX_LAYERS_PATTERNS);
    for (; p->nlayer_at < n && !r; p->nlayer_at++) {
        const json_t *text = json_is_string(patterns) ? patterns : json_array_get(patterns, p->nlayer_at);
        r = compile(&p->layer_at[p->nlayer_at], err, "\\A.*?\\.%s\\.\\d+\\.", json_string_value(text));
    }
    return r ? err_prefix(err, r, "\"layers_pattern\"") : 0;
}

static int read_keyed(struct keyed *k, const json_t *config, const char *key, double least, double most,
                      struct err *err)
{
    const json_t *o = json_object_get(config, key);
    if (is_empty(o))
        return 0;
    const size_t n = json_object_size(o);
    if (!json_is_object(o))
        return err_set(err, -EINVAL, "\"%s\" must be an object", key);
    k->at = calloc(n, sizeof(struct pattern *));
    k->value = calloc(n, sizeof *k->value);
    if (!k->at || !k->value)
        return err_set(err, -ENOMEM, "out of memory");
    const char *text;
    json_t *v;
    json_object_foreach ((json_t *)o, text, v) {
        k->value[k->n] = json_number_value(v);
        if (!(k->value[k->n] >= least && k->value[k->n] <= most))
            return err_set(err, -EINVAL, "\"%s\" has %s for %s, allowed are %g to %g", key,
                           json_is_number(v) ? "an impossible number" : "no number", input_quote(text).text,
                           least, most);
        const int r = compile(&k->at[k->n], err, "\\A(?:.*\\.)?(?:%s)\\z", text);
        if (r)
            return err_prefix(err, r, "\"%s\"", key);
        k->n++;
    }
    return 0;
}

int peft_rules_new(struct peft_rules **ret, const json_t *config, struct tune_form usual, struct err *err)
{
    const char *text = json_string_value(json_object_get(config, "target_modules"));
    struct peft_rules *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    p->usual = usual;
    p->all = text && !strcasecmp(text, "all-linear");
    int r = pattern_scratch_new(&p->scratch, err);
    if (!r && !p->all)
        r = read_names(config, "target_modules", &p->targets, &p->target_text, err);
    if (!r)
        r = read_names(config, "exclude_modules", &p->excluded, &p->excluded_text, err);
    if (!r)
        r = read_layers(p, config, err);
    if (!r)
        r = read_keyed(&p->ranks, config, "rank_pattern", 1, 65536, err);
    if (!r)
        r = read_keyed(&p->alphas, config, "alpha_pattern", 1e-6, 1e6, err);
    if (r)
        peft_rules_free(p);
    else
        *ret = p;
    return r;
}

static void keyed_done(struct keyed *k)
{
    for (size_t i = 0; i < k->n; i++)
        pattern_free(k->at[i]);
    free(k->at);
    free(k->value);
}

void peft_rules_free(struct peft_rules *p)
{
    if (!p)
        return;
    pattern_free(p->target_text);
    pattern_free(p->excluded_text);
    for (size_t i = 0; i < MAX_LAYERS_PATTERNS; i++)
        pattern_free(p->layer_at[i]);
    keyed_done(&p->ranks);
    keyed_done(&p->alphas);
    pattern_scratch_free(p->scratch);
    free(p);
}

/* --- matching --------------------------------------------------------------------------------- */

enum fit { FIT_NONE, FIT_END, FIT_WHOLE };

static enum fit fit_list(const json_t *list, const char *module)
{
    const size_t n = strlen(module);
    enum fit fit = FIT_NONE;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const size_t want = strlen(name);
        if (!strcmp(module, name))
            return FIT_WHOLE;
        if (want < n && module[n - want - 1] == '.' && !strcmp(module + n - want, name))
            fit = FIT_END;
    }
    return fit;
}

/* The layer as PEFT finds it in the name; −1 where it finds none. */
static int find_layer(const struct peft_rules *p, const char *module, json_int_t *ret, struct err *err)
{
    *ret = -1;
    for (size_t i = 0; i < p->nlayer_at; i++) {
        struct pattern_hit hit;
        const int r = matches(p, p->layer_at[i], module, &hit, err);
        if (r < 0)
            return r;
        if (!r)
            continue;
        size_t at = hit.end - 1;
        while (at > hit.start && isdigit((unsigned char)module[at - 1]))
            at--;
        *ret = strtoll(module + at, NULL, 10);
        return 0;
    }
    return 0;
}

static int in_layers(const struct peft_rules *p, const char *module, struct err *err)
{
    json_int_t layer;
    const int r = find_layer(p, module, &layer, err);
    if (r || layer < 0)
        return r;
    if (json_is_integer(p->layers))
        return json_integer_value(p->layers) == layer;
    for (size_t i = 0; i < json_array_size(p->layers); i++)
        if (json_integer_value(json_array_get(p->layers, i)) == layer)
            return 1;
    return 0;
}

static int is_named(const struct peft_rules *p, const char *module, struct err *err)
{
    struct pattern_hit hit;
    int r = p->excluded_text ? matches(p, p->excluded_text, module, &hit, err)
                             : fit_list(p->excluded, module) > 0;
    if (r)
        return r < 0 ? r : 0;
    if (p->target_text)
        return matches(p, p->target_text, module, &hit, err);
    const enum fit fit = p->all ? FIT_END : fit_list(p->targets, module);
    return fit == FIT_END && p->layers ? in_layers(p, module, err) : fit != FIT_NONE;
}

/* Changes *value where a pattern of `k` matches. */
static int look_up(const struct peft_rules *p, const struct keyed *k, const char *module, double *value,
                   struct err *err)
{
    for (size_t i = 0; i < k->n; i++) {
        struct pattern_hit hit;
        const int r = matches(p, k->at[i], module, &hit, err);
        if (r > 0)
            *value = k->value[i];
        if (r)
            return r < 0 ? r : 0;
    }
    return 0;
}

int peft_rules_ask(void *arg, const char *module, size_t layer, struct tune_form *ret, struct err *err)
{
    const struct peft_rules *p = arg;
    double rank = (double)p->usual.rank, alpha = (double)p->usual.alpha;
    (void)layer; /* PEFT finds it in the name */
    int r = is_named(p, module, err);
    if (r <= 0)
        return r;
    r = look_up(p, &p->ranks, module, &rank, err);
    if (!r)
        r = look_up(p, &p->alphas, module, &alpha, err);
    *ret = (struct tune_form){(size_t)rank, (float)alpha};
    return r ? r : 1;
}
