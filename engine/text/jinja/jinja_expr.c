/* SPDX-License-Identifier: MIT
 *
 * Expressions, by recursive descent in Jinja's order of precedence. Owns nothing; called by
 * jinja_parse.c, on its thread. A failure moves the parser to the end of the template, so that
 * every loop here ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja_parse.h"
#include "text/jinja/jinja_run.h"

static struct jinja_node *binary(struct jinja_parser *p, enum jinja_op op, struct jinja_node *a,
                                 struct jinja_node *b)
{
    struct jinja_node *node = jinja_node_new(p, op);
    node->line = a->line;
    node->a = a;
    node->b = b;
    return node;
}

static struct jinja_node *constant(struct jinja_parser *p, struct jinja_value value)
{
    struct jinja_node *node = jinja_node_new(p, OP_CONST);
    node->value = value;
    return node;
}

/* --- what stands alone --- */

static struct jinja_node *number(struct jinja_parser *p)
{
    const struct jinja_token *t = p->at;
    char text[64];
    struct jinja_node *node = constant(p, jinja_none());
    if (t->text.n >= sizeof text)
        return jinja_parse_fail(p, -ERANGE, "a number of %zu digits", t->text.n);
    memcpy(text, t->text.s, t->text.n);
    text[t->text.n] = '\0';
    errno = 0;
    if (t->kind == TOKEN_FLOAT) {
        node->value = jinja_float(strtod(text, NULL));
    } else {
        char letter = text[0] == '0' ? (char)(text[1] | 0x20) : '\0';
        int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
        char *end;
        node->value = jinja_int(strtoll(base == 10 ? text : text + 2, &end, base));
        if (errno || *end || (base != 10 && t->text.n == 2))
            return jinja_parse_fail(p, -ERANGE, "\"%s\" is not a number of 64 bits", text);
    }
    p->at++;
    return node;
}

/* Texts that follow one another are one. */
static struct jinja_node *strings(struct jinja_parser *p)
{
    struct textbuf buf = {0};
    struct jinja_node *node = constant(p, jinja_none());
    for (; p->at->kind == TOKEN_STRING; p->at++)
        textbuf_append(&buf, p->at->text.s, p->at->text.n);
    const char *text = buf.failed ? NULL : arena_copy(p->arena, buf.data, buf.len);
    if (text)
        node->value = jinja_text(text, buf.len);
    else
        node = jinja_parse_fail(p, -ENOMEM, "no memory for a text");
    textbuf_done(&buf);
    return node;
}

/* Items up to `close`, which is taken; we stand behind the opening bracket. */
static struct jinja_node *items(struct jinja_parser *p, enum jinja_op op, const char *close)
{
    struct jinja_node *node = jinja_node_new(p, op), **tail = &node->list;
    while (!p->code && !jinja_at_op(p, close)) {
        struct jinja_node *item = jinja_parse_expression(p);
        if (op == OP_DICT) {
            jinja_want_op(p, ":");
            item = binary(p, OP_PAIR, item, jinja_parse_expression(p));
        }
        *tail = item;
        tail = &item->next;
        if (!jinja_take_op(p, ","))
            break;
    }
    jinja_want_op(p, close);
    return node;
}

static struct jinja_node *brackets(struct jinja_parser *p)
{
    if (jinja_take_op(p, "["))
        return items(p, OP_LIST, "]");
    if (jinja_take_op(p, "{"))
        return items(p, OP_DICT, "}");
    if (!jinja_take_op(p, "("))
        return jinja_parse_fail(p, -EINVAL, "a value is missing");
    if (jinja_take_op(p, ")"))
        return jinja_node_new(p, OP_TUPLE);
    struct jinja_node *node = jinja_parse_tuple(p, true);
    jinja_want_op(p, ")");
    return node;
}

static struct jinja_node *name(struct jinja_parser *p)
{
    struct jinja_text text = p->at->text;
    struct jinja_node *node = jinja_node_new(p, OP_NAME);
    p->at++;
    bool is_true = jinja_is_word(text, "true") || jinja_is_word(text, "True");
    bool is_none = jinja_is_word(text, "none") || jinja_is_word(text, "None");
    if (is_true || jinja_is_word(text, "false") || jinja_is_word(text, "False"))
        return constant(p, jinja_bool(is_true));
    if (is_none)
        return constant(p, jinja_none());
    node->text = text;
    return node;
}

static struct jinja_node *primary(struct jinja_parser *p)
{
    struct jinja_node *node;
    if (!jinja_parse_enter(p))
        return &p->nothing;
    switch (p->at->kind) {
    case TOKEN_NAME: node = name(p); break;
    case TOKEN_STRING: node = strings(p); break;
    case TOKEN_INT:
    case TOKEN_FLOAT: node = number(p); break;
    case TOKEN_OPERATOR: node = brackets(p); break;
    default: node = jinja_parse_fail(p, -EINVAL, "a value is missing");
    }
    jinja_parse_leave(p);
    return node;
}

/* --- what stands behind a value --- */

static struct jinja_node *argument(struct jinja_parser *p)
{
    if (jinja_at_op(p, "*") || jinja_at_op(p, "**"))
        return jinja_parse_fail(p, -ENOTSUP, "arguments from a list (* and **) are not known");
    if (p->at->kind != TOKEN_NAME || p->at[1].kind != TOKEN_OPERATOR || !jinja_is_word(p->at[1].text, "="))
        return jinja_parse_expression(p);
    struct jinja_node *node = jinja_node_new(p, OP_KEYWORD);
    node->text = p->at->text;
    p->at += 2;
    node->a = jinja_parse_expression(p);
    return node;
}

/* "(…)" if it is there. */
static struct jinja_node *arguments(struct jinja_parser *p)
{
    struct jinja_node *list = NULL, **tail = &list;
    size_t n = 0;
    if (!jinja_take_op(p, "("))
        return NULL;
    while (!p->code && !jinja_at_op(p, ")")) {
        *tail = argument(p);
        tail = &(*tail)->next;
        if (++n > JINJA_ARGS_MAX)
            jinja_parse_fail(p, -ENOTSUP, "more than %d arguments", JINJA_ARGS_MAX);
        if (!jinja_take_op(p, ","))
            break;
    }
    jinja_want_op(p, ")");
    return list;
}

static struct jinja_node *call(struct jinja_parser *p, struct jinja_node *callee)
{
    struct jinja_node *node = binary(p, OP_CALL, callee, NULL);
    node->list = arguments(p);
    return node;
}

/* a[b], a[b:c:d]; we stand behind the bracket. */
static struct jinja_node *subscript(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *bound[3] = {NULL};
    size_t colons = 0;
    for (;;) {
        if (!jinja_at_op(p, ":") && !jinja_at_op(p, "]"))
            bound[colons] = jinja_parse_expression(p);
        if (p->code || colons == 2 || !jinja_take_op(p, ":"))
            break;
        colons++;
    }
    if (!colons && !bound[0])
        return jinja_parse_fail(p, -EINVAL, "an index is missing");
    jinja_want_op(p, "]");
    struct jinja_node *node = binary(p, colons ? OP_SLICE : OP_ITEM, of, bound[0]);
    node->c = bound[1];
    node->d = bound[2];
    return node;
}

static struct jinja_node *dotted(struct jinja_parser *p, struct jinja_node *of)
{
    if (p->at->kind == TOKEN_INT)
        return binary(p, OP_ITEM, of, number(p));
    struct jinja_node *node = binary(p, OP_ATTR, of, NULL);
    node->text = jinja_want_name(p);
    return node;
}

static struct jinja_node *postfix(struct jinja_parser *p, struct jinja_node *of)
{
    while (!p->code) {
        if (jinja_take_op(p, "."))
            of = dotted(p, of);
        else if (jinja_take_op(p, "["))
            of = subscript(p, of);
        else if (jinja_at_op(p, "("))
            of = call(p, of);
        else
            break;
    }
    return of;
}

struct jinja_node *jinja_parse_filter(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *node = binary(p, OP_FILTER, of, NULL);
    node->line = p->at->line;
    node->text = jinja_want_name(p);
    node->builtin = jinja_find_filter(node->text);
    if (!p->code && !node->builtin)
        return jinja_parse_fail(p, -ENOTSUP, "the filter \"%.*s\" is not known", (int)node->text.n,
                                node->text.s);
    node->list = arguments(p);
    return jinja_parse_filters(p, node);
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *of)
{
    return jinja_take_op(p, "|") ? jinja_parse_filter(p, of) : of;
}

/* May this begin the one argument of a test without brackets? */
static bool starts_argument(const struct jinja_parser *p)
{
    static const char *const others[] = {"else", "or", "and", "if", "is", "not", "in", NULL};
    for (size_t i = 0; others[i]; i++)
        if (jinja_at_name(p, others[i]))
            return false;
    return p->at->kind == TOKEN_NAME || p->at->kind == TOKEN_STRING || p->at->kind == TOKEN_INT ||
           p->at->kind == TOKEN_FLOAT || jinja_at_op(p, "[") || jinja_at_op(p, "{");
}

static struct jinja_node *test(struct jinja_parser *p, struct jinja_node *of)
{
    bool negated = jinja_take_name(p, "not");
    struct jinja_node *node = binary(p, OP_TEST, of, NULL);
    node->line = p->at->line;
    node->text = jinja_want_name(p);
    node->builtin = jinja_find_test(node->text);
    if (!p->code && !node->builtin)
        return jinja_parse_fail(p, -ENOTSUP, "the test \"is %.*s\" is not known", (int)node->text.n,
                                node->text.s);
    if (jinja_at_op(p, "("))
        node->list = arguments(p);
    else if (starts_argument(p))
        node->list = postfix(p, primary(p));
    return negated ? binary(p, OP_NOT, node, NULL) : node;
}

static struct jinja_node *unary(struct jinja_parser *p, bool with_filter)
{
    struct jinja_node *node;
    if (!jinja_parse_enter(p))
        return &p->nothing;
    if (jinja_take_op(p, "-"))
        node = binary(p, OP_NEG, unary(p, false), NULL);
    else if (jinja_take_op(p, "+"))
        node = binary(p, OP_POS, unary(p, false), NULL);
    else
        node = postfix(p, primary(p));
    while (with_filter && !p->code) {
        if (jinja_take_op(p, "|"))
            node = jinja_parse_filter(p, node);
        else if (jinja_take_name(p, "is"))
            node = test(p, node);
        else if (jinja_at_op(p, "("))
            node = call(p, node);
        else
            break;
    }
    jinja_parse_leave(p);
    return node;
}

/* --- operators --- */

struct operator_level {
    const char *symbol;
    enum jinja_op op;
};

/* The operators of one level, from the tightest; each level is read by the one before it. */
static struct jinja_node *left_to_right(struct jinja_parser *p, size_t depth)
{
    static const struct operator_level levels[4][5] = {
        {{"**", OP_POW}},
        {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOORDIV}, {"%", OP_MOD}},
        {{"~", OP_CONCAT}},
        {{"+", OP_ADD}, {"-", OP_SUB}},
    };
    struct jinja_node *left = depth == 0 ? unary(p, true) : left_to_right(p, depth - 1);
    for (const struct operator_level *l = levels[depth]; !p->code && l->symbol;) {
        uint32_t line = p->at->line;
        if (!jinja_take_op(p, l->symbol)) {
            l++;
            continue;
        }
        left = binary(p, l->op, left, depth == 0 ? unary(p, true) : left_to_right(p, depth - 1));
        left->line = line;
        l = levels[depth];
    }
    return left;
}

static bool take_comparison(struct jinja_parser *p, enum jinja_op *ret)
{
    static const struct operator_level all[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT},
                                                {"<=", OP_LE}, {">", OP_GT},  {">=", OP_GE}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (jinja_take_op(p, all[i].symbol)) {
            *ret = all[i].op;
            return true;
        }
    if (jinja_take_name(p, "in")) {
        *ret = OP_IN;
        return true;
    }
    if (jinja_at_name(p, "not") && p->at[1].kind == TOKEN_NAME && jinja_is_word(p->at[1].text, "in")) {
        p->at += 2;
        *ret = OP_NOT_IN;
        return true;
    }
    return false;
}

static struct jinja_node *comparison(struct jinja_parser *p)
{
    struct jinja_node *first = left_to_right(p, 3), *node = NULL, **tail = NULL;
    enum jinja_op op;
    while (!p->code && take_comparison(p, &op)) {
        if (!node) {
            node = binary(p, OP_COMPARE, first, NULL);
            tail = &node->list;
        }
        *tail = jinja_node_new(p, op);
        (*tail)->a = left_to_right(p, 3);
        tail = &(*tail)->next;
    }
    return node ? node : first;
}

static struct jinja_node *negation(struct jinja_parser *p)
{
    if (!jinja_parse_enter(p))
        return &p->nothing;
    struct jinja_node *node =
        jinja_take_name(p, "not") ? binary(p, OP_NOT, negation(p), NULL) : comparison(p);
    jinja_parse_leave(p);
    return node;
}

static struct jinja_node *conjunction(struct jinja_parser *p)
{
    struct jinja_node *left = negation(p);
    while (!p->code && jinja_take_name(p, "and"))
        left = binary(p, OP_AND, left, negation(p));
    return left;
}

struct jinja_node *jinja_parse_or(struct jinja_parser *p)
{
    struct jinja_node *left = conjunction(p);
    while (!p->code && jinja_take_name(p, "or"))
        left = binary(p, OP_OR, left, conjunction(p));
    return left;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p)
{
    struct jinja_node *value = jinja_parse_or(p);
    while (!p->code && jinja_take_name(p, "if")) {
        struct jinja_node *node = jinja_node_new(p, OP_COND);
        node->b = value;
        node->a = jinja_parse_or(p);
        if (jinja_take_name(p, "else") && jinja_parse_enter(p)) {
            node->c = jinja_parse_expression(p);
            jinja_parse_leave(p);
        }
        value = node;
    }
    return value;
}

/* Does a tuple end here? */
static bool ends_tuple(const struct jinja_parser *p)
{
    return p->at->kind == TOKEN_BLOCK_END || p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_END ||
           jinja_at_op(p, ")") || jinja_at_op(p, "=") || jinja_at_name(p, "in") ||
           jinja_at_name(p, "recursive");
}

/* One item, or several with commas between, which make a tuple. */
static struct jinja_node *tuple_of(struct jinja_parser *p, struct jinja_node *(*item)(struct jinja_parser *p))
{
    struct jinja_node *first = item(p);
    if (p->code || !jinja_at_op(p, ","))
        return first;
    struct jinja_node *node = jinja_node_new(p, OP_TUPLE), **tail = &first->next;
    node->list = first;
    while (!p->code && jinja_take_op(p, ",") && !ends_tuple(p)) {
        *tail = item(p);
        tail = &(*tail)->next;
    }
    return node;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool with_if)
{
    return tuple_of(p, with_if ? jinja_parse_expression : jinja_parse_or);
}

static struct jinja_node *one_target(struct jinja_parser *p)
{
    if (jinja_take_op(p, "(")) {
        struct jinja_node *inner = &p->nothing;
        if (jinja_parse_enter(p)) {
            inner = jinja_parse_target(p);
            jinja_parse_leave(p);
        }
        jinja_want_op(p, ")");
        return inner;
    }
    struct jinja_node *node = jinja_node_new(p, OP_NAME);
    node->text = jinja_want_name(p);
    if (!jinja_take_op(p, "."))
        return node;
    node = binary(p, OP_ATTR, node, NULL);
    node->text = jinja_want_name(p);
    return node;
}

struct jinja_node *jinja_parse_target(struct jinja_parser *p)
{
    return tuple_of(p, one_target);
}
