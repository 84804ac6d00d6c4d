/* SPDX-License-Identifier: MIT
 *
 * Expressions are compiled once: a model of experts has tens of thousands of names. PCRE2 does not
 * say how many steps a search took: so each is tried with few, and costs more where they do not
 * do. The costs of all have a limit, which no clock is part of. */
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
    STEPS_FEW = 256,          /* of a search that costs 1; */
    SEARCH_STEPS = 10 * 1000, /* of any: a name has a hundred characters */
    COST_MORE = SEARCH_STEPS / STEPS_FEW + 1,
    COST_MOST = 1 << 22, /* Kimi-K2 has 70 thousand linears, with 3 expressions and 3 names for each */
    NAMES = 1 + TEXT_PART_WAYS,
};

struct target {
    const char *text;        /* borrowed: the config */
    struct pattern *pattern; /* owned: of an expression, or NULL, */
    char *name;              /* owned: else the module that it names */
    size_t group;            /* which it is a target of; SIZE_MAX: it is ignored */
    size_t order, cost;      /* its place in config.json; of its searches */
};

struct quant_targets {
    struct target *at; /* owned; once all are read: the expressions as they came, then names, sorted */
    size_t n, room, regexes, cost;
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
    *own = (struct target){.text = text, .group = group, .order = t->n};
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

/* Of one name what is ignored comes first. */
static int by_name(const void *a, const void *b)
{
    const struct target *x = a, *y = b;
    int r = x->name && y->name ? strcmp(x->name, y->name) : !!x->name - !!y->name;
    if (!r && x->name)
        r = (y->group == SIZE_MAX) - (x->group == SIZE_MAX);
    return r ? r : (x->order > y->order) - (x->order < y->order);
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
    if (t->n)
        qsort(t->at, t->n, sizeof *t->at, by_name);
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

/* What this name takes in: the first of it, or NULL. */
static const struct target *named(const struct quant_targets *t, const char *name)
{
    size_t from = t->regexes, to = t->n;
    while (from < to) {
        const size_t mid = from + (to - from) / 2;
        if (strcmp(t->at[mid].name, name) < 0)
            from = mid + 1;
        else
            to = mid;
    }
    return from < t->n && !strcmp(t->at[from].name, name) ? &t->at[from] : NULL;
}

static int pay(struct quant_targets *t, struct target *own, size_t cost, struct err *err)
{
    own->cost += cost;
    t->cost += cost;
    if (t->cost <= COST_MOST)
        return 0;
    for (size_t i = 0; i < t->regexes; i++)
        if (t->at[i].cost > own->cost)
            own = &t->at[i];
    return err_set(err, -E2BIG,
                   "config.json's quantization_config: its expressions take too long on so many names, "
                   "'%s' most of all",
                   input_quote(own->text).text);
}

static int search(struct quant_targets *t, const struct target *own, const char *name, uint32_t steps,
                  struct err *err)
{
    struct pattern_walk walk = PATTERN_WALK;
    struct pattern_hit hit;
    pattern_scratch_limit(t->scratch, steps);
    const int r = pattern_next(own->pattern, t->scratch, name, strlen(name), &walk, &hit, err);
    return r > 0 ? hit.start == 0 : r;
}

/* 1, 0, or −errno where the search is given up. */
static int matches(struct quant_targets *t, struct target *own, const char *name, struct err *err)
{
    int r = pay(t, own, 1, err);
    if (r)
        return r;
    r = search(t, own, name, STEPS_FEW, err);
    if (r >= 0)
        return r;
    r = pay(t, own, COST_MORE, err);
    if (r)
        return r;
    r = search(t, own, name, SEARCH_STEPS, err);
    return r < 0 ? err_set(err, r,
                           "config.json's quantization_config: the expression '%s' takes too long on names "
                           "such as %s",
                           input_quote(own->text).text, name)
                 : r;
}

/* The expressions, on all names that files may have of the module: of what `best` is not of
 * already, the first counts. 1: the module is ignored; 0; −errno. */
static int search_all(struct quant_targets *t, const char *const names[NAMES], const struct target **best,
                      struct err *err)
{
    for (size_t i = 0; i < t->regexes; i++) {
        struct target *own = &t->at[i];
        int r = 0;
        if (*best && own->group != SIZE_MAX)
            continue;
        for (size_t k = 0; k < NAMES && !r; k++)
            r = matches(t, own, names[k], err);
        if (r < 0 || (r && own->group == SIZE_MAX))
            return r;
        if (r)
            *best = own;
    }
    return 0;
}

static int search_names(struct quant_targets *t, const char *module, const struct target **best,
                        struct err *err)
{
    char *outer[TEXT_PART_WAYS];
    const char *names[NAMES] = {module};
    bool is_whole = true;
    for (size_t way = 0; way < TEXT_PART_WAYS; way++) {
        names[1 + way] = outer[way] = text_part_outer_name(module, way);
        is_whole = is_whole && outer[way];
    }
    const int r = is_whole ? search_all(t, names, best, err) : err_set(err, -ENOMEM, "out of memory");
    for (size_t way = 0; way < TEXT_PART_WAYS; way++)
        free(outer[way]);
    return r;
}

int quant_targets_find(struct quant_targets *t, const char *module, bool is_linear,
                       struct config_packing *ret, struct err *err)
{
    const struct target *best = named(t, module), *all = is_linear ? named(t, LINEAR) : NULL;
    if ((best && best->group == SIZE_MAX) || (all && all->group == SIZE_MAX))
        return 0;
    const int r = t->regexes ? search_names(t, module, &best, err) : 0;
    if (r)
        return r < 0 ? r : 0;
    if (!best)
        best = all;
    if (best)
        *ret = t->groups[best->group];
    return best != NULL;
}
