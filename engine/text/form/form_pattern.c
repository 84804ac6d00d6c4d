/* SPDX-License-Identifier: MIT
 *
 * Patterns of schemas: the regular part of ECMA-262's expressions. A pattern without ^ or $ may
 * have anything before or behind it, as JSON schema says. What no automaton does (look-around,
 * references back to a group) and word boundaries are refused by name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/form/form_json.h"
#include "text/utf8.h"

enum { REPEAT_MAX = 1 << 16, CODE_POINT_MAX = 0x10FFFF };

struct pattern_reader {
    struct form_draft *d;
    const char *pattern, *at;
    size_t nest;
};

struct class_ranges {
    struct form_range at[FORM_RANGES_MAX / 2];
    size_t n;
};

static void complain(const struct pattern_reader *p, const char *what)
{
    form_draft_fail(p->d, -EINVAL, "\"pattern\": character %zu of \"%.60s\": %s",
                    (size_t)(p->at - p->pattern) + 1, p->pattern, what);
}

static bool is_over(const struct pattern_reader *p)
{
    return p->d->failed || !*p->at;
}

static bool take(struct pattern_reader *p, const char *what)
{
    const size_t n = strlen(what);
    const bool is = !p->d->failed && !strncmp(p->at, what, n);
    p->at += is ? n : 0;
    return is;
}

/* --- characters ------------------------------------------------------------------------------- */

static void add_range(struct pattern_reader *p, struct class_ranges *c, uint32_t from, uint32_t to)
{
    if (c->n == sizeof c->at / sizeof *c->at)
        complain(p, "this class has too many ranges");
    else
        c->at[c->n++] = (struct form_range){from, to};
}

static const struct form_range digit_ranges[] = {{'0', '9'}},
                               word_ranges[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                               space_ranges[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
                                                 {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                                 {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                                                 {0xFEFF, 0xFEFF}},
                               line_ranges[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/* \d \w \s and their opposites; false: it is none of them. */
static bool take_escaped_set(struct pattern_reader *p, struct class_ranges *c)
{
    const char letter = p->at[0] == '\\' ? p->at[1] : '\0';
    const char small = letter >= 'A' && letter <= 'Z' ? (char)(letter + ('a' - 'A')) : letter;
    const struct form_range *set = small == 'd'   ? digit_ranges
                                   : small == 'w' ? word_ranges
                                   : small == 's' ? space_ranges
                                                  : NULL;
    const size_t n = small == 'd' ? 1 : small == 'w' ? 4 : 10;
    struct form_range all[2 * FORM_RANGES_MAX + 2];
    if (!set || p->d->failed)
        return false;
    const size_t made = form_ranges_tidy(all, set, n, letter != small);
    for (size_t i = 0; i < made; i++)
        add_range(p, c, all[i].from, all[i].to);
    p->at += 2;
    return true;
}

static uint32_t hex(struct pattern_reader *p, size_t digits)
{
    uint32_t cp = 0;
    for (size_t i = 0; i < digits && !p->d->failed; i++) {
        static const char all[] = "0123456789abcdef";
        const char c = *p->at >= 'A' && *p->at <= 'F' ? (char)(*p->at + ('a' - 'A')) : *p->at;
        const char *at = c ? strchr(all, c) : NULL;
        if (!at)
            complain(p, "hexadecimal digits are expected: two after \\x, four after \\u");
        else
            cp = cp << 4 | (uint32_t)(at - all);
        p->at += !p->d->failed;
    }
    return cp;
}

/* Behind a backslash. */
static uint32_t escaped(struct pattern_reader *p)
{
    const char c = *p->at;
    if (strchr("^$\\.*+?()[]{}|/-\"'#&~`@%,:;<=>! _", c) && c) {
        p->at++;
        return (uint32_t)c;
    }
    switch (c) {
    case 't': p->at++; return '\t';
    case 'n': p->at++; return '\n';
    case 'v': p->at++; return '\v';
    case 'f': p->at++; return '\f';
    case 'r': p->at++; return '\r';
    case 'x': p->at++; return hex(p, 2);
    case 'u': p->at++; return hex(p, 4);
    default: break;
    }
    complain(p, c == 'b' || c == 'B'                 ? "word boundaries are not supported"
                : (c >= '1' && c <= '9') || c == 'k' ? "references to a group are not supported"
                : c == 'p' || c == 'P' ? "properties of Unicode are not supported: list the characters"
                                       : "this is no escape that is supported");
    return 0;
}

static uint32_t character(struct pattern_reader *p)
{
    if (take(p, "\\"))
        return escaped(p);
    const struct utf8_char c = utf8_next(p->at, strlen(p->at));
    p->at += c.len;
    return c.cp;
}

static void class_item(struct pattern_reader *p, struct class_ranges *c)
{
    if (take_escaped_set(p, c))
        return;
    const uint32_t from = p->at[0] == '\\' && p->at[1] == 'b' ? (p->at += 2, (uint32_t)'\b') : character(p);
    uint32_t to = from;
    if (p->at[0] == '-' && p->at[1] && p->at[1] != ']') {
        p->at++;
        if (p->at[0] == '\\' && p->at[1] && strchr("dDwWsS", p->at[1]))
            complain(p, "a range ends with one character");
        else
            to = character(p);
    }
    if (to < from)
        complain(p, "this range ends before it begins");
    else
        add_range(p, c, from, to);
}

static struct form_expr *class_of(struct pattern_reader *p)
{
    struct class_ranges c;
    c.n = 0;
    const bool negated = take(p, "^");
    while (!is_over(p) && *p->at != ']')
        class_item(p, &c);
    if (!take(p, "]"))
        complain(p, "a class has no closing ]");
    return form_json_chars(p->d, c.at, c.n, negated);
}

/* --- elements --------------------------------------------------------------------------------- */

static void add_char(struct pattern_reader *p, struct class_ranges *c)
{
    const uint32_t cp = character(p);
    add_range(p, c, cp, cp);
}

static struct form_expr *alternatives(struct pattern_reader *p, bool is_whole);

static struct form_expr *group(struct pattern_reader *p)
{
    if (take(p, "?=") || take(p, "?!") || take(p, "?<=") || take(p, "?<!"))
        complain(p, "looking ahead or behind is not supported");
    else if (take(p, "?<")) {
        while (!is_over(p) && *p->at != '>')
            p->at++;
        if (!take(p, ">"))
            complain(p, "the name of a group has no closing >");
    } else if (!take(p, "?:") && take(p, "?"))
        complain(p, "of groups that begin with ? only (?: and (?<name> are supported");
    if (p->nest == FORM_NEST_MAX)
        complain(p, "brackets are nested deeper than 64");
    if (p->d->failed)
        return &p->d->nothing;
    p->nest++;
    struct form_expr *e = alternatives(p, false);
    p->nest--;
    if (!take(p, ")"))
        complain(p, "a bracket has no closing )");
    return e;
}

static uint32_t number(struct pattern_reader *p)
{
    uint32_t n = 0;
    if (*p->at < '0' || *p->at > '9')
        complain(p, "a number is expected");
    while (!is_over(p) && *p->at >= '0' && *p->at <= '9' && n <= REPEAT_MAX)
        n = 10 * n + (uint32_t)(*p->at++ - '0');
    if (n > REPEAT_MAX)
        complain(p, "at most 65536 repetitions are allowed");
    return n;
}

static struct form_expr *repeated(struct pattern_reader *p, struct form_expr *e)
{
    uint32_t min = 0, max = FORM_ENDLESS;
    if (take(p, "+"))
        min = 1;
    else if (take(p, "?"))
        max = 1;
    else if (take(p, "{")) {
        max = min = number(p);
        if (take(p, ","))
            max = *p->at == '}' ? FORM_ENDLESS : number(p);
        if (!take(p, "}"))
            complain(p, "} is expected");
        else if (max < min)
            complain(p, "the second number of a repetition is less than the first");
    } else if (!take(p, "*"))
        return e;
    take(p, "?"); /* lazy: the same texts */
    if (!is_over(p) && strchr("*+?{", *p->at))
        complain(p, "nothing is repeated here");
    return form_repeat(p->d, e, min, max);
}

static struct form_expr *element(struct pattern_reader *p)
{
    struct class_ranges set;
    set.n = 0;
    if (take(p, "("))
        return group(p);
    if (take(p, "["))
        return class_of(p);
    if (take(p, "."))
        return form_json_chars(p->d, line_ranges, 3, true);
    if (*p->at == '^' || *p->at == '$')
        complain(p, "^ and $ are supported only at the beginning and the end of the whole pattern");
    else if (strchr("*+?{", *p->at))
        complain(p, "nothing is repeated here");
    else if (!take_escaped_set(p, &set))
        add_char(p, &set);
    return p->d->failed ? &p->d->nothing : form_json_chars(p->d, set.at, set.n, false);
}

static struct form_expr *anything(struct form_draft *d)
{
    return form_repeat(d, form_json_chars(d, NULL, 0, true), 0, FORM_ENDLESS);
}

/* is_whole: not in brackets. */
static struct form_expr *sequence(struct pattern_reader *p, bool is_whole)
{
    struct form_expr *seq = form_seq(p->d);
    if (is_whole && !take(p, "^"))
        form_add(seq, anything(p->d));
    while (!is_over(p) && *p->at != '|' && *p->at != ')') {
        if (is_whole && *p->at == '$' && (!p->at[1] || p->at[1] == '|'))
            break;
        form_add(seq, repeated(p, element(p)));
    }
    if (is_whole && !take(p, "$"))
        form_add(seq, anything(p->d));
    return seq;
}

static struct form_expr *alternatives(struct pattern_reader *p, bool is_whole)
{
    struct form_expr *alt = form_alt(p->d);
    do
        form_add(alt, sequence(p, is_whole));
    while (take(p, "|"));
    return alt;
}

struct form_expr *form_pattern(struct form_draft *d, const char *pattern)
{
    struct pattern_reader p = {.d = d, .pattern = pattern, .at = pattern};
    struct form_expr *seq = form_seq(d);
    form_add(seq, form_text(d, "\""));
    form_add(seq, alternatives(&p, true));
    form_add(seq, form_text(d, "\""));
    if (!is_over(&p))
        complain(&p, "this ) closes nothing");
    return seq;
}
