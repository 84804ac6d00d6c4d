/* SPDX-License-Identifier: MIT
 *
 * Searching for strings and regular expressions. Owns the compiled PCRE2 code; called by
 * normalizer, pretok and decoder while a tokenizer opens (one thread) and while it works (any
 * thread, each with its scratch). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "text/regex.h"
#include "text/textbuf.h"
#include "text/utf8.h"

enum {
    JIT_STACK_FIRST = 32 * 1024,
    JIT_STACK_LIMIT = 8 * 1024 * 1024, /* grown on demand: long runs inside groups */
    MATCH_LIMIT = 50 * 1000 * 1000,    /* backtracking steps of one search; an honest megabyte stays below */
};

struct pattern {
    pcre2_code *code; /* owned; NULL for a fixed string */
    struct textbuf literal;
};

struct pattern_scratch {
    pcre2_match_data *data;       /* owned */
    pcre2_match_context *context; /* owned */
    pcre2_jit_stack *stack;       /* owned */
};

int pattern_new_literal(struct pattern **ret, const char *text, size_t n, struct err *err)
{
    struct pattern *p = calloc(1, sizeof *p);
    if (p)
        textbuf_append(&p->literal, text, n);
    if (!p || p->literal.failed) {
        pattern_free(p);
        return err_set(err, -ENOMEM, "no memory for a pattern");
    }
    *ret = p;
    return 0;
}

int pattern_new_regex(struct pattern **ret, const char *regex, struct err *err)
{
    struct textbuf pcre = {0};
    struct pattern *p = calloc(1, sizeof *p);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int r = p && context ? 0 : err_set(err, -ENOMEM, "no memory for a regular expression");
    if (r == 0)
        r = regex_translate(&pcre, regex, err);
    if (r)
        goto out;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code;
    PCRE2_SIZE where;
    /* In Ruby's syntax ^ and $ always mean lines. */
    p->code = pcre2_compile((PCRE2_SPTR)pcre.data, pcre.len,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &where,
                            context);
    if (!p->code) {
        char why[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        r = err_set(err, -EINVAL, "the regular expression '%.200s' cannot be used: %s", regex, why);
        goto out;
    }
    /* Without JIT (no executable memory, say) the interpreter gives the same matches. */
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    *ret = p;
    p = NULL;
out:
    pattern_free(p);
    pcre2_compile_context_free(context);
    textbuf_done(&pcre);
    return r;
}

int pattern_from_json(struct pattern **ret, const json_t *obj, const char *where, struct err *err)
{
    const json_t *regex = json_object_get(obj, "Regex");
    const json_t *string = json_object_get(obj, "String");
    if (json_object_size(obj) != 1 || (!json_is_string(regex) && !json_is_string(string)))
        return err_set(err, -EINVAL, "%s: \"pattern\" must be {\"String\": \"…\"} or {\"Regex\": \"…\"}",
                       where);
    if (string)
        return pattern_new_literal(ret, json_string_value(string), json_string_length(string), err);
    int r = pattern_new_regex(ret, json_string_value(regex), err);
    return r ? err_prefix(err, r, "%s", where) : 0;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    textbuf_done(&p->literal);
    free(p);
}

int pattern_scratch_new(struct pattern_scratch **ret, struct err *err)
{
    struct pattern_scratch *s = calloc(1, sizeof *s);
    if (s) {
        s->data = pcre2_match_data_create(1, NULL);
        s->context = pcre2_match_context_create(NULL);
    }
    if (!s || !s->data || !s->context) {
        pattern_scratch_free(s);
        return err_set(err, -ENOMEM, "no memory to search for patterns");
    }
    pcre2_set_match_limit(s->context, MATCH_LIMIT);
    /* NULL where JIT is missing: then it is not used either. */
    s->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_LIMIT, NULL);
    pcre2_jit_stack_assign(s->context, NULL, s->stack);
    *ret = s;
    return 0;
}

void pattern_scratch_limit(struct pattern_scratch *s, uint32_t steps)
{
    pcre2_set_match_limit(s->context, steps);
}

void pattern_scratch_free(struct pattern_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

static int find_literal(const struct textbuf *literal, const char *s, size_t n, size_t from,
                        struct pattern_hit *ret)
{
    if (literal->len == 0 || from >= n)
        return 0;
    const char *at = memmem(s + from, n - from, literal->data, literal->len);
    if (!at)
        return 0;
    ret->start = (size_t)(at - s);
    ret->end = ret->start + literal->len;
    return 1;
}

static int find_regex(const struct pattern *p, struct pattern_scratch *scratch, const char *s, size_t n,
                      size_t from, struct pattern_hit *ret, struct err *err)
{
    if (from > n)
        return 0;
    int r = pcre2_match(p->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, scratch->data, scratch->context);
    if (r == PCRE2_ERROR_NOMATCH)
        return 0;
    if (r < 0) {
        char why[128];
        pcre2_get_error_message(r, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(err, -E2BIG,
                       "a regular expression of the tokenizer gave up on this text (%s); shorten the text",
                       why);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(scratch->data);
    if (at[0] < from || at[1] < at[0] || at[1] > n)
        return err_set(err, -EINVAL,
                       "a regular expression of the tokenizer moves its match's start (\\K); not supported");
    *ret = (struct pattern_hit){at[0], at[1]};
    return 1;
}

int pattern_next(const struct pattern *p, struct pattern_scratch *scratch, const char *s, size_t n,
                 struct pattern_walk *walk, struct pattern_hit *ret, struct err *err)
{
    for (;;) {
        struct pattern_hit hit;
        int r = p->code ? find_regex(p, scratch, s, n, walk->from, &hit, err)
                        : find_literal(&p->literal, s, n, walk->from, &hit);
        if (r <= 0)
            return r;
        if (hit.start < hit.end || hit.end != walk->last) {
            walk->from = walk->last = hit.end;
            *ret = hit;
            return 1;
        }
        walk->from += walk->from < n ? utf8_next(s + walk->from, n - walk->from).len : 1;
    }
}

int pattern_replace(const struct pattern *p, struct pattern_scratch *scratch, const char *s, size_t n,
                    const struct textbuf *with, struct textbuf *out, struct err *err)
{
    size_t copied = 0;
    struct pattern_walk walk = PATTERN_WALK;
    struct pattern_hit hit;
    int r;
    while ((r = pattern_next(p, scratch, s, n, &walk, &hit, err)) > 0) {
        textbuf_append(out, s + copied, hit.start - copied);
        textbuf_append(out, with->data, with->len);
        copied = hit.end;
    }
    textbuf_append(out, s + copied, n - copied);
    return r;
}
