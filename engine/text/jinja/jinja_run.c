/* SPDX-License-Identifier: MIT
 *
 * Bounds, failure, variables and calls of a rendering. Called by the interpreter's other files, on
 * its thread. */
#include "text/jinja/jinja_run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct jinja_value jinja_fail(struct jinja_run *run, int code, const char *fmt, ...)
{
    struct jinja_value undefined = {.kind = JINJA_UNDEFINED, .text = {"", 0}};
    char text[400];
    va_list ap;
    if (run->code)
        return undefined;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    run->code = err_set(run->err, code, "line %u: %s", run->line, text);
    return undefined;
}

bool jinja_step(struct jinja_run *run, size_t n)
{
    if (run->code)
        return false;
    run->steps += n < JINJA_STEPS_MAX ? n : JINJA_STEPS_MAX;
    if (run->steps > JINJA_STEPS_MAX)
        jinja_fail(run, -ETIME, "the template takes more than %d steps: does it end?", JINJA_STEPS_MAX);
    return !run->code;
}

bool jinja_enter(struct jinja_run *run)
{
    if (run->depth == JINJA_DEPTH_MAX) {
        jinja_fail(run, -ELOOP, "more than %d levels within one another", JINJA_DEPTH_MAX);
        return false;
    }
    run->depth++;
    return true;
}

void jinja_leave(struct jinja_run *run)
{
    run->depth--;
}

/* --- variables --- */

void jinja_scope_push(struct jinja_run *run, struct jinja_scope *scope, struct jinja_scope *outer)
{
    *scope = (struct jinja_scope){.outer = outer};
    run->scope = scope;
}

static struct jinja_var *find_var(struct jinja_run *run, const struct jinja_scope *scope,
                                  struct jinja_text name)
{
    for (struct jinja_var *var = scope->vars; var; var = var->next)
        if (jinja_step(run, 1) && var->name.n == name.n && !memcmp(var->name.s, name.s, name.n))
            return var;
    return NULL;
}

struct jinja_value jinja_scope_find(struct jinja_run *run, struct jinja_text name)
{
    for (const struct jinja_scope *scope = run->scope; scope; scope = scope->outer) {
        const struct jinja_var *var = find_var(run, scope, name);
        if (var)
            return var->value;
    }
    const struct jinja_builtin *function = jinja_find_function(name);
    if (function)
        return (struct jinja_value){.kind = JINJA_FUNCTION, .function = function};
    return jinja_undefined(name);
}

void jinja_scope_set(struct jinja_run *run, struct jinja_text name, struct jinja_value value)
{
    struct jinja_var *var = find_var(run, run->scope, name);
    if (!var) {
        var = arena_alloc(&run->arena, sizeof *var);
        if (!var) {
            jinja_fail(run, -ENOMEM, "the template needs more than %d MiB", JINJA_MEMORY_MAX >> 20);
            return;
        }
        var->name = name;
        var->next = run->scope->vars;
        run->scope->vars = var;
    }
    var->value = value;
}

/* --- calls --- */

const struct jinja_builtin *jinja_find_in(const struct jinja_builtin *table, struct jinja_text name)
{
    for (; table->name; table++)
        if (jinja_is_word(name, table->name))
            return table;
    return NULL;
}

/* Which parameter of "a b c" has that name; JINJA_ARGS_MAX for none. */
static size_t param_index(const char *params, struct jinja_text name)
{
    size_t i = 0;
    for (const char *p = params; *p; i++) {
        size_t n = strcspn(p, " ");
        if (n == name.n && !memcmp(p, name.s, n))
            return i;
        p += n + (p[n] == ' ');
    }
    return JINJA_ARGS_MAX;
}

static size_t param_count(const char *params)
{
    size_t n = *params != '\0';
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

/* Puts arguments where the parameters are. */
static void bind(struct jinja_run *run, const struct jinja_builtin *f, struct jinja_call *call)
{
    const struct jinja_args *args = call->all;
    if (args->n > param_count(f->params)) {
        jinja_fail(run, -EINVAL, "%s takes %zu arguments, not %zu", f->name, param_count(f->params), args->n);
        return;
    }
    memcpy(call->arg, args->at, args->n * sizeof *args->at);
    for (size_t i = 0; i < args->nkeys; i++) {
        size_t at = param_index(f->params, args->key[i].name);
        if (at == JINJA_ARGS_MAX)
            jinja_fail(run, -ENOTSUP, "%s: the argument \"%.*s\" is not known", f->name,
                       (int)args->key[i].name.n, args->key[i].name.s);
        else
            call->arg[at] = args->key[i].value;
    }
    for (size_t i = 0; i < f->required; i++)
        if (call->arg[i].kind == JINJA_ABSENT)
            jinja_fail(run, -EINVAL, "%s needs %zu argument%s", f->name, f->required,
                       f->required > 1 ? "s" : "");
}

struct jinja_value jinja_call_builtin(struct jinja_run *run, const struct jinja_builtin *f,
                                      struct jinja_value self, const struct jinja_args *args)
{
    struct jinja_call call = {.name = f->name, .self = self, .all = args};
    struct jinja_value v = jinja_undefined((struct jinja_text){f->name, strlen(f->name)});
    if (strcmp(f->params, "*") != 0)
        bind(run, f, &call);
    if (!jinja_step(run, 1) || !jinja_enter(run))
        return v;
    v = f->run(run, &call);
    jinja_leave(run);
    return v; /* cppcheck-suppress returnDanglingLifetime // no value points to the call it came from */
}

struct jinja_value jinja_call_value(struct jinja_run *run, struct jinja_value callee,
                                    const struct jinja_args *args)
{
    switch (callee.kind) {
    case JINJA_FUNCTION: return jinja_call_builtin(run, callee.function, jinja_none(), args);
    case JINJA_METHOD: return jinja_call_builtin(run, callee.method->builtin, callee.method->self, args);
    case JINJA_MACRO: return jinja_call_macro(run, callee.macro, args);
    case JINJA_UNDEFINED:
        return jinja_fail(run, -ENOTSUP, "\"%.*s\" is not known, so it cannot be called",
                          callee.text.n < 60 ? (int)callee.text.n : 60, callee.text.s);
    default: return jinja_fail(run, -EINVAL, "%s cannot be called", jinja_kind_name(callee));
    }
}

struct jinja_text jinja_arg_text(struct jinja_run *run, const struct jinja_call *call, size_t i,
                                 const char *def)
{
    struct jinja_value v = call->arg[i];
    if (v.kind == JINJA_TEXT)
        return v.text;
    if (v.kind != JINJA_ABSENT || !def)
        jinja_fail(run, -EINVAL, "%s: argument %zu must be a text, not %s", call->name, i + 1,
                   jinja_kind_name(v));
    return jinja_word(def ? def : "").text;
}

int64_t jinja_arg_int(struct jinja_run *run, const struct jinja_call *call, size_t i, int64_t def)
{
    struct jinja_value v = call->arg[i];
    if (v.kind == JINJA_INT || v.kind == JINJA_BOOL)
        return jinja_integer_of(v);
    if (v.kind != JINJA_ABSENT)
        jinja_fail(run, -EINVAL, "%s: argument %zu must be a whole number, not %s", call->name, i + 1,
                   jinja_kind_name(v));
    return def;
}

bool jinja_arg_bool(const struct jinja_call *call, size_t i, bool def)
{
    return call->arg[i].kind == JINJA_ABSENT ? def : jinja_truth(call->arg[i]);
}

struct jinja_text jinja_self_text(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_value v = jinja_str(run, call->self);
    return v.kind == JINJA_TEXT ? v.text : (struct jinja_text){"", 0};
}
