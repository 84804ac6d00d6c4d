/* SPDX-License-Identifier: MIT
 *
 * Statements: the tags of a template and what stands between them. Owns the tables of tags; called
 * by jinja.c, on its thread. */
#include "text/jinja/jinja_parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct jinja_node *jinja_parse_fail(struct jinja_parser *p, int code, const char *fmt, ...)
{
    if (!p->code) {
        char text[256];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        p->code = err_set(p->err, code, "line %u: %s", p->at->line, text);
    }
    while (p->at->kind != TOKEN_END)
        p->at++;
    return &p->nothing;
}

struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_op op)
{
    struct jinja_node *node = arena_alloc(p->arena, sizeof *node);
    if (!node)
        return jinja_parse_fail(p, -ENOMEM, "the template is too large");
    node->op = op;
    node->line = p->at->line;
    return node;
}

bool jinja_parse_enter(struct jinja_parser *p)
{
    if (p->code)
        return false;
    if (p->depth == JINJA_PARSE_DEPTH_MAX) {
        jinja_parse_fail(p, -EINVAL, "more than %d levels within one another", JINJA_PARSE_DEPTH_MAX);
        return false;
    }
    p->depth++;
    return true;
}

void jinja_parse_leave(struct jinja_parser *p)
{
    p->depth--;
}

bool jinja_at_op(const struct jinja_parser *p, const char *op)
{
    return p->at->kind == TOKEN_OPERATOR && jinja_is_word(p->at->text, op);
}

bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
    return p->at->kind == TOKEN_NAME && jinja_is_word(p->at->text, name);
}

bool jinja_take_op(struct jinja_parser *p, const char *op)
{
    bool is_next = jinja_at_op(p, op);
    p->at += is_next;
    return is_next;
}

bool jinja_take_name(struct jinja_parser *p, const char *name)
{
    bool is_next = jinja_at_name(p, name);
    p->at += is_next;
    return is_next;
}

/* "\"x\" stands where … is expected" */
static void unexpected(struct jinja_parser *p, const char *expected)
{
    if (p->at->kind == TOKEN_END)
        jinja_parse_fail(p, -EINVAL, "the template ends where %s is expected", expected);
    else
        jinja_parse_fail(p, -EINVAL, "\"%.*s\" stands where %s is expected",
                         p->at->text.n < 40 ? (int)p->at->text.n : 40, p->at->text.s, expected);
}

void jinja_want_op(struct jinja_parser *p, const char *op)
{
    char expected[8];
    snprintf(expected, sizeof expected, "\"%s\"", op);
    if (!jinja_take_op(p, op))
        unexpected(p, expected);
}

struct jinja_text jinja_want_name(struct jinja_parser *p)
{
    struct jinja_text text = p->at->text;
    if (p->at->kind == TOKEN_NAME)
        p->at++;
    else
        unexpected(p, "a name");
    return text;
}

static void want_block_end(struct jinja_parser *p)
{
    if (p->at->kind == TOKEN_BLOCK_END)
        p->at++;
    else
        unexpected(p, "%}");
}

/* --- statements --- */

/* Up to a tag named one of `ends` ("else elif endif"), whose name is next then. */
static struct jinja_node *body(struct jinja_parser *p, const char *const *ends);

/* Behind the opening tag: its body, and the closing tag whole. */
static struct jinja_node *body_to(struct jinja_parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct jinja_node *list = body(p, ends);
    p->at += !p->code;
    want_block_end(p);
    return list;
}

static struct jinja_node *parse_if(struct jinja_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jinja_node *node = jinja_node_new(p, OP_IF);
    node->a = jinja_parse_expression(p);
    want_block_end(p);
    node->list = body(p, ends);
    if (jinja_take_name(p, "elif")) {
        if (jinja_parse_enter(p)) {
            node->other = parse_if(p);
            jinja_parse_leave(p);
        }
        return node;
    }
    if (jinja_take_name(p, "else")) {
        want_block_end(p);
        node->other = body_to(p, "endif");
        return node;
    }
    p->at += !p->code;
    want_block_end(p);
    return node;
}

static struct jinja_node *parse_for(struct jinja_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct jinja_node *node = jinja_node_new(p, OP_FOR);
    node->a = jinja_parse_target(p);
    if (!jinja_take_name(p, "in"))
        unexpected(p, "\"in\"");
    node->b = jinja_parse_tuple(p, false);
    if (jinja_take_name(p, "if"))
        node->c = jinja_parse_expression(p);
    if (jinja_at_name(p, "recursive"))
        jinja_parse_fail(p, -ENOTSUP, "recursive loops are not known");
    want_block_end(p);
    p->loops++;
    node->list = body(p, ends);
    p->loops--;
    bool has_else = jinja_take_name(p, "else");
    if (has_else) {
        want_block_end(p);
        node->other = body_to(p, "endfor");
    } else {
        p->at += !p->code;
        want_block_end(p);
    }
    return node;
}

static struct jinja_node *captured(struct jinja_parser *p)
{
    return jinja_node_new(p, OP_CAPTURED);
}

static struct jinja_node *parse_set(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, OP_SET);
    node->a = jinja_parse_target(p);
    if (jinja_take_op(p, "=")) {
        node->b = jinja_parse_tuple(p, true);
        want_block_end(p);
        return node;
    }
    node->c = jinja_parse_filters(p, captured(p));
    want_block_end(p);
    node->list = body_to(p, "endset");
    return node;
}

static struct jinja_node *parameters(struct jinja_parser *p)
{
    struct jinja_node *list = NULL, **tail = &list;
    jinja_want_op(p, "(");
    while (!p->code && !jinja_at_op(p, ")")) {
        struct jinja_node *node = jinja_node_new(p, OP_NAME);
        node->text = jinja_want_name(p);
        if (jinja_take_op(p, "="))
            node->a = jinja_parse_expression(p);
        *tail = node;
        tail = &node->next;
        if (!jinja_take_op(p, ","))
            break;
    }
    jinja_want_op(p, ")");
    return list;
}

/* The body of a macro is no part of a loop around it. */
static struct jinja_node *macro_body(struct jinja_parser *p, const char *end)
{
    size_t loops = p->loops;
    p->loops = 0;
    struct jinja_node *list = body_to(p, end);
    p->loops = loops;
    return list;
}

static struct jinja_node *parse_macro(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, OP_MACRO);
    node->text = jinja_want_name(p);
    node->args = parameters(p);
    want_block_end(p);
    node->list = macro_body(p, "endmacro");
    return node;
}

static struct jinja_node *parse_call(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, OP_CALL_BLOCK);
    node->text = (struct jinja_text){"caller", 6};
    if (jinja_at_op(p, "("))
        node->args = parameters(p);
    node->a = jinja_parse_expression(p);
    if (!p->code && node->a->op != OP_CALL)
        jinja_parse_fail(p, -EINVAL, "{%% call %%} needs a call");
    want_block_end(p);
    node->list = macro_body(p, "endcall");
    return node;
}

static struct jinja_node *parse_filtered(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, OP_FILTERED);
    node->c = jinja_parse_filter(p, captured(p));
    want_block_end(p);
    node->list = body_to(p, "endfilter");
    return node;
}

static struct jinja_node *parse_with(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, OP_WITH), **tail = &node->args;
    while (!p->code && p->at->kind != TOKEN_BLOCK_END) {
        struct jinja_node *set = jinja_node_new(p, OP_SET);
        set->a = jinja_parse_target(p);
        jinja_want_op(p, "=");
        set->b = jinja_parse_expression(p);
        *tail = set;
        tail = &set->next;
        if (!jinja_take_op(p, ","))
            break;
    }
    want_block_end(p);
    node->list = body_to(p, "endwith");
    return node;
}

static struct jinja_node *parse_jump(struct jinja_parser *p, enum jinja_op op)
{
    struct jinja_node *node = jinja_node_new(p, op);
    if (!p->loops)
        jinja_parse_fail(p, -EINVAL, "break and continue belong into a loop");
    want_block_end(p);
    return node;
}

static struct jinja_node *parse_break(struct jinja_parser *p)
{
    return parse_jump(p, OP_BREAK);
}

static struct jinja_node *parse_continue(struct jinja_parser *p)
{
    return parse_jump(p, OP_CONTINUE);
}

static struct jinja_node *parse_generation(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, OP_GENERATION);
    want_block_end(p);
    node->list = macro_body(p, "endgeneration");
    return node;
}

/* Behind {%: a whole statement, or none that begins with that name. */
static struct jinja_node *statement(struct jinja_parser *p)
{
    static const struct {
        const char *name;
        struct jinja_node *(*parse)(struct jinja_parser *p);
    } tags[] = {{"if", parse_if},
                {"for", parse_for},
                {"set", parse_set},
                {"macro", parse_macro},
                {"call", parse_call},
                {"filter", parse_filtered},
                {"with", parse_with},
                {"break", parse_break},
                {"continue", parse_continue},
                {"generation", parse_generation}};
    struct jinja_node *node = NULL;
    if (!jinja_parse_enter(p))
        return &p->nothing;
    for (size_t i = 0; i < sizeof tags / sizeof *tags && !node; i++)
        if (jinja_take_name(p, tags[i].name))
            node = tags[i].parse(p);
    if (!node)
        node = jinja_parse_fail(p, -ENOTSUP, "the tag {%% %.*s %%} is not known here",
                                p->at->text.n < 40 ? (int)p->at->text.n : 40, p->at->text.s);
    jinja_parse_leave(p);
    return node;
}

static bool is_end(const struct jinja_parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (jinja_at_name(p, *ends))
            return true;
    return false;
}

static struct jinja_node *print(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, OP_PRINT);
    node->a = jinja_parse_tuple(p, true);
    if (p->at->kind == TOKEN_PRINT_END)
        p->at++;
    else
        unexpected(p, "}}");
    return node;
}

static struct jinja_node *text(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, OP_TEXT);
    node->text = p->at->text;
    p->at++;
    return node;
}

static struct jinja_node *body(struct jinja_parser *p, const char *const *ends)
{
    struct jinja_node *list = NULL, **tail = &list;
    uint32_t line = p->at->line;
    while (!p->code) {
        enum jinja_token_kind kind = p->at->kind;
        if (kind == TOKEN_END) {
            if (*ends)
                jinja_parse_fail(p, -EINVAL, "the block that begins on line %u has no {%% %s %%}", line,
                                 ends[1] ? ends[2] ? ends[2] : ends[1] : ends[0]);
            break;
        }
        p->at += kind != TOKEN_TEXT;
        if (kind == TOKEN_BLOCK && is_end(p, ends))
            break;
        *tail = kind == TOKEN_TEXT ? text(p) : kind == TOKEN_PRINT ? print(p) : statement(p);
        tail = &(*tail)->next;
    }
    return list;
}

struct jinja_node *jinja_parse_template(struct jinja_parser *p)
{
    static const char *const none[] = {NULL};
    struct jinja_node *list = body(p, none);
    return p->code ? NULL : list;
}
