/* SPDX-License-Identifier: MIT
 *
 * From tokenizer.json's pre-tokenizers to steps. Called once when a tokenizer opens. */
#include "text/pretok.h"

#include <errno.h>
#include <string.h>

#include "text/metaspace.h"
#include "text/pattern.h"
#include "text/pretok_step.h"
#include "text/tok_json.h"
#include "text/utf8.h"

/* How GPT-2 finds words: contractions, then letters, digits or other signs with one space before,
 * then white space. */
#define BYTE_LEVEL_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static struct pretok_step *add_step(struct pretok *pre, enum pretok_kind kind, struct err *err)
{
    void *steps = pre->steps;
    if (array_reserve(&steps, &pre->cap, pre->n + 1, sizeof *pre->steps)) {
        err_set(err, -ENOMEM, "no memory for the pre_tokenizer");
        return NULL;
    }
    pre->steps = steps;
    pre->steps[pre->n] = (struct pretok_step){.kind = kind};
    return &pre->steps[pre->n++];
}

static int add_regex(struct pretok *pre, const char *regex, enum split_behaviour behaviour, bool invert,
                     struct err *err)
{
    struct pretok_step *step = add_step(pre, PRETOK_SPLIT, err);
    if (!step)
        return -ENOMEM;
    step->behaviour = behaviour;
    step->invert = invert;
    return pattern_new_regex(&step->pattern, regex, err);
}

static int parse_byte_level(struct pretok *pre, const json_t *json, struct err *err)
{
    bool space_first, use_regex;
    int r = tok_json_bool(json, "pre_tokenizer ByteLevel", "add_prefix_space", true, &space_first, err);
    if (r == 0)
        r = tok_json_bool(json, "pre_tokenizer ByteLevel", "use_regex", true, &use_regex, err);
    if (r == 0 && space_first && !add_step(pre, PRETOK_SPACE_FIRST, err))
        r = -ENOMEM;
    if (r == 0 && use_regex)
        r = add_regex(pre, BYTE_LEVEL_WORDS, SPLIT_ISOLATED, false, err);
    if (r == 0 && !add_step(pre, PRETOK_BYTES, err))
        r = -ENOMEM;
    return r;
}

static int parse_behaviour(const json_t *json, const char *where, const char *fallback,
                           enum split_behaviour *ret, struct err *err)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    const char *name;
    int r = tok_json_optional(json, where, "behavior", &name, err);
    if (r)
        return r;
    name = name ? name : fallback;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum split_behaviour)i;
            return 0;
        }
    return err_set(
        err, -EINVAL,
        "%s: \"behavior\" is '%.32s'; it must be Removed, Isolated, MergedWithPrevious, MergedWithNext or "
        "Contiguous",
        where, name);
}

static int parse_split(struct pretok *pre, const json_t *json, struct err *err)
{
    struct pretok_step *step = add_step(pre, PRETOK_SPLIT, err);
    if (!step)
        return -ENOMEM;
    int r = parse_behaviour(json, "pre_tokenizer Split", "", &step->behaviour, err);
    if (r == 0)
        r = tok_json_bool(json, "pre_tokenizer Split", "invert", false, &step->invert, err);
    if (r == 0)
        r = pattern_from_json(&step->pattern, json_object_get(json, "pattern"), "pre_tokenizer Split", err);
    return r;
}

static int parse_digits(struct pretok *pre, const json_t *json, struct err *err)
{
    bool each;
    int r = tok_json_bool(json, "pre_tokenizer Digits", "individual_digits", false, &each, err);
    return r ? r : add_regex(pre, "\\p{N}", each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false, err);
}

static int parse_punctuation(struct pretok *pre, const json_t *json, struct err *err)
{
    enum split_behaviour behaviour;
    int r = parse_behaviour(json, "pre_tokenizer Punctuation", "Isolated", &behaviour, err);
    return r ? r : add_regex(pre, "[\\p{P}!-/:-@\\[-`{-~]", behaviour, false, err);
}

static int parse_whitespace(struct pretok *pre, const json_t *json, struct err *err)
{
    (void)json;
    return add_regex(pre, "\\w+|[^\\w\\s]+", SPLIT_REMOVED, true, err);
}

static int parse_whitespace_split(struct pretok *pre, const json_t *json, struct err *err)
{
    (void)json;
    return add_regex(pre, "\\s", SPLIT_REMOVED, false, err);
}

int metaspace_parse(const json_t *json, const char *where, const char **ret_mark,
                    enum prepend_scheme *ret_prepend, struct err *err)
{
    const char *mark, *scheme;
    bool prefix;
    int r = tok_json_string(json, where, "replacement", &mark, err);
    if (r == 0 && (!*mark || mark[utf8_next(mark, strlen(mark)).len]))
        r = err_set(err, -EINVAL, "%s: \"replacement\" must be one character", where);
    if (r == 0)
        r = tok_json_optional(json, where, "prepend_scheme", &scheme, err);
    if (r == 0)
        r = tok_json_bool(json, where, "add_prefix_space", true, &prefix, err);
    if (r)
        return r;
    if (!scheme)
        scheme = prefix ? "always" : "never";
    if (strcmp(scheme, "always") == 0)
        *ret_prepend = PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        *ret_prepend = PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0)
        *ret_prepend = PREPEND_NEVER;
    else
        return err_set(err, -EINVAL, "%s: \"prepend_scheme\" is '%.32s'; it must be always, first or never",
                       where, scheme);
    *ret_mark = mark;
    return 0;
}

static int parse_metaspace(struct pretok *pre, const json_t *json, struct err *err)
{
    const char *mark;
    enum prepend_scheme prepend;
    bool split;
    int r = metaspace_parse(json, "pre_tokenizer Metaspace", &mark, &prepend, err);
    if (r == 0)
        r = tok_json_bool(json, "pre_tokenizer Metaspace", "split", true, &split, err);
    if (r)
        return r;
    struct pretok_step *step = add_step(pre, PRETOK_MARK, err);
    if (!step)
        return -ENOMEM;
    step->prepend = prepend;
    textbuf_append(&step->mark, mark, strlen(mark));
    if (step->mark.failed)
        return err_set(err, -ENOMEM, "no memory for the pre_tokenizer");
    r = pattern_new_literal(&step->pattern, " ", 1, err);
    if (r || !split)
        return r;
    step = add_step(pre, PRETOK_SPLIT, err);
    if (!step)
        return -ENOMEM;
    step->behaviour = SPLIT_WITH_NEXT;
    return pattern_new_literal(&step->pattern, mark, strlen(mark), err);
}

static int parse_one(void *owner, const char *type, const json_t *json, struct err *err)
{
    static const struct {
        const char *type;
        int (*parse)(struct pretok *pre, const json_t *json, struct err *err);
    } parsers[] = {
        {"ByteLevel", parse_byte_level},
        {"Split", parse_split},
        {"Digits", parse_digits},
        {"Metaspace", parse_metaspace},
        {"Punctuation", parse_punctuation},
        {"Whitespace", parse_whitespace},
        {"WhitespaceSplit", parse_whitespace_split},
    };
    for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
        if (strcmp(type, parsers[i].type) == 0)
            return parsers[i].parse(owner, json, err);
    return err_set(err, -ENOTSUP,
                   "the pre_tokenizer '%.64s' is not supported; use a model whose tokenizer has ByteLevel, "
                   "Split, Digits, "
                   "Metaspace, Punctuation, Whitespace, WhitespaceSplit, a Sequence of them, or none",
                   type);
}

int pretok_parse(struct pretok *pre, const json_t *json, struct err *err)
{
    *pre = (struct pretok){0};
    return tok_json_each(json, "pre_tokenizer", "pretokenizers", 0, parse_one, pre, err);
}
