/* SPDX-License-Identifier: MIT
 *
 * Owns a parsed template, and the run of each rendering. Called by chat.c, on any thread: a
 * template is not changed by being rendered. */
#include "text/jinja/jinja.h"

#include <errno.h>
#include <stdlib.h>

#include "text/jinja/jinja_json.h"
#include "text/jinja/jinja_parse.h"
#include "text/jinja/jinja_run.h"
#include "text/utf8.h"

enum { SOURCE_MAX = 1 << 20, TREE_MAX = 128 << 20 };

struct jinja {
    struct arena arena;
    struct jinja_node *list;
};

int jinja_parse(struct jinja **ret, const char *text, size_t n, struct err *err)
{
    if (n > SOURCE_MAX)
        return err_set(err, -EFBIG, "a template of %zu bytes: no more than %d are read", n, SOURCE_MAX);
    if (!utf8_is_valid(text, n))
        return err_set(err, -EILSEQ, "the template is not UTF-8");
    struct jinja *program = calloc(1, sizeof *program);
    if (!program)
        return err_set(err, -ENOMEM, "no memory for the template");
    program->arena.limit = TREE_MAX;
    struct jinja_tokens tokens;
    int r = jinja_lex(&tokens, &program->arena, text, n, err);
    if (!r) {
        struct jinja_parser p = {.at = tokens.at, .arena = &program->arena, .err = err};
        program->list = jinja_parse_template(&p);
        r = p.code;
        jinja_tokens_done(&tokens);
    }
    if (r)
        jinja_free(program);
    else
        *ret = program;
    return r;
}

void jinja_free(struct jinja *program)
{
    if (!program)
        return;
    arena_done(&program->arena);
    free(program);
}

static void set_vars(struct jinja_run *run, const json_t *vars)
{
    json_t *object = (json_t *)vars; /* iterating asks for it, and changes nothing */
    for (void *at = json_object_iter(object); at && !run->code; at = json_object_iter_next(object, at)) {
        struct jinja_text name = {json_object_iter_key(at), json_object_iter_key_len(at)};
        jinja_scope_set(run, name, jinja_from_json(run, json_object_iter_value(at)));
    }
}

static int take(struct jinja_run *run, struct chat_text *ret)
{
    struct chat_span *spans = calloc(run->spans.n + 1, sizeof *spans);
    textbuf_append(&run->whole, "", 1);
    if (!spans || run->whole.failed) {
        free(spans);
        return err_set(run->err, -ENOMEM, "no memory for the text of the template");
    }
    for (size_t i = 0; i < run->spans.n; i++)
        spans[i] = (struct chat_span){run->spans.at[i].start, run->spans.at[i].end};
    *ret = (struct chat_text){run->whole.data, run->whole.len - 1, spans, run->spans.n};
    run->whole = (struct textbuf){0};
    return 0;
}

int jinja_render(const struct jinja *program, const json_t *const *vars, size_t nvars, time_t now,
                 struct chat_text *ret, struct err *err)
{
    struct jinja_run run = {.arena.limit = JINJA_MEMORY_MAX, .now = now, .err = err, .line = 1};
    struct jinja_scope globals, own;
    run.out = &run.whole;
    jinja_scope_push(&run, &globals, NULL);
    for (size_t i = 0; i < nvars; i++)
        set_vars(&run, vars[i]);
    jinja_scope_push(&run, &own, &globals);
    jinja_exec(&run, program->list);
    if (!run.code)
        run.code = take(&run, ret);
    textbuf_done(&run.whole);
    free(run.spans.at);
    arena_done(&run.arena);
    return run.code;
}
