/* SPDX-License-Identifier: MIT
 *
 * Expressions are compiled once: a model of experts has tens of thousands of names. */
#include "model/quant/quant_targets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/pattern.h"

#define REGEX "re:"
#define LINEAR "Linear"
/* Models that also see have their text part below this. */
#define PART "language_model."

enum kind { BY_CLASS, BY_REGEX, BY_NAME, KINDS };

struct target {
    const char *text;        /* borrowed: the config */
    struct pattern *pattern; /* owned: of an expression, or NULL */
    size_t group;            /* which it is a target of; SIZE_MAX: it is ignored */
};

struct quant_targets {
    struct target *at; /* owned */
    size_t n;
    struct config_packing *groups; /* owned */
    struct pattern_scratch *scratch;
};

static int add(struct quant_targets *t, const char *text, size_t group, struct err *err)
{
    struct target *more = realloc(t->at, (t->n + 1) * sizeof *more);
    if (!more)
        return err_set(err, -ENOMEM, "out of memory");
    t->at = more;
    t->at[t->n] = (struct target){.text = text, .group = group};
    const bool is_regex = !strncmp(text, REGEX, strlen(REGEX));
    struct target *own = &t->at[t->n++];
    return is_regex ? pattern_new_regex(&own->pattern, text + strlen(REGEX), err) : 0;
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
    if (!r)
        r = add_groups(t, quantization, err);
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
    for (size_t i = 0; i < t->n; i++)
        pattern_free(t->at[i].pattern);
    pattern_scratch_free(t->scratch);
    free(t->at);
    free(t->groups);
    free(t);
}

/* A search that is given up matches nothing. */
static bool matches(const struct quant_targets *t, const struct target *own, const char *name)
{
    struct pattern_walk walk = PATTERN_WALK;
    struct pattern_hit hit;
    struct err err;
    return own->pattern
               ? pattern_next(own->pattern, t->scratch, name, strlen(name), &walk, &hit, &err) == 1 &&
                     hit.start == 0
               : !strcmp(own->text, name);
}

/* How the target takes the module in; KINDS: not at all. */
static enum kind takes(const struct quant_targets *t, const struct target *own, const char *module,
                       bool is_linear)
{
    const size_t n = strlen(PART);
    char name[256] = PART;
    strncat(name, module, sizeof name - n - 1);
    if (matches(t, own, module) || matches(t, own, name))
        return own->pattern ? BY_REGEX : BY_NAME;
    return is_linear && !strcmp(own->text, LINEAR) ? BY_CLASS : KINDS;
}

bool quant_targets_find(const struct quant_targets *t, const char *module, bool is_linear,
                        struct config_packing *ret)
{
    const struct target *best = NULL;
    enum kind by = BY_CLASS;
    for (size_t i = 0; i < t->n; i++) {
        const struct target *own = &t->at[i];
        const enum kind kind = takes(t, own, module, is_linear);
        if (kind == KINDS)
            continue;
        if (own->group == SIZE_MAX)
            return false;
        if (!best || kind > by) {
            best = own;
            by = kind;
        }
    }
    if (best)
        *ret = t->groups[best->group];
    return best;
}
