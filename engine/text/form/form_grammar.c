/* SPDX-License-Identifier: MIT
 *
 * GBNF (grammars/README.md of llama.cpp): rules of literals, classes, groups, alternatives and
 * repetitions. Beyond it a rule may go on in a line that begins with "|". Tokens as such (<[12]>,
 * <think>) are refused: a form is about bytes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "text/form/form_draft.h"
#include "text/utf8.h"

enum { REPEAT_MAX = 1 << 16, NAME_MAX_BYTES = 128, CODE_POINT_MAX = 0x10FFFF };

struct grammar {
    struct form_draft *d;
    const char *begin, *at, *end;
    size_t nest;
};

/* --- places ----------------------------------------------------------------------------------- */

static void place_of(const struct grammar *g, const char *at, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (const char *p = g->begin; p < at; p++) {
        if (*p == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)*p & 0xC0) != 0x80)
            ++*column;
    }
}

static void complain(const struct grammar *g, const char *at, const char *what)
{
    size_t line, column;
    place_of(g, at, &line, &column);
    form_draft_fail(g->d, -EINVAL, "line %zu, column %zu: %s", line, column, what);
}

static bool is_over(const struct grammar *g)
{
    return g->d->failed || g->at == g->end;
}

static char peek(const struct grammar *g)
{
    return is_over(g) ? '\0' : *g->at;
}

static bool take(struct grammar *g, char c)
{
    const bool is = !is_over(g) && *g->at == c;
    g->at += is;
    return is;
}

/* Blanks and comments; line breaks only where a rule cannot end. */
static void skip(struct grammar *g, bool lines)
{
    while (!is_over(g)) {
        const char c = *g->at;
        if (c == '#')
            while (g->at < g->end && *g->at != '\n')
                g->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            g->at++;
        else
            break;
    }
}

/* --- words ------------------------------------------------------------------------------------ */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static uint32_t rule_name(struct grammar *g)
{
    const char *from = g->at;
    while (!is_over(g) && is_word(*g->at))
        g->at++;
    const size_t n = (size_t)(g->at - from);
    if (!n || n > NAME_MAX_BYTES) {
        complain(g, from, n ? "the name of a rule is too long" : "the name of a rule is expected");
        return 0;
    }
    const size_t known = g->d->nrules;
    const uint32_t rule = form_rule_named(g->d, from, n);
    if (!g->d->failed && g->d->nrules > known)
        g->d->rules[rule].first = from;
    return rule;
}

static uint32_t number(struct grammar *g)
{
    const char *from = g->at;
    uint32_t n = 0;
    while (!is_over(g) && *g->at >= '0' && *g->at <= '9' && n <= REPEAT_MAX)
        n = 10 * n + (uint32_t)(*g->at++ - '0');
    if (g->at == from)
        complain(g, from, "a number is expected");
    else if (n > REPEAT_MAX)
        complain(g, from, "at most 65536 repetitions are allowed");
    return n;
}

static uint32_t hex(struct grammar *g, size_t digits)
{
    const char *from = g->at;
    uint32_t cp = 0;
    for (size_t i = 0; i < digits && !g->d->failed; i++) {
        static const char all[] = "0123456789abcdef";
        const char c = peek(g);
        const char *at = c ? strchr(all, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;
        if (!at)
            complain(g, from,
                     "hexadecimal digits are expected: two after \\x, four after \\u, eight after \\U");
        else if (cp > CODE_POINT_MAX >> 4)
            complain(g, from, "this is no character: the last one is \\U0010FFFF");
        else
            cp = cp << 4 | (uint32_t)(at - all);
        g->at += !g->d->failed;
    }
    return cp;
}

static uint32_t escaped(struct grammar *g)
{
    const char *from = g->at - 1;
    const char c = peek(g);
    g->at += !is_over(g);
    switch (c) {
    case 'x': return hex(g, 2);
    case 'u': return hex(g, 4);
    case 'U': return hex(g, 8);
    case 't': return '\t';
    case 'r': return '\r';
    case 'n': return '\n';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^': return (uint32_t)c;
    default: break;
    }
    complain(g, from, "one of \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\^ is expected");
    return 0;
}

/* The next character of a literal or a class; g is not over. */
static uint32_t character(struct grammar *g)
{
    if (take(g, '\\'))
        return escaped(g);
    const struct utf8_char c = utf8_next(g->at, (size_t)(g->end - g->at));
    if (!c.valid)
        complain(g, g->at, "this is no UTF-8");
    g->at += c.len;
    return c.cp;
}

/* --- elements --------------------------------------------------------------------------------- */

static struct form_expr *literal(struct grammar *g)
{
    const char *from = g->at - 1;
    struct textbuf text = {0};
    while (!is_over(g) && *g->at != '"') {
        const uint32_t cp = character(g);
        if (cp >= 0xD800 && cp <= 0xDFFF)
            complain(g, from, "half of a surrogate pair is no character");
        else if (!g->d->failed)
            textbuf_append_char(&text, cp);
    }
    if (!take(g, '"'))
        complain(g, from, "this text has no closing \"");
    if (text.failed)
        form_draft_fail(g->d, -ENOMEM, "no memory for the grammar");
    struct form_expr *e = form_literal(g->d, text.len ? text.data : "", text.len);
    textbuf_done(&text);
    return e;
}

static struct form_expr *class_of(struct grammar *g)
{
    struct form_range ranges[FORM_RANGES_MAX];
    const char *from = g->at - 1;
    const bool negated = take(g, '^');
    size_t n = 0;
    while (!is_over(g) && *g->at != ']') {
        const char *here = g->at;
        struct form_range r = {.from = character(g)};
        r.to = r.from;
        if (g->end - g->at > 1 && g->at[0] == '-' && g->at[1] != ']') {
            g->at++;
            r.to = character(g);
        }
        if (r.to < r.from)
            complain(g, here, "this range ends before it begins");
        else if (n == FORM_RANGES_MAX)
            complain(g, from, "this class has more than 1024 ranges");
        else
            ranges[n++] = r;
    }
    if (!take(g, ']'))
        complain(g, from, "this class has no closing ]");
    return form_class(g->d, ranges, n, negated);
}

static struct form_expr *alternatives(struct grammar *g, bool nested);

static struct form_expr *group(struct grammar *g)
{
    const char *from = g->at - 1;
    if (g->nest == FORM_NEST_MAX) {
        complain(g, from, "brackets are nested deeper than 64");
        return &g->d->nothing;
    }
    g->nest++;
    struct form_expr *e = alternatives(g, true);
    g->nest--;
    if (!take(g, ')'))
        complain(g, from, "this bracket has no closing )");
    return e;
}

static struct form_expr *repeated(struct grammar *g, struct form_expr *e)
{
    for (;;) {
        const char *from = g->at;
        uint32_t min = 0, max = FORM_ENDLESS;
        if (take(g, '+'))
            min = 1;
        else if (take(g, '?'))
            max = 1;
        else if (take(g, '{')) {
            skip(g, false);
            min = peek(g) == ',' ? 0 : number(g);
            skip(g, false);
            max = take(g, ',') ? FORM_ENDLESS : min;
            skip(g, false);
            if (max == FORM_ENDLESS && peek(g) != '}')
                max = number(g);
            skip(g, false);
            if (!take(g, '}'))
                complain(g, g->at, "} is expected, behind a number or two, as in {2}, {2,} and {2,5}");
            else if (max < min)
                complain(g, from, "the second number of a repetition is less than the first");
        } else if (!take(g, '*'))
            return e;
        e = form_repeat(g->d, e, min, max);
    }
}

/* NULL: there is none here. */
static struct form_expr *element(struct grammar *g)
{
    static const struct form_range any = {0, CODE_POINT_MAX};
    const char c = peek(g);
    if (is_word(c))
        return form_call(g->d, rule_name(g));
    if (take(g, '"'))
        return literal(g);
    if (take(g, '['))
        return class_of(g);
    if (take(g, '('))
        return group(g);
    if (take(g, '.'))
        return form_class(g->d, &any, 1, false);
    if (c == '<' || c == '!')
        complain(g, g->at, "tokens by name or number are not supported: write their text");
    return NULL;
}

static struct form_expr *sequence(struct grammar *g, bool nested)
{
    struct form_expr *seq = form_seq(g->d);
    for (struct form_expr *e; (e = element(g));) {
        form_add(seq, repeated(g, e));
        skip(g, nested);
    }
    return seq;
}

/* A line that begins with | belongs to the rule before it. */
static bool take_bar(struct grammar *g, bool nested)
{
    const char *here = g->at;
    skip(g, true);
    if (take(g, '|')) {
        skip(g, true);
        return true;
    }
    if (!nested)
        g->at = here;
    return false;
}

static struct form_expr *alternatives(struct grammar *g, bool nested)
{
    struct form_expr *alt = form_alt(g->d);
    skip(g, true);
    do
        form_add(alt, sequence(g, nested));
    while (take_bar(g, nested));
    return alt;
}

/* --- rules ------------------------------------------------------------------------------------ */

static void rule(struct grammar *g)
{
    const char *from = g->at;
    const uint32_t number_of = rule_name(g);
    skip(g, false);
    if (!g->d->failed && (g->end - g->at < 3 || memcmp(g->at, "::=", 3) != 0))
        complain(g, g->at, "::= is expected behind the name of a rule");
    if (!g->d->failed && g->d->rules[number_of].is)
        complain(g, from, "this rule is defined a second time");
    g->at += g->d->failed ? 0 : 3;
    form_rule_is(g->d, number_of, alternatives(g, false));
    if (!is_over(g) && *g->at != '\n' && *g->at != '\r')
        complain(g, g->at,
                 *g->at == ')' ? "this ) closes nothing"
                               : "a text in \"\", a class in [], a group in (), a rule's name, |, or the end "
                                 "of the line is expected");
}

void form_grammar_read(struct form_draft *d, const char *text, size_t n)
{
    struct grammar g = {.d = d, .begin = text, .at = text, .end = text + n};
    const size_t first = d->nrules;
    if (n > FORM_GRAMMAR_MAX)
        form_draft_fail(d, -E2BIG, "the grammar has %zu bytes: at most %d are allowed", n, FORM_GRAMMAR_MAX);
    for (skip(&g, true); !is_over(&g); skip(&g, true))
        rule(&g);
    for (size_t i = first; i < d->nrules && !d->failed; i++)
        if (!d->rules[i].is)
            complain(&g, d->rules[i].first, "this rule is used here and nowhere defined");
}

int form_of_grammar(struct form **ret, const char *text, size_t n, struct err *err)
{
    struct form_draft d;
    form_draft_init(&d, err);
    form_grammar_read(&d, text, n);
    const uint32_t root = d.failed ? VOCAB_NONE : vocab_find(&d.names, "root", 4);
    if (root == VOCAB_NONE)
        form_draft_fail(
            &d, -EINVAL,
            "the grammar has no rule \"root\", which says what a whole answer is: add root ::= …");
    const int r = d.failed ? d.failed : form_draft_compile(ret, &d, root, err);
    form_draft_done(&d);
    return r;
}
