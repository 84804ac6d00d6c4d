/* SPDX-License-Identifier: MIT
 *
 * Expressions are compiled once: a model of experts has tens of thousands of names. */
#include "model/quant/quant_targets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "file/text_part.h"
#include "text/pattern.h"

#define REGEX "re:"
#define LINEAR "Linear"

enum {
    TARGETS_MOST = 1 << 14,
    REGEXES_MOST = 256,
    SEARCH_STEPS = 10 * 1000, /* a name has a hundred characters, and tens of thousands are searched */
};

enum kind { BY_CLASS, BY_REGEX, BY_NAME, KINDS };

struct target {
    const char *text;        /* borrowed: the config */
    struct pattern *pattern; /* owned: of an expression, or NULL, */
    char *name;              /* owned: else the module that it names */
    size_t group;            /* which it is a target of; SIZE_MAX: it is ignored */
};

struct quant_targets {
    struct target *at; /* owned */
    size_t n, room, regexes;
    struct config_packing *groups; /* owned */
    struct pattern_scratch *scratch;
};

static int make_room(struct quant_targets *t, struct err *err)
{
    if (t->n < t->room)
        return 0;
    const size_t room = t->room ? 2 * t->room : 64;
    struct target *more = reallocarray(t->at, room, sizeof *more);
    if (!more)
        return err_set(err, -ENOMEM, "out of memory");
    t->at = more;
    t->room = room;
    return 0;
}

static int add(struct quant_targets *t, const char *text, size_t group, struct err *err)
{
    const bool is_regex = !strncmp(text, REGEX, strlen(REGEX));
    t->regexes += is_regex;
    if (t->n == TARGETS_MOST || t->regexes > REGEXES_MOST)
        return err_set(err, -E2BIG,
                       "\"targets\" and \"ignore\" have more than %d names, or %d expressions, together",
                       TARGETS_MOST, REGEXES_MOST);
    int r = make_room(t, err);
    if (r)
        return r;
    struct target *own = &t->at[t->n++];
    *own = (struct target){.text = text, .group = group};
    if (is_regex)
        return pattern_new_regex(&own->pattern, text + strlen(REGEX), err);
    own->name = text_part_name(text);
    return own->name ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int add_all(struct quant_targets *t, const json_t *list, size_t group, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < json_array_size(list) && !r; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        r = text ? add(t, text, group, err) : 0;
    }
    return r;
}

/* A group without targets has all linears. */
static int add_groups(struct quant_targets *t, const json_t *q, struct err *err)
{
    const char *format = json_string_value(json_object_get(q, "format")), *key;
    json_t *group;
    size_t n = 0;
    int r = 0;
    json_object_foreach ((json_t *)json_object_get(q, "config_groups"), key, group) {
        const json_t *targets = json_object_get(group, "targets");
        config_packing(&t->groups[n], group, format ? format : "");
        r = r ? r : targets ? add_all(t, targets, n, err) : add(t, LINEAR, n, err);
        n++;
    }
    return r;
}

int quant_targets_new(struct quant_targets **ret, const json_t *quantization, struct err *err)
{
    const size_t groups = json_object_size(json_object_get(quantization, "config_groups"));
    struct quant_targets *t = calloc(1, sizeof *t);
    if (!t || !(t->groups = calloc(groups + 1, sizeof *t->groups))) {
        free(t);
        return err_set(err, -ENOMEM, "out of memory");
    }
    int r = pattern_scratch_new(&t->scratch, err);
    if (!r) {
        pattern_scratch_limit(t->scratch, SEARCH_STEPS);
        r = add_groups(t, quantization, err);
    }
    if (!r)
        r = add_all(t, json_object_get(quantization, "ignore"), SIZE_MAX, err);
    if (r) {
        quant_targets_free(t);
        return err_prefix(err, r, "config.json's quantization_config");
    }
    *ret = t;
    return 0;
}

void quant_targets_free(struct quant_targets *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++) {
        pattern_free(t->at[i].pattern);
        free(t->at[i].name);
    }
    pattern_scratch_free(t->scratch);
    free(t->at);
    free(t->groups);
    free(t);
}

/* 1, 0, or −errno where the search is given up. */
static int matches(const struct quant_targets *t, const struct target *own, const char *name, struct err *err)
{
    struct pattern_walk walk = PATTERN_WALK;
    struct pattern_hit hit;
    const int r = pattern_next(own->pattern, t->scratch, name, strlen(name), &walk, &hit, err);
    return r < 0 ? err_set(err, r,
                           "config.json's quantization_config: the expression '%s' takes too long on names "
                           "such as %s",
                           input_quote(own->text).text, name)
                 : r && hit.start == 0;
}

/* The same with the names that files may have of it. */
static int matches_any(const struct quant_targets *t, const struct target *own, const char *module,
                       struct err *err)
{
    int r = matches(t, own, module, err);
    for (size_t way = 0; way < TEXT_PART_WAYS && !r; way++) {
        char *name = text_part_outer_name(module, way);
        r = name ? matches(t, own, name, err) : err_set(err, -ENOMEM, "out of memory");
        free(name);
    }
    return r;
}

/* How the target takes the module in; KINDS: not at all; −errno. */
static int takes(const struct quant_targets *t, const struct target *own, const char *module, bool is_linear,
                 struct err *err)
{
    if (own->name && !strcmp(own->name, module))
        return BY_NAME;
    if (own->name)
        return is_linear && !strcmp(own->name, LINEAR) ? BY_CLASS : KINDS;
    const int r = matches_any(t, own, module, err);
    return r < 0 ? r : r ? BY_REGEX : KINDS;
}

int quant_targets_find(const struct quant_targets *t, const char *module, bool is_linear,
                       struct config_packing *ret, struct err *err)
{
    const struct target *best = NULL;
    int by = BY_CLASS;
    for (size_t i = 0; i < t->n; i++) {
        const struct target *own = &t->at[i];
        const int kind = takes(t, own, module, is_linear, err);
        if (kind < 0)
            return kind;
        if (kind == KINDS)
            continue;
        if (own->group == SIZE_MAX)
            return 0;
        if (!best || kind > by) {
            best = own;
            by = kind;
        }
    }
    if (best)
        *ret = t->groups[best->group];
    return best != NULL;
}
