/* SPDX-License-Identifier: MIT
 *
 * Expressions: a node → its value. Owns nothing; called by jinja_exec.c, and by itself through
 * calls, on the caller's thread. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "text/jinja/jinja_run.h"
#include "text/pytext.h"
#include "text/utf8.h"

static const char *shown(struct jinja_text t, int *ret_n)
{
    *ret_n = t.n < 60 ? (int)t.n : 60;
    return t.s;
}

/* --- parts of values --- */

static struct jinja_value method_of(struct jinja_run *run, struct jinja_value of,
                                    const struct jinja_builtin *builtin)
{
    struct jinja_method method = {builtin, of};
    const struct jinja_method *kept = arena_copy(&run->arena, &method, sizeof method);
    if (!kept)
        return jinja_fail(run, -ENOMEM, "no memory for a call");
    return (struct jinja_value){.kind = JINJA_METHOD, .method = kept};
}

static const struct jinja_builtin *find_method(struct jinja_value of, struct jinja_text name)
{
    if (of.kind == JINJA_TEXT)
        return jinja_find_text_method(name);
    if (of.kind == JINJA_DICT)
        return jinja_find_dict_method(name);
    return jinja_is_sequence(of) ? jinja_find_list_method(name) : NULL;
}

static struct jinja_value no_part(struct jinja_run *run, struct jinja_value of, struct jinja_text part)
{
    int n, m;
    const char *name = shown(of.text, &n), *what = shown(part, &m);
    return jinja_fail(run, -EINVAL, "\"%.*s\" is undefined, so it has no \"%.*s\"", n, name, m, what);
}

struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value of, struct jinja_text name)
{
    struct jinja_value key = {.kind = JINJA_TEXT, .text = name};
    if (of.kind == JINJA_UNDEFINED)
        return no_part(run, of, name);
    if (of.kind == JINJA_LOOP)
        return jinja_loop_attribute(run, of.loop, name);
    const struct jinja_builtin *builtin = find_method(of, name);
    if (builtin)
        return method_of(run, of, builtin);
    if (of.kind == JINJA_DICT || of.kind == JINJA_NAMESPACE) {
        const struct jinja_value *found = jinja_dict_find(run, of.dict, key);
        if (found)
            return *found;
    }
    return jinja_undefined(name);
}

/* Item i, which may count from the end. */
static struct jinja_value at_index(struct jinja_run *run, struct jinja_value of, int64_t i)
{
    size_t n = jinja_length(run, of);
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n)
        return jinja_undefined((struct jinja_text){"item", 4});
    if (of.kind != JINJA_TEXT)
        return of.list->at[i];
    size_t at = pytext_offset(of.text.s, of.text.n, (size_t)i);
    return jinja_text(of.text.s + at, utf8_next(of.text.s + at, of.text.n - at).len);
}

struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value of, struct jinja_value key)
{
    if (of.kind == JINJA_DICT) {
        const struct jinja_value *found = jinja_dict_find(run, of.dict, key);
        if (found)
            return *found;
    }
    bool is_index = key.kind == JINJA_INT || key.kind == JINJA_BOOL;
    if (is_index && (of.kind == JINJA_TEXT || jinja_is_sequence(of)))
        return at_index(run, of, jinja_integer_of(key));
    if (key.kind == JINJA_TEXT)
        return jinja_attribute(run, of, key.text);
    if (of.kind == JINJA_UNDEFINED)
        return no_part(run, of, (struct jinja_text){"item", 4});
    return jinja_undefined((struct jinja_text){"item", 4});
}

/* Python's rule for a bound of a slice: counted from the end if negative, then cut to what there
 * is. */
static int64_t slice_bound(struct jinja_run *run, struct jinja_value bound, int64_t n, int64_t step,
                           int64_t def)
{
    if (bound.kind == JINJA_ABSENT || bound.kind == JINJA_NONE)
        return def;
    if (bound.kind != JINJA_INT && bound.kind != JINJA_BOOL) {
        jinja_fail(run, -EINVAL, "a slice goes from number to number, not %s", jinja_kind_name(bound));
        return 0;
    }
    int64_t i = jinja_integer_of(bound), low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (i < 0)
        i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

static struct jinja_value slice_text(struct jinja_run *run, struct jinja_text t, int64_t start, int64_t stop,
                                     int64_t step)
{
    if (step == 1) {
        size_t from = pytext_offset(t.s, t.n, (size_t)start);
        size_t to =
            stop > start ? from + pytext_offset(t.s + from, t.n - from, (size_t)(stop - start)) : from;
        return jinja_text(t.s + from, to - from);
    }
    struct jinja_value text = {.kind = JINJA_TEXT, .text = t};
    const struct jinja_list *chars = jinja_items(run, text);
    struct textbuf buf = {0};
    for (int64_t i = start; !run->code && (step > 0 ? i < stop : i > stop); i += step)
        textbuf_append(&buf, chars->at[i].text.s, chars->at[i].text.n);
    return jinja_take_text(run, &buf);
}

struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value of,
                               const struct jinja_value bounds[3])
{
    if (of.kind != JINJA_TEXT && !jinja_is_sequence(of))
        return of.kind == JINJA_UNDEFINED ? no_part(run, of, (struct jinja_text){"slice", 5})
                                          : jinja_fail(run, -EINVAL, "%s has no slices", jinja_kind_name(of));
    int64_t n = (int64_t)jinja_length(run, of);
    int64_t step = slice_bound(run, bounds[2], INT32_MAX, 1, 1);
    if (bounds[2].kind == JINJA_INT && bounds[2].integer < 0) /* a step is no place: its sign stays */
        step = bounds[2].integer < -n - 1 ? -n - 1 : bounds[2].integer;
    if (step == 0)
        return jinja_fail(run, -EINVAL, "a slice with steps of 0 has no end");
    int64_t start = slice_bound(run, bounds[0], n, step, step < 0 ? n - 1 : 0);
    int64_t stop = slice_bound(run, bounds[1], n, step, step < 0 ? -1 : n);
    if (run->code || of.kind == JINJA_TEXT)
        return run->code ? jinja_none() : slice_text(run, of.text, start, stop, step);
    struct jinja_value part = jinja_list_new(run, of.kind, 0);
    for (int64_t i = start; jinja_step(run, 1) && (step > 0 ? i < stop : i > stop); i += step)
        jinja_list_add(run, part.list, of.list->at[i]);
    return part;
}

/* --- operators --- */

static struct jinja_value bad_operands(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                                       struct jinja_value b)
{
    static const char *const symbols[] = {
        [OP_ADD] = "+",  [OP_SUB] = "-",       [OP_MUL] = "*", [OP_DIV] = "/",
        [OP_POW] = "**", [OP_FLOORDIV] = "//", [OP_MOD] = "%"};
    struct jinja_value bad = a.kind == JINJA_UNDEFINED ? a : b;
    int n;
    const char *name = shown(bad.kind == JINJA_UNDEFINED ? bad.text : (struct jinja_text){"", 0}, &n);
    if (bad.kind == JINJA_UNDEFINED)
        return jinja_fail(run, -EINVAL, "\"%.*s\" is undefined, so there is no %s for it", n, name,
                          symbols[op]);
    return jinja_fail(run, -EINVAL, "there is no %s of %s and %s", symbols[op], jinja_kind_name(a),
                      jinja_kind_name(b));
}

static struct jinja_value join_texts(struct jinja_run *run, struct jinja_text a, struct jinja_text b)
{
    if (!jinja_step(run, (a.n + b.n) / 64))
        return jinja_none();
    char *joined = arena_alloc(&run->arena, a.n + b.n);
    if (!joined)
        return jinja_fail(run, -ENOMEM, "the template needs more than %d MiB", JINJA_MEMORY_MAX >> 20);
    memcpy(joined, a.s, a.n);
    memcpy(joined + a.n, b.s, b.n);
    return jinja_text(joined, a.n + b.n);
}

static struct jinja_value join_lists(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value joined = jinja_list_new(run, a.kind, a.list->n + b.list->n);
    for (size_t i = 0; i < a.list->n && jinja_step(run, 1); i++)
        jinja_list_add(run, joined.list, a.list->at[i]);
    for (size_t i = 0; i < b.list->n && jinja_step(run, 1); i++)
        jinja_list_add(run, joined.list, b.list->at[i]);
    return joined;
}

static struct jinja_value repeat(struct jinja_run *run, struct jinja_value what, int64_t times)
{
    if (what.kind == JINJA_TEXT) {
        struct textbuf buf = {0};
        for (int64_t i = 0; what.text.n && i < times && jinja_step(run, 1 + what.text.n / 64); i++) {
            if (buf.len > JINJA_OUTPUT_MAX)
                jinja_fail(run, -EFBIG, "a text of more than %d MiB", JINJA_OUTPUT_MAX >> 20);
            textbuf_append(&buf, what.text.s, what.text.n);
        }
        return jinja_take_text(run, &buf);
    }
    struct jinja_value list = jinja_list_new(run, what.kind, 0);
    for (int64_t i = 0; what.list->n && i < times && jinja_step(run, 1); i++)
        for (size_t k = 0; k < what.list->n && jinja_step(run, 1); k++)
            jinja_list_add(run, list.list, what.list->at[k]);
    return list;
}

static struct jinja_value real_math(struct jinja_run *run, enum jinja_op op, double a, double b)
{
    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
        return jinja_fail(run, -EDOM, "a division by zero");
    switch (op) {
    case OP_ADD: return jinja_float(a + b);
    case OP_SUB: return jinja_float(a - b);
    case OP_MUL: return jinja_float(a * b);
    case OP_DIV: return jinja_float(a / b);
    case OP_FLOORDIV: return jinja_float(floor(a / b));
    case OP_MOD: {
        double rest = fmod(a, b);
        return jinja_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default: return jinja_float(pow(a, b));
    }
}

static bool power(int64_t base, int64_t exponent, int64_t *ret)
{
    int64_t result = 1;
    if (base == 0 || base == 1 || base == -1)
        result = exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base;
    else
        for (; exponent > 0; exponent--)
            if (__builtin_mul_overflow(result, base, &result))
                return false;
    *ret = result;
    return true;
}

static struct jinja_value integer_math(struct jinja_run *run, enum jinja_op op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool fits = true;
    if ((op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return jinja_fail(run, -EDOM, "a division by zero");
    switch (op) {
    case OP_ADD: fits = !__builtin_add_overflow(a, b, &result); break;
    case OP_SUB: fits = !__builtin_sub_overflow(a, b, &result); break;
    case OP_MUL: fits = !__builtin_mul_overflow(a, b, &result); break;
    case OP_POW: fits = power(a, b, &result); break;
    case OP_FLOORDIV:
        fits = a != INT64_MIN || b != -1;
        if (fits)
            result = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        break;
    default: result = b == -1 ? 0 : a % b; result += result != 0 && (result < 0) != (b < 0) ? b : 0;
    }
    return fits ? jinja_int(result) : jinja_fail(run, -ERANGE, "a number of more than 64 bits");
}

struct jinja_value jinja_binary(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                                struct jinja_value b)
{
    bool a_int = a.kind == JINJA_INT || a.kind == JINJA_BOOL,
         b_int = b.kind == JINJA_INT || b.kind == JINJA_BOOL;
    if (op == OP_CONCAT) {
        struct jinja_value left = jinja_str(run, a), right = jinja_str(run, b);
        return run->code ? jinja_none() : join_texts(run, left.text, right.text);
    }
    if (a_int && b_int && op != OP_DIV && !(op == OP_POW && jinja_integer_of(b) < 0))
        return integer_math(run, op, jinja_integer_of(a), jinja_integer_of(b));
    if (jinja_is_number(a) && jinja_is_number(b))
        return real_math(run, op, jinja_real_of(a), jinja_real_of(b));
    if (op == OP_ADD && a.kind == JINJA_TEXT && b.kind == JINJA_TEXT)
        return join_texts(run, a.text, b.text);
    if (op == OP_ADD && a.kind == b.kind && jinja_is_sequence(a))
        return join_lists(run, a, b);
    if (op == OP_MUL && (a.kind == JINJA_TEXT || jinja_is_sequence(a)) && b_int)
        return repeat(run, a, jinja_integer_of(b));
    if (op == OP_MUL && a_int && (b.kind == JINJA_TEXT || jinja_is_sequence(b)))
        return repeat(run, b, jinja_integer_of(a));
    if (op == OP_MOD && a.kind == JINJA_TEXT)
        return jinja_format_text(run, a.text, b.kind == JINJA_TUPLE ? b.list->at : &b,
                                 b.kind == JINJA_TUPLE ? b.list->n : 1);
    return bad_operands(run, op, a, b);
}

static bool compare(struct jinja_run *run, enum jinja_op op, struct jinja_value a, struct jinja_value b)
{
    switch (op) {
    case OP_EQ: return jinja_equal(run, a, b);
    case OP_NE: return !jinja_equal(run, a, b);
    case OP_IN: return jinja_contains(run, b, a);
    case OP_NOT_IN: return !jinja_contains(run, b, a);
    case OP_LT: return jinja_order(run, a, b) < 0;
    case OP_LE: return jinja_order(run, a, b) <= 0;
    case OP_GT: return jinja_order(run, a, b) > 0;
    default: return jinja_order(run, a, b) >= 0;
    }
}

/* a < b < c: every neighbour in turn. */
static struct jinja_value eval_comparison(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value left = jinja_eval(run, node->a);
    bool holds = true;
    for (const struct jinja_node *next = node->list; next && holds && !run->code; next = next->next) {
        struct jinja_value right = jinja_eval(run, next->a);
        holds = !run->code && compare(run, next->op, left, right);
        left = right;
    }
    return jinja_bool(holds);
}

static struct jinja_value eval_sign(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value v = jinja_eval(run, node->a);
    if (run->code || !jinja_is_number(v))
        return jinja_fail(run, -EINVAL, "%s has no sign", jinja_kind_name(v));
    if (node->op == OP_POS)
        return v.kind == JINJA_BOOL ? jinja_int(v.truth) : v;
    return v.kind == JINJA_FLOAT ? jinja_float(-v.real) : integer_math(run, OP_SUB, 0, jinja_integer_of(v));
}

/* --- the rest --- */

static struct jinja_value eval_list(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value v = jinja_list_new(run, node->op == OP_LIST ? JINJA_LIST : JINJA_TUPLE, 0);
    for (const struct jinja_node *item = node->list; item && !run->code; item = item->next)
        jinja_list_add(run, v.list, jinja_eval(run, item));
    return v;
}

static struct jinja_value eval_dict(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value v = jinja_dict_new(run, JINJA_DICT);
    for (const struct jinja_node *pair = node->list; pair && !run->code; pair = pair->next) {
        struct jinja_value key = jinja_eval(run, pair->a);
        jinja_dict_set(run, v.dict, key, jinja_eval(run, pair->b));
    }
    return v;
}

static void eval_args(struct jinja_run *run, const struct jinja_node *list, struct jinja_args *ret)
{
    ret->n = ret->nkeys = 0; /* the parser has counted them */
    for (; list && !run->code; list = list->next) {
        if (list->op == OP_KEYWORD)
            ret->key[ret->nkeys++] = (struct jinja_keyword){list->text, jinja_eval(run, list->a)};
        else
            ret->at[ret->n++] = jinja_eval(run, list);
    }
}

static struct jinja_value eval_call(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_args args;
    struct jinja_value v = jinja_eval(run, node->a);
    eval_args(run, node->list, &args);
    run->line = node->line;
    if (run->code)
        return v;
    if (node->op == OP_CALL)
        return jinja_call_value(run, v, &args);
    return jinja_call_builtin(run, node->builtin, v, &args);
}

static struct jinja_value eval_slice(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value of = jinja_eval(run, node->a), bounds[3] = {{.kind = JINJA_ABSENT}};
    const struct jinja_node *const nodes[3] = {node->b, node->c, node->d};
    for (size_t i = 0; i < 3; i++)
        if (nodes[i])
            bounds[i] = jinja_eval(run, nodes[i]);
    return run->code ? of : jinja_slice(run, of, bounds);
}

static struct jinja_value eval_choice(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value a = jinja_eval(run, node->a);
    if (run->code)
        return a;
    switch (node->op) {
    case OP_AND: return jinja_truth(a) ? jinja_eval(run, node->b) : a;
    case OP_OR: return jinja_truth(a) ? a : jinja_eval(run, node->b);
    default:
        if (jinja_truth(a))
            return jinja_eval(run, node->b);
        return node->c ? jinja_eval(run, node->c)
                       : jinja_undefined((struct jinja_text){"the other choice", 16});
    }
}

static struct jinja_value eval(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value a, b;
    switch (node->op) {
    case OP_CONST: return node->value;
    case OP_NAME: return jinja_scope_find(run, node->text);
    case OP_LIST:
    case OP_TUPLE: return eval_list(run, node);
    case OP_DICT: return eval_dict(run, node);
    case OP_ATTR: a = jinja_eval(run, node->a); return run->code ? a : jinja_attribute(run, a, node->text);
    case OP_ITEM:
        a = jinja_eval(run, node->a);
        b = jinja_eval(run, node->b);
        return run->code ? a : jinja_item(run, a, b);
    case OP_SLICE: return eval_slice(run, node);
    case OP_CALL:
    case OP_FILTER:
    case OP_TEST: return eval_call(run, node);
    case OP_CAPTURED: return run->captured;
    case OP_NOT: return jinja_bool(!jinja_truth(jinja_eval(run, node->a)));
    case OP_NEG:
    case OP_POS: return eval_sign(run, node);
    case OP_AND:
    case OP_OR:
    case OP_COND: return eval_choice(run, node);
    case OP_COMPARE: return eval_comparison(run, node);
    default:
        a = jinja_eval(run, node->a);
        b = jinja_eval(run, node->b);
        run->line = node->line;
        return run->code ? a : jinja_binary(run, node->op, a, b);
    }
}

struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *node)
{
    if (!jinja_step(run, 1) || !jinja_enter(run))
        return jinja_none();
    run->line = node->line;
    struct jinja_value v = eval(run, node);
    jinja_leave(run);
    return v;
}
