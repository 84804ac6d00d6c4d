/* SPDX-License-Identifier: MIT
 *
 * The tree of a template: one struct for all nodes, whose op says which fields mean something. All
 * of it lives in the template's arena and is not changed once parsed. */
#ifndef TEXT_JINJA_NODE_H
#define TEXT_JINJA_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "text/jinja/jinja_value.h"

enum jinja_op {
    /* expressions */
    OP_CONST,    /* value */
    OP_NAME,     /* text */
    OP_LIST,     /* list */
    OP_TUPLE,    /* list */
    OP_DICT,     /* list of OP_PAIR */
    OP_PAIR,     /* a: b */
    OP_ATTR,     /* a.text */
    OP_ITEM,     /* a[b] */
    OP_SLICE,    /* a[b:c:d], each may be NULL */
    OP_CALL,     /* a(list) */
    OP_KEYWORD,  /* text=a, in a list of arguments */
    OP_FILTER,   /* a|text(list) */
    OP_TEST,     /* a is text(list) */
    OP_CAPTURED, /* what stands in the block that is filtered */
    OP_NOT,      /* a */
    OP_NEG,
    OP_POS,
    OP_AND, /* a, b */
    OP_OR,
    OP_COND, /* b if a else c; c may be NULL */
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_CONCAT,
    OP_COMPARE, /* a, then list: each one of the next eight, with its right side in a */
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
    /* statements */
    OP_TEXT,       /* text */
    OP_PRINT,      /* a */
    OP_IF,         /* a, list, other */
    OP_FOR,        /* a in b if c (may be NULL): list, else other */
    OP_SET,        /* a = b; b NULL: the text of list, through c */
    OP_MACRO,      /* text(args): list */
    OP_CALL_BLOCK, /* a is an OP_CALL; the block is a macro for it: args, list */
    OP_FILTERED,   /* list, through c */
    OP_WITH,       /* args: OP_SET; list */
    OP_BREAK,
    OP_CONTINUE,
    OP_GENERATION, /* list */
};

struct jinja_node {
    enum jinja_op op;
    uint32_t line;
    struct jinja_node *next; /* in the list it belongs to */
    struct jinja_text text;
    struct jinja_value value;
    const struct jinja_builtin *builtin; /* of OP_FILTER, OP_TEST */
    struct jinja_node *a, *b, *c, *d;
    struct jinja_node *list, *other;
    struct jinja_node *args; /* OP_NAME, with a default in a or NULL */
};

#endif
