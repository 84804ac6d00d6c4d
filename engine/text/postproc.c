/* SPDX-License-Identifier: MIT
 *
 * Templates for single texts, reduced to two lists of ids. Owned by a tokenizer; parsed when it
 * opens. */
#include "text/postproc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_json.h"

/* The ids of a template's special token, by its name. */
static int add_special(struct idbuf *ids, const json_t *specials, const json_t *item, struct err *err)
{
    const char *name;
    int r = tok_json_string(item, "post_processor TemplateProcessing", "id", &name, err);
    if (r)
        return r;
    const json_t *list = json_object_get(json_object_get(specials, name), "ids");
    if (!json_is_array(list))
        return err_set(err, -EINVAL,
                       "post_processor TemplateProcessing: \"special_tokens\" has no ids for '%.64s'", name);
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        uint32_t id;
        r = tok_json_id(json_array_get(list, i), "post_processor TemplateProcessing", &id, err);
        if (r == 0)
            r = idbuf_add(ids, id, err);
    }
    return r;
}

/* A later processor of a Sequence wraps what the earlier ones made. */
static int wrap(struct postproc *post, struct idbuf *before, const struct idbuf *behind, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < post->before.n; i++)
        r = idbuf_add(before, post->before.at[i], err);
    for (size_t i = 0; r == 0 && i < behind->n; i++)
        r = idbuf_add(&post->behind, behind->at[i], err);
    struct idbuf swap = post->before;
    post->before = *before;
    *before = swap;
    return r;
}

static int parse_template(struct postproc *post, const json_t *json, struct err *err)
{
    const json_t *single = json_object_get(json, "single"),
                 *specials = json_object_get(json, "special_tokens");
    struct idbuf before = {0}, behind = {0};
    size_t texts = 0;
    int r = 0;
    for (size_t i = 0; r == 0 && i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken"),
                     *text = json_object_get(item, "Sequence");
        const char *name = json_string_value(json_object_get(text, "id"));
        if (special)
            r = add_special(texts ? &behind : &before, specials, special, err);
        else if (name && strcmp(name, "A") == 0)
            texts++;
        else
            r = err_set(err, -EINVAL,
                        "post_processor TemplateProcessing: \"single\" may hold SpecialToken and Sequence A");
    }
    if (r == 0 && texts != 1)
        r = err_set(err, -EINVAL, "post_processor TemplateProcessing: \"single\" must hold Sequence A once");
    if (r == 0)
        r = wrap(post, &before, &behind, err);
    free(before.at);
    free(behind.at);
    return r;
}

static int parse_one(void *owner, const char *type, const json_t *json, struct err *err)
{
    if (strcmp(type, "ByteLevel") == 0) /* moves offsets only */
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return parse_template(owner, json, err);
    return err_set(
        err, -ENOTSUP,
        "the post_processor '%.64s' is not supported; use a model whose tokenizer has TemplateProcessing, "
        "ByteLevel, a Sequence of them, or none",
        type);
}

int postproc_parse(struct postproc *post, const json_t *json, struct err *err)
{
    *post = (struct postproc){0};
    return tok_json_each(json, "post_processor", "processors", 0, parse_one, post, err);
}

void postproc_done(struct postproc *post)
{
    free(post->before.at);
    free(post->behind.at);
    *post = (struct postproc){0};
}
