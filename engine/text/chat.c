/* SPDX-License-Identifier: MIT
 *
 * Owns a template and the special tokens it may name; finds both in a model's directory. Called by
 * whoever makes prompts or training rows of conversations, on any thread. */
#include "text/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/model_file.h"
#include "text/jinja/jinja.h"

enum { FILE_MAX = 64 << 20 };

struct chat_template {
    struct jinja *program; /* owned */
    char *source;          /* owned: what the program was made of */
    json_t *tokens;        /* owned: {"bos_token": …, …} */
};

int chat_template_parse(struct chat_template **ret, const char *text, size_t n, const json_t *tokens,
                        struct err *err)
{
    struct chat_template *tpl = calloc(1, sizeof *tpl);
    if (!tpl)
        return err_set(err, -ENOMEM, "no memory for the chat template");
    int r = jinja_parse(&tpl->program, text, n, err);
    tpl->source = r ? NULL : strndup(text, n);
    if (!r && !tpl->source)
        r = err_set(err, -ENOMEM, "no memory for the chat template");
    tpl->tokens = tokens ? json_deep_copy(tokens) : json_object();
    if (r) {
        chat_template_close(tpl);
        return r;
    }
    *ret = tpl;
    return 0;
}

void chat_template_close(struct chat_template *tpl)
{
    if (!tpl)
        return;
    jinja_free(tpl->program);
    free(tpl->source);
    json_decref(tpl->tokens);
    free(tpl);
}

const char *chat_template_source(const struct chat_template *tpl)
{
    return tpl->source;
}

const char *chat_template_token(const struct chat_template *tpl, const char *name)
{
    return json_string_value(json_object_get(tpl->tokens, name));
}

/* --- a model's directory --- */

static int read_object(const char *dir, const char *name, json_t **ret, struct err *err)
{
    char *text;
    size_t n;
    json_error_t where;
    int r = model_file_read(dir, name, FILE_MAX, &text, &n, err);
    if (r)
        return r;
    json_t *json = json_loadb(text, n, 0, &where);
    free(text);
    if (!json)
        return err_set(err, -EINVAL, "%s/%s is damaged: %s, line %d", dir, name, where.text, where.line);
    if (!json_is_object(json)) {
        json_decref(json);
        return err_set(err, -EINVAL, "%s/%s is no JSON object; is it that file?", dir, name);
    }
    *ret = json;
    return 0;
}

/* Special tokens are texts, or objects with the text as "content". */
static json_t *special_tokens(const json_t *config)
{
    json_t *tokens = json_object(), *object = (json_t *)config;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        size_t n = strlen(key);
        json_t *value = json_object_iter_value(at);
        if (n < 6 || strcmp(key + n - 6, "_token") != 0)
            continue;
        if (json_is_object(value))
            value = json_object_get(value, "content");
        if (json_is_string(value))
            json_object_set(tokens, key, value);
    }
    return tokens;
}

/* A text, or [{"name": "default", "template": text}, …]; NULL if there is none. */
static const json_t *find_template(const json_t *config)
{
    const json_t *found = json_object_get(config, "chat_template"), *only = NULL;
    if (!json_is_array(found))
        return found;
    for (size_t i = 0; i < json_array_size(found); i++) {
        const json_t *named = json_array_get(found, i);
        const char *name = json_string_value(json_object_get(named, "name"));
        only = json_object_get(named, "template");
        if (name && !strcmp(name, "default"))
            return only;
    }
    return json_array_size(found) == 1 ? only : NULL;
}

static int parse_json(struct chat_template **ret, const json_t *tpl, const json_t *tokens, const char *where,
                      struct err *err)
{
    if (!json_is_string(tpl))
        return err_set(err, -EINVAL,
                       "%s: \"chat_template\" is neither a text nor a list with one named \"default\"",
                       where);
    int r = chat_template_parse(ret, json_string_value(tpl), json_string_length(tpl), tokens, err);
    return r ? err_prefix(err, r, "the chat template in %s", where) : 0;
}

static int from_config(struct chat_template **ret, const char *dir, const json_t *config,
                       const json_t *tokens, struct err *err)
{
    if (!json_object_get(config, "chat_template") || json_is_null(json_object_get(config, "chat_template")))
        return err_set(
            err, -ENOENT,
            "%s has no chat template: neither chat_template.jinja, nor \"chat_template\" in "
            "chat_template.json or tokenizer_config.json; put the chat_template.jinja of its chat variant "
            "there, or let it continue a plain text (ringctl generate, without --chat)",
            dir);
    char *path = model_file_name(dir, "tokenizer_config.json");
    int r = parse_json(ret, find_template(config), tokens, path ? path : "tokenizer_config.json", err);
    free(path);
    return r;
}

static int from_files(struct chat_template **ret, const char *dir, const json_t *config, const json_t *tokens,
                      struct err *err)
{
    char *text;
    size_t n;
    int r = model_file_read(dir, "chat_template.jinja", FILE_MAX, &text, &n, err);
    if (!r) {
        r = chat_template_parse(ret, text, n, tokens, err);
        free(text);
        return r ? err_prefix(err, r, "%s/chat_template.jinja", dir) : 0;
    }
    if (r != -ENOENT)
        return r;
    json_t *json = NULL;
    r = read_object(dir, "chat_template.json", &json, err);
    if (r == -ENOENT)
        return from_config(ret, dir, config, tokens, err);
    if (!r)
        r = parse_json(ret, find_template(json), tokens, "chat_template.json", err);
    json_decref(json);
    return r;
}

int chat_template_open(struct chat_template **ret, const char *dir, struct err *err)
{
    json_t *config = NULL;
    int r = read_object(dir, "tokenizer_config.json", &config, err);
    if (r && r != -ENOENT)
        return r;
    json_t *tokens = special_tokens(config);
    r = from_files(ret, dir, config, tokens, err);
    json_decref(tokens);
    json_decref(config);
    return r;
}

/* --- rendering --- */

int chat_render(const struct chat_template *tpl, const struct chat_request *req, struct chat_text *ret,
                struct err *err)
{
    json_t *own = json_object();
    json_object_set_new(own, "messages", json_incref((json_t *)req->messages));
    json_object_set_new(own, "tools", req->tools ? json_incref((json_t *)req->tools) : json_null());
    json_object_set_new(own, "documents", json_null());
    json_object_set_new(own, "add_generation_prompt", json_boolean(req->add_generation_prompt));
    const json_t *const vars[] = {tpl->tokens, own, req->extra};
    int r = jinja_render(tpl->program, vars, sizeof vars / sizeof *vars, req->now, ret, err);
    json_decref(own);
    return r ? err_prefix(err, r, "chat template") : 0;
}

void chat_text_done(struct chat_text *text)
{
    free(text->text);
    free(text->spans);
    *text = (struct chat_text){0};
}
