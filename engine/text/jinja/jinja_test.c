/* SPDX-License-Identifier: MIT
 *
 * Tests: what may stand behind "is". Owns nothing; called by the interpreter, on its thread. */
#include <errno.h>

#include "text/jinja/jinja_run.h"
#include "text/pytext.h"

#define KIND_TEST(name, condition)                                                                           \
    static struct jinja_value name(struct jinja_run *run, const struct jinja_call *call)                     \
    {                                                                                                        \
        struct jinja_value v = call->self;                                                                   \
        (void)run;                                                                                           \
        return jinja_bool(condition);                                                                        \
    }
KIND_TEST(is_defined, v.kind != JINJA_UNDEFINED)
KIND_TEST(is_undefined, v.kind == JINJA_UNDEFINED)
KIND_TEST(is_none, v.kind == JINJA_NONE)
KIND_TEST(is_boolean, v.kind == JINJA_BOOL)
KIND_TEST(is_true, v.kind == JINJA_BOOL && v.truth)
KIND_TEST(is_false, v.kind == JINJA_BOOL && !v.truth)
KIND_TEST(is_integer, v.kind == JINJA_INT)
KIND_TEST(is_float, v.kind == JINJA_FLOAT)
KIND_TEST(is_number, jinja_is_number(v))
KIND_TEST(is_string, v.kind == JINJA_TEXT)
KIND_TEST(is_mapping, v.kind == JINJA_DICT)
KIND_TEST(is_iterable,
          v.kind == JINJA_TEXT || v.kind == JINJA_DICT || v.kind == JINJA_UNDEFINED || jinja_is_sequence(v))
KIND_TEST(is_callable, v.kind == JINJA_MACRO || v.kind == JINJA_FUNCTION || v.kind == JINJA_METHOD)
KIND_TEST(is_lower, v.kind == JINJA_TEXT && pytext_is(v.text.s, v.text.n, PYTEXT_IS_LOWER))
KIND_TEST(is_upper, v.kind == JINJA_TEXT && pytext_is(v.text.s, v.text.n, PYTEXT_IS_UPPER))

static struct jinja_value is_divisible(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value rest = jinja_binary(run, OP_MOD, call->self, call->arg[0]);
    return jinja_bool(!run->code && jinja_is_number(rest) && jinja_real_of(rest) == 0);
}

static struct jinja_value is_parity(struct jinja_run *run, const struct jinja_call *call, double parity)
{
    struct jinja_value rest = jinja_binary(run, OP_MOD, call->self, jinja_int(2));
    return jinja_bool(!run->code && jinja_is_number(rest) && jinja_real_of(rest) == parity);
}

static struct jinja_value is_odd(struct jinja_run *run, const struct jinja_call *call)
{
    return is_parity(run, call, 1);
}

static struct jinja_value is_even(struct jinja_run *run, const struct jinja_call *call)
{
    return is_parity(run, call, 0);
}

static struct jinja_value is_equal(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_equal(run, call->self, call->arg[0]));
}

static struct jinja_value is_unequal(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(!jinja_equal(run, call->self, call->arg[0]));
}

/* The same thing: none, true, false and numbers are only ever one. */
static struct jinja_value is_same(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(call->self.kind == call->arg[0].kind && jinja_equal(run, call->self, call->arg[0]));
}

static struct jinja_value is_less(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_order(run, call->self, call->arg[0]) < 0);
}

static struct jinja_value is_at_most(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_order(run, call->self, call->arg[0]) <= 0);
}

static struct jinja_value is_greater(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_order(run, call->self, call->arg[0]) > 0);
}

static struct jinja_value is_at_least(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_order(run, call->self, call->arg[0]) >= 0);
}

static struct jinja_value is_in(struct jinja_run *run, const struct jinja_call *call)
{
    return jinja_bool(jinja_contains(run, call->arg[0], call->self));
}

const struct jinja_builtin *jinja_find_test(struct jinja_text name)
{
    static const struct jinja_builtin tests[] = {
        {"defined", "", 0, is_defined},
        {"undefined", "", 0, is_undefined},
        {"none", "", 0, is_none},
        {"boolean", "", 0, is_boolean},
        {"true", "", 0, is_true},
        {"false", "", 0, is_false},
        {"integer", "", 0, is_integer},
        {"float", "", 0, is_float},
        {"number", "", 0, is_number},
        {"string", "", 0, is_string},
        {"mapping", "", 0, is_mapping},
        {"iterable", "", 0, is_iterable},
        {"sequence", "", 0, is_iterable},
        {"callable", "", 0, is_callable},
        {"lower", "", 0, is_lower},
        {"upper", "", 0, is_upper},
        {"odd", "", 0, is_odd},
        {"even", "", 0, is_even},
        {"divisibleby", "num", 1, is_divisible},
        {"sameas", "other", 1, is_same},
        {"in", "seq", 1, is_in},
        {"eq", "other", 1, is_equal},
        {"equalto", "other", 1, is_equal},
        {"==", "other", 1, is_equal},
        {"ne", "other", 1, is_unequal},
        {"!=", "other", 1, is_unequal},
        {"lt", "other", 1, is_less},
        {"lessthan", "other", 1, is_less},
        {"<", "other", 1, is_less},
        {"le", "other", 1, is_at_most},
        {"<=", "other", 1, is_at_most},
        {"gt", "other", 1, is_greater},
        {"greaterthan", "other", 1, is_greater},
        {">", "other", 1, is_greater},
        {"ge", "other", 1, is_at_least},
        {">=", "other", 1, is_at_least},
        {.name = NULL},
    };
    return jinja_find_in(tests, name);
}
