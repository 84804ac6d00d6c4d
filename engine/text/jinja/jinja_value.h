/* SPDX-License-Identifier: MIT
 *
 * Values of a template, as Python's: numbers, text, lists, dicts, and what can be called. They live
 * in the arena of the rendering (or, constants, of the template) and are never changed, but for
 * namespaces. Text is valid UTF-8 and counted in characters. */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja_run;
struct textbuf;

struct jinja_text {
    const char *s; /* borrowed: an arena's, or the caller's JSON */
    size_t n;
};

enum jinja_kind {
    JINJA_ABSENT, /* an argument that was not given */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_FUNCTION,
    JINJA_METHOD,
};

struct jinja_list;
struct jinja_dict;
struct jinja_loop;
struct jinja_macro;
struct jinja_builtin;
struct jinja_method;

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        struct jinja_text text; /* also of what is undefined: its name */
        struct jinja_list *list;
        struct jinja_dict *dict; /* also a namespace's */
        struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jinja_builtin *function;
        const struct jinja_method *method;
    };
};

struct jinja_list {
    struct jinja_value *at;
    size_t n, cap;
};

struct jinja_pair {
    struct jinja_value key, value;
};
struct jinja_dict {
    struct jinja_pair *at; /* in the order they came */
    size_t n, cap;
};

/* --- making; where memory ends the run fails and the value is undefined --- */
struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool truth);
struct jinja_value jinja_int(int64_t n);
struct jinja_value jinja_float(double x);
struct jinja_value jinja_text(const char *s, size_t n); /* borrowed */
struct jinja_value jinja_word(const char *s);           /* borrowed, NUL-terminated */
struct jinja_value jinja_undefined(struct jinja_text name);
struct jinja_value jinja_copy_text(struct jinja_run *run, const char *s, size_t n);
/* What the buffer holds; the buffer is emptied. */
struct jinja_value jinja_take_text(struct jinja_run *run, struct textbuf *buf);
struct jinja_value jinja_list_new(struct jinja_run *run, enum jinja_kind kind, size_t room);
void jinja_list_add(struct jinja_run *run, struct jinja_list *list, struct jinja_value item);
struct jinja_value jinja_pair_new(struct jinja_run *run, struct jinja_value a,
                                  struct jinja_value b); /* a tuple */
struct jinja_value jinja_dict_new(struct jinja_run *run, enum jinja_kind kind);
void jinja_dict_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value);

/* --- asking --- */
bool jinja_is_word(struct jinja_text text, const char *word);
bool jinja_is_number(struct jinja_value v);     /* bool counts, as in Python */
bool jinja_is_sequence(struct jinja_value v);   /* list or tuple */
int64_t jinja_integer_of(struct jinja_value v); /* of bool and int */
double jinja_real_of(struct jinja_value v);     /* of a number */
bool jinja_truth(struct jinja_value v);
/* What jinja calls it in a sentence: "a list". */
const char *jinja_kind_name(struct jinja_value v);
/* NULL if there is none. */
const struct jinja_value *jinja_dict_find(struct jinja_run *run, const struct jinja_dict *dict,
                                          struct jinja_value key);

bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
/* <0, 0, >0; the run fails where Python has no order. */
int jinja_order(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
/* len(); the run fails for what has none. */
size_t jinja_length(struct jinja_run *run, struct jinja_value v);
/* What a loop over it sees: characters, items, keys. The run fails for what cannot be looped
 * over. */
struct jinja_list *jinja_items(struct jinja_run *run, struct jinja_value v);
bool jinja_contains(struct jinja_run *run, struct jinja_value where, struct jinja_value what);

/* --- as text --- */
/* Python's str() and repr(). */
void jinja_append_str(struct jinja_run *run, struct textbuf *buf, struct jinja_value v);
void jinja_append_repr(struct jinja_run *run, struct textbuf *buf, struct jinja_value v);
void jinja_append_float(struct textbuf *buf, double x);
/* str() as a text value; itself for a text. */
struct jinja_value jinja_str(struct jinja_run *run, struct jinja_value v);

#endif
