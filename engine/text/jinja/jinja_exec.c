/* SPDX-License-Identifier: MIT
 *
 * Statements: loops, conditions, assignments, macros, and where text goes. Owns nothing but the
 * buffers of captured blocks; called by jinja.c, on the caller's thread. */
#include <errno.h>
#include <string.h>

#include "text/jinja/jinja_run.h"

void jinja_emit(struct jinja_run *run, const char *s, size_t n)
{
    if (run->out->len + n > JINJA_OUTPUT_MAX)
        jinja_fail(run, -EFBIG, "the template writes more than %d MiB", JINJA_OUTPUT_MAX >> 20);
    else
        textbuf_append(run->out, s, n);
}

/* The text of a body in a scope of its own, or NULL for that of where we are. */
static struct jinja_value capture(struct jinja_run *run, const struct jinja_node *body)
{
    struct textbuf buf = {0}, *out = run->out;
    run->out = &buf;
    jinja_exec(run, body);
    run->out = out;
    return jinja_take_text(run, &buf);
}

static struct jinja_scope *new_scope(struct jinja_run *run, struct jinja_scope *outer)
{
    struct jinja_scope *scope = arena_alloc(&run->arena, sizeof *scope);
    if (!scope)
        jinja_fail(run, -ENOMEM, "the template needs more than %d MiB", JINJA_MEMORY_MAX >> 20);
    else
        jinja_scope_push(run, scope, outer);
    return scope;
}

/* --- assignment --- */

static void assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    if (target->op == OP_NAME) {
        jinja_scope_set(run, target->text, value);
    } else if (target->op == OP_ATTR) {
        struct jinja_value of = jinja_scope_find(run, target->a->text);
        struct jinja_value key = {.kind = JINJA_TEXT, .text = target->text};
        if (of.kind == JINJA_NAMESPACE)
            jinja_dict_set(run, of.dict, key, value);
        else
            jinja_fail(run, -EINVAL, "only a namespace can be changed: \"%.*s\" is %s",
                       (int)target->a->text.n, target->a->text.s, jinja_kind_name(of));
    } else {
        const struct jinja_list *items = jinja_items(run, value);
        const struct jinja_node *name = target->list;
        size_t i = 0;
        for (; name && !run->code && i < items->n && jinja_enter(run); name = name->next) {
            assign(run, name, items->at[i++]);
            jinja_leave(run);
        }
        if (!run->code && (name || i < items->n))
            jinja_fail(run, -EINVAL, "%zu values do not fit the names they are for", items->n);
    }
}

static void exec_set(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value, before = run->captured;
    if (node->b) {
        value = jinja_eval(run, node->b);
    } else {
        struct jinja_scope *scope = run->scope;
        value = new_scope(run, scope) ? capture(run, node->list) : jinja_none();
        run->scope = scope;
        run->captured = value;
        value = jinja_eval(run, node->c);
        run->captured = before;
    }
    if (!run->code)
        assign(run, node->a, value);
}

/* --- loops --- */

static struct jinja_value cycle(struct jinja_run *run, const struct jinja_call *call)
{
    const struct jinja_loop *loop = call->self.loop;
    if (!call->all->n)
        return jinja_fail(run, -EINVAL, "loop.cycle needs something to choose from");
    return call->all->at[loop->index % call->all->n];
}

/* Are these other values than the last time it was asked? */
static struct jinja_value changed(struct jinja_run *run, const struct jinja_call *call)
{
    struct jinja_loop *loop = call->self.loop;
    struct jinja_value now = jinja_list_new(run, JINJA_LIST, call->all->n);
    for (size_t i = 0; i < call->all->n && !run->code; i++)
        jinja_list_add(run, now.list, call->all->at[i]);
    struct jinja_value before = {.kind = JINJA_LIST, .list = loop->changed};
    bool same = !run->code && loop->changed && jinja_equal(run, before, now);
    loop->changed = run->code ? NULL : now.list;
    return jinja_bool(!same);
}

/* depth counts how often a recursive loop has called itself, and there are none of those. */
struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop,
                                        struct jinja_text name)
{
    static const struct jinja_builtin methods[] = {
        {"cycle", "*", 0, cycle}, {"changed", "*", 0, changed}, {.name = NULL}};
    int64_t index = (int64_t)loop->index, n = (int64_t)loop->list->n;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index0", index},
                   {"index", index + 1},
                   {"revindex0", n - 1 - index},
                   {"revindex", n - index},
                   {"length", n},
                   {"depth0", 0},
                   {"depth", 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (jinja_is_word(name, numbers[i].name))
            return jinja_int(numbers[i].value);
    if (jinja_is_word(name, "first"))
        return jinja_bool(index == 0);
    if (jinja_is_word(name, "last"))
        return jinja_bool(index == n - 1);
    bool is_before = jinja_is_word(name, "previtem");
    if (is_before || jinja_is_word(name, "nextitem")) {
        int64_t other = is_before ? index - 1 : index + 1;
        return other >= 0 && other < n ? loop->list->at[other] : jinja_undefined(name);
    }
    const struct jinja_builtin *builtin = jinja_find_in(methods, name);
    struct jinja_method method = {builtin, {.kind = JINJA_LOOP, .loop = loop}};
    const struct jinja_method *kept = builtin ? arena_copy(&run->arena, &method, sizeof method) : NULL;
    if (!kept)
        return jinja_fail(run, -ENOTSUP, "loop has no \"%.*s\"", (int)name.n, name.s);
    return (struct jinja_value){.kind = JINJA_METHOD, .method = kept};
}

/* What the loop's own condition lets through. */
static const struct jinja_list *chosen(struct jinja_run *run, const struct jinja_node *node,
                                       const struct jinja_list *all)
{
    struct jinja_scope *outer = run->scope;
    struct jinja_value some = jinja_list_new(run, JINJA_LIST, 0);
    for (size_t i = 0; i < all->n && jinja_step(run, 1) && new_scope(run, outer); i++) {
        assign(run, node->a, all->at[i]);
        if (jinja_truth(jinja_eval(run, node->c)) && !run->code)
            jinja_list_add(run, some.list, all->at[i]);
    }
    run->scope = outer;
    return run->code ? NULL : some.list;
}

static void exec_rounds(struct jinja_run *run, const struct jinja_node *node, const struct jinja_list *items)
{
    struct jinja_scope *outer = run->scope;
    struct jinja_loop *loop = arena_alloc(&run->arena, sizeof *loop);
    if (!loop) {
        jinja_fail(run, -ENOMEM, "the template needs more than %d MiB", JINJA_MEMORY_MAX >> 20);
        return;
    }
    loop->list = items;
    struct jinja_value loop_value = {.kind = JINJA_LOOP, .loop = loop};
    for (; loop->index < items->n && jinja_step(run, 1) && run->jump != JINJA_BREAK; loop->index++) {
        if (!new_scope(run, outer))
            break;
        run->jump = JINJA_ON;
        jinja_scope_set(run, (struct jinja_text){"loop", 4}, loop_value);
        assign(run, node->a, items->at[loop->index]);
        jinja_exec(run, node->list);
    }
    run->jump = JINJA_ON;
    run->scope = outer;
}

static void exec_for(struct jinja_run *run, const struct jinja_node *node)
{
    const struct jinja_list *items = jinja_items(run, jinja_eval(run, node->b));
    if (node->c && !run->code)
        items = chosen(run, node, items);
    if (run->code)
        return;
    if (items->n > 0) {
        exec_rounds(run, node, items);
    } else {
        struct jinja_scope *outer = run->scope;
        if (new_scope(run, outer))
            jinja_exec(run, node->other);
        run->scope = outer;
    }
}

/* --- macros --- */

static struct jinja_value make_macro(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_macro macro = {node, run->scope};
    const struct jinja_macro *kept = arena_copy(&run->arena, &macro, sizeof macro);
    if (!kept)
        return jinja_fail(run, -ENOMEM, "the template needs more than %d MiB", JINJA_MEMORY_MAX >> 20);
    return (struct jinja_value){.kind = JINJA_MACRO, .macro = kept};
}

/* Is there a parameter of that name? */
static bool has_param(const struct jinja_node *node, struct jinja_text name)
{
    for (const struct jinja_node *p = node->args; p; p = p->next)
        if (p->text.n == name.n && !memcmp(p->text.s, name.s, name.n))
            return true;
    return jinja_is_word(name, "caller");
}

static void bind_params(struct jinja_run *run, const struct jinja_node *node, const struct jinja_args *args)
{
    size_t i = 0;
    for (const struct jinja_node *p = node->args; p && !run->code; p = p->next, i++) {
        struct jinja_value v = {.kind = JINJA_ABSENT};
        if (i < args->n)
            v = args->at[i];
        for (size_t k = 0; k < args->nkeys; k++)
            if (args->key[k].name.n == p->text.n && !memcmp(args->key[k].name.s, p->text.s, p->text.n))
                v = args->key[k].value;
        if (v.kind == JINJA_ABSENT)
            v = p->a ? jinja_eval(run, p->a) : jinja_undefined(p->text);
        jinja_scope_set(run, p->text, v);
    }
    if (args->n > i)
        jinja_fail(run, -EINVAL, "the macro \"%.*s\" takes %zu arguments, not %zu", (int)node->text.n,
                   node->text.s, i, args->n);
    for (size_t k = 0; k < args->nkeys; k++) {
        if (!has_param(node, args->key[k].name))
            jinja_fail(run, -EINVAL, "the macro \"%.*s\" has no argument \"%.*s\"", (int)node->text.n,
                       node->text.s, (int)args->key[k].name.n, args->key[k].name.s);
        if (jinja_is_word(args->key[k].name, "caller"))
            jinja_scope_set(run, args->key[k].name, args->key[k].value);
    }
}

struct jinja_value jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_args *args)
{
    struct jinja_scope *scope = run->scope;
    struct jinja_value text = jinja_none(), captured = run->captured;
    if (!jinja_enter(run))
        return text;
    if (new_scope(run, macro->scope)) {
        bind_params(run, macro->node, args);
        text = capture(run, macro->node->list);
    }
    run->scope = scope;
    run->captured = captured;
    jinja_leave(run);
    return text;
}

/* {% call f(…) %}: f gets the block as caller(). */
static void exec_call(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_args args = {.n = 0};
    struct jinja_value callee = jinja_eval(run, node->a->a);
    for (const struct jinja_node *arg = node->a->list; arg && !run->code; arg = arg->next) {
        if (arg->op == OP_KEYWORD)
            args.key[args.nkeys++] = (struct jinja_keyword){arg->text, jinja_eval(run, arg->a)};
        else
            args.at[args.n++] = jinja_eval(run, arg);
    }
    if (args.nkeys == JINJA_ARGS_MAX)
        jinja_fail(run, -ENOTSUP, "too many arguments");
    if (run->code)
        return;
    args.key[args.nkeys++] = (struct jinja_keyword){{"caller", 6}, make_macro(run, node)};
    struct jinja_value text = jinja_str(run, jinja_call_value(run, callee, &args));
    if (!run->code)
        jinja_emit(run, text.text.s, text.text.n);
}

/* --- blocks --- */

static void exec_print(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value v = jinja_eval(run, node->a);
    struct jinja_value text = run->code ? v : jinja_str(run, v);
    if (!run->code)
        jinja_emit(run, text.text.s, text.text.n);
}

static void exec_filtered(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *scope = run->scope;
    struct jinja_value before = run->captured;
    if (new_scope(run, scope))
        run->captured = capture(run, node->list);
    run->scope = scope;
    struct jinja_value text = jinja_str(run, jinja_eval(run, node->c));
    run->captured = before;
    if (!run->code)
        jinja_emit(run, text.text.s, text.text.n);
}

/* All values are of the scope outside. */
static void exec_with(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *outer = run->scope, *inner = new_scope(run, outer);
    for (const struct jinja_node *set = node->args; set && !run->code; set = set->next) {
        run->scope = outer;
        struct jinja_value value = jinja_eval(run, set->b);
        run->scope = inner;
        assign(run, set->a, value);
    }
    jinja_exec(run, node->list);
    run->scope = outer;
}

static void exec_generation(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *scope = run->scope;
    size_t start = run->out->len;
    if (new_scope(run, scope))
        jinja_exec(run, node->list);
    run->scope = scope;
    if (run->code || run->out != &run->whole)
        return;
    void *at = run->spans.at;
    if (array_reserve(&at, &run->spans.cap, run->spans.n + 1, sizeof *run->spans.at)) {
        jinja_fail(run, -ENOMEM, "no memory for the parts to train");
        return;
    }
    run->spans.at = at;
    run->spans.at[run->spans.n].start = start;
    run->spans.at[run->spans.n++].end = run->out->len;
}

static void exec_one(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value v;
    switch (node->op) {
    case OP_TEXT: jinja_emit(run, node->text.s, node->text.n); break;
    case OP_PRINT: exec_print(run, node); break;
    case OP_IF:
        v = jinja_eval(run, node->a);
        if (!run->code)
            jinja_exec(run, jinja_truth(v) ? node->list : node->other);
        break;
    case OP_FOR: exec_for(run, node); break;
    case OP_SET: exec_set(run, node); break;
    case OP_MACRO:
        v = make_macro(run, node);
        jinja_scope_set(run, node->text, v);
        break;
    case OP_CALL_BLOCK: exec_call(run, node); break;
    case OP_FILTERED: exec_filtered(run, node); break;
    case OP_WITH: exec_with(run, node); break;
    case OP_GENERATION: exec_generation(run, node); break;
    case OP_BREAK: run->jump = JINJA_BREAK; break;
    case OP_CONTINUE: run->jump = JINJA_CONTINUE; break;
    default: break; /* an expression is no statement: the parser makes none here */
    }
}

void jinja_exec(struct jinja_run *run, const struct jinja_node *list)
{
    if (!list || !jinja_enter(run))
        return;
    for (; list && run->jump == JINJA_ON && jinja_step(run, 1); list = list->next) {
        run->line = list->line;
        exec_one(run, list);
    }
    jinja_leave(run);
}
