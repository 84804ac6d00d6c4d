/* SPDX-License-Identifier: MIT
 *
 * One rendering under way: its memory, variables, bounds, and first error. What goes wrong anywhere
 * is kept in the run and everything after it does nothing much, so that evaluation need not ask at
 * every step. */
#ifndef TEXT_JINJA_RUN_H
#define TEXT_JINJA_RUN_H

#include <time.h>

#include "err.h"
#include "text/arena.h"
#include "text/jinja/jinja_node.h"
#include "text/jinja/jinja_value.h"
#include "text/textbuf.h"

enum {
    JINJA_STEPS_MAX = 20 << 20, /* a second or two */
    JINJA_DEPTH_MAX = 400,      /* of evaluation, and of values within values */
    JINJA_OUTPUT_MAX = 64 << 20,
    JINJA_MEMORY_MAX = 256 << 20,
    JINJA_RANGE_MAX = 100000, /* as Jinja's sandbox */
    JINJA_ARGS_MAX = 8,
};

struct jinja_var {
    struct jinja_text name;
    struct jinja_value value;
    struct jinja_var *next;
};

struct jinja_scope {
    struct jinja_scope *outer; /* NULL for the outermost */
    struct jinja_var *vars;
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was made: names are looked up there when it is called */
};

struct jinja_loop {
    const struct jinja_list *list;
    size_t index; /* from 0 */
    struct jinja_list *changed;
};

enum jinja_jump { JINJA_ON, JINJA_BREAK, JINJA_CONTINUE };

struct jinja_spans {
    struct {
        size_t start, end;
    } * at; /* owned */
    size_t n, cap;
};

struct jinja_run {
    struct arena arena;
    struct jinja_scope *scope;
    struct textbuf *out;         /* where text goes now */
    struct textbuf whole;        /* where it goes outside of all captures */
    struct jinja_spans spans;    /* of whole, inside {% generation %} */
    struct jinja_value captured; /* what a {% filter %} or {% set x | … %} captured */
    enum jinja_jump jump;
    size_t steps, depth;
    uint32_t line; /* of what is being evaluated */
    time_t now;
    int code; /* 0, or −errno with the sentence in err */
    struct err *err;
};

/* The first failure: "line 3: …". Returns what is undefined. */
struct jinja_value jinja_fail(struct jinja_run *run, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* n more steps: false once there have been too many, or the run has failed. */
bool jinja_step(struct jinja_run *run, size_t n);
/* One level deeper, and back: false where it is too deep. */
bool jinja_enter(struct jinja_run *run);
void jinja_leave(struct jinja_run *run);

void jinja_scope_push(struct jinja_run *run, struct jinja_scope *scope, struct jinja_scope *outer);
struct jinja_value jinja_scope_find(struct jinja_run *run, struct jinja_text name);
void jinja_scope_set(struct jinja_run *run, struct jinja_text name, struct jinja_value value);

/* --- calls --- */
struct jinja_keyword {
    struct jinja_text name;
    struct jinja_value value;
};
struct jinja_args {
    struct jinja_value at[JINJA_ARGS_MAX];
    struct jinja_keyword key[JINJA_ARGS_MAX];
    size_t n, nkeys;
};
struct jinja_call {
    const char *name;
    struct jinja_value self;                /* of a filter, test or method */
    struct jinja_value arg[JINJA_ARGS_MAX]; /* by the order of params, JINJA_ABSENT where not given */
    const struct jinja_args *all;           /* as they were given */
};
/* A function, filter, test or method that we have. */
struct jinja_builtin {
    const char *name;
    const char *params; /* "a b c", in order; "*" takes anything and binds nothing */
    size_t required;
    struct jinja_value (*run)(struct jinja_run *run, const struct jinja_call *call);
};
struct jinja_method {
    const struct jinja_builtin *builtin;
    struct jinja_value self;
};

struct jinja_value jinja_call_builtin(struct jinja_run *run, const struct jinja_builtin *f,
                                      struct jinja_value self, const struct jinja_args *args);
struct jinja_value jinja_call_value(struct jinja_run *run, struct jinja_value callee,
                                    const struct jinja_args *args);
/* Argument i as a text, an integer, a bool; `def` where it was not given. The run fails for another
 * kind. */
struct jinja_text jinja_arg_text(struct jinja_run *run, const struct jinja_call *call, size_t i,
                                 const char *def);
int64_t jinja_arg_int(struct jinja_run *run, const struct jinja_call *call, size_t i, int64_t def);
bool jinja_arg_bool(const struct jinja_call *call, size_t i, bool def);

/* str() of what a filter or method is applied to. */
struct jinja_text jinja_self_text(struct jinja_run *run, const struct jinja_call *call);

/* NULL if there is none of that name. */
const struct jinja_builtin *jinja_find_filter(struct jinja_text name);
const struct jinja_builtin *jinja_find_list_filter(struct jinja_text name); /* those that look into lists */
const struct jinja_builtin *jinja_find_test(struct jinja_text name);
const struct jinja_builtin *jinja_find_function(struct jinja_text name);
const struct jinja_builtin *jinja_find_text_method(struct jinja_text name);
const struct jinja_builtin *jinja_find_dict_method(struct jinja_text name);
const struct jinja_builtin *jinja_find_list_method(struct jinja_text name);
const struct jinja_builtin *jinja_find_in(const struct jinja_builtin *table, struct jinja_text name);

/* --- evaluation --- */
struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *node);
struct jinja_value jinja_binary(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                                struct jinja_value b);
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value of, struct jinja_text name);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value of, struct jinja_value key);
/* of[start:stop:step]; absent bounds are JINJA_ABSENT. */
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value of,
                               const struct jinja_value bounds[3]);
struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop,
                                        struct jinja_text name);
/* Python's "…" % (…). */
struct jinja_value jinja_format_text(struct jinja_run *run, struct jinja_text format,
                                     const struct jinja_value *values, size_t n);

/* Runs statements. */
void jinja_exec(struct jinja_run *run, const struct jinja_node *list);
/* Runs a macro's body with its arguments; its text. */
struct jinja_value jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_args *args);
void jinja_emit(struct jinja_run *run, const char *s, size_t n);

#endif
