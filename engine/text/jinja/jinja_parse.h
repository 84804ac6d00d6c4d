/* SPDX-License-Identifier: MIT
 *
 * A template's text → its tree. Within the parser: statements (jinja_parse.c) ask for expressions
 * (jinja_expr.c). */
#ifndef TEXT_JINJA_PARSE_H
#define TEXT_JINJA_PARSE_H

#include "text/jinja/jinja_lex.h"
#include "text/jinja/jinja_node.h"

enum { JINJA_PARSE_DEPTH_MAX = 300 }; /* a pair of brackets takes two or three */

struct jinja_parser {
    const struct jinja_token *at; /* the next one; the last is TOKEN_END */
    struct arena *arena;
    size_t depth, loops; /* of blocks and brackets; of loops around a break */
    int code;            /* 0, or −errno with the sentence in err */
    struct err *err;
    struct jinja_node nothing; /* stands in for a node where there is no memory */
};

/* The whole template; NULL if it is refused. */
struct jinja_node *jinja_parse_template(struct jinja_parser *p);

/* --- expressions: never NULL; after a failure they are of no use --- */
struct jinja_node *jinja_parse_expression(struct jinja_parser *p);
/* Without "a if b else c", where "if" is the statement's. */
struct jinja_node *jinja_parse_or(struct jinja_parser *p);
/* With commas a tuple. */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool with_if);
struct jinja_node *jinja_parse_target(struct jinja_parser *p); /* of set and for: names, ns.name */
/* "| name(args) | …" behind `of`. */
struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *of);
/* "name(args) | …", after the first bar. */
struct jinja_node *jinja_parse_filter(struct jinja_parser *p, struct jinja_node *of);

struct jinja_node *jinja_parse_fail(struct jinja_parser *p, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_op op);
bool jinja_parse_enter(struct jinja_parser *p);
void jinja_parse_leave(struct jinja_parser *p);
bool jinja_at_op(const struct jinja_parser *p, const char *op);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_take_op(struct jinja_parser *p, const char *op); /* if it is next */
bool jinja_take_name(struct jinja_parser *p, const char *name);
void jinja_want_op(struct jinja_parser *p, const char *op); /* fails if it is not */
struct jinja_text jinja_want_name(struct jinja_parser *p);

#endif
