/* SPDX-License-Identifier: MIT
 *
 * The normalizers of tokenizer.json as a list of steps. Owned by a tokenizer; parsed when it opens,
 * applied by encode on any thread. */
#include "text/normalizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/nform.h"
#include "text/pattern.h"
#include "text/tok_json.h"
#include "text/utf8.h"

enum step_kind { STEP_FORM, STEP_PREPEND, STEP_REPLACE, STEP_LOWERCASE, STEP_STRIP };

struct normalizer_step {
    enum step_kind kind;
    enum nform form;         /* STEP_FORM */
    struct pattern *pattern; /* STEP_REPLACE; owned */
    struct textbuf content;  /* STEP_PREPEND, STEP_REPLACE */
    bool left, right;        /* STEP_STRIP */
};

static const struct {
    const char *type;
    enum step_kind kind;
    enum nform form;
} kinds[] = {
    {"NFC", STEP_FORM, NFORM_C},
    {"NFD", STEP_FORM, NFORM_D},
    {"NFKC", STEP_FORM, NFORM_KC},
    {"NFKD", STEP_FORM, NFORM_KD},
    {"Prepend", STEP_PREPEND, NFORM_C},
    {"Replace", STEP_REPLACE, NFORM_C},
    {"Lowercase", STEP_LOWERCASE, NFORM_C},
    {"Strip", STEP_STRIP, NFORM_C},
};

static int parse_fields(struct normalizer_step *step, const json_t *json, struct err *err)
{
    const char *text = NULL;
    int r = 0;
    if (step->kind == STEP_PREPEND)
        r = tok_json_string(json, "normalizer Prepend", "prepend", &text, err);
    if (step->kind == STEP_REPLACE) {
        r = tok_json_string(json, "normalizer Replace", "content", &text, err);
        if (r == 0)
            r = pattern_from_json(&step->pattern, json_object_get(json, "pattern"), "normalizer Replace",
                                  err);
    }
    if (step->kind == STEP_STRIP) {
        r = tok_json_bool(json, "normalizer Strip", "strip_left", true, &step->left, err);
        if (r == 0)
            r = tok_json_bool(json, "normalizer Strip", "strip_right", true, &step->right, err);
    }
    if (r == 0 && text)
        textbuf_append(&step->content, text, strlen(text));
    if (r == 0 && step->content.failed)
        r = err_set(err, -ENOMEM, "no memory for the normalizer");
    return r;
}

static int parse_step(void *owner, const char *type, const json_t *json, struct err *err)
{
    struct normalizer *norm = owner;
    size_t k = 0;
    while (k < sizeof kinds / sizeof *kinds && strcmp(type, kinds[k].type) != 0)
        k++;
    if (k == sizeof kinds / sizeof *kinds)
        return err_set(
            err, -ENOTSUP,
            "the normalizer '%.64s' is not supported; use a model whose tokenizer has NFC, NFD, NFKC, NFKD, "
            "Prepend, Replace, Lowercase, Strip or none",
            type);
    void *steps = norm->steps;
    if (array_reserve(&steps, &norm->cap, norm->n + 1, sizeof *norm->steps))
        return err_set(err, -ENOMEM, "no memory for the normalizer");
    norm->steps = steps;
    norm->steps[norm->n] = (struct normalizer_step){.kind = kinds[k].kind, .form = kinds[k].form};
    return parse_fields(&norm->steps[norm->n++], json, err);
}

int normalizer_parse(struct normalizer *norm, const json_t *json, struct err *err)
{
    *norm = (struct normalizer){0};
    return tok_json_each(json, "normalizer", "normalizers", 0, parse_step, norm, err);
}

void normalizer_done(struct normalizer *norm)
{
    for (size_t i = 0; i < norm->n; i++) {
        pattern_free(norm->steps[i].pattern);
        textbuf_done(&norm->steps[i].content);
    }
    free(norm->steps);
    *norm = (struct normalizer){0};
}

static void lowercase(const struct textbuf *in, struct textbuf *out)
{
    for (size_t i = 0; i < in->len;) {
        struct utf8_char c = utf8_next(in->data + i, in->len - i);
        if (c.cp == 0x130) /* İ: the one capital with two characters for its small letter */
            textbuf_append(out, "i\xCC\x87", 3);
        else
            textbuf_append_char(out, (unsigned)utf8proc_tolower((utf8proc_int32_t)c.cp));
        i += c.len;
    }
}

static void strip(const struct normalizer_step *step, const struct textbuf *in, struct textbuf *out)
{
    size_t start = 0, end = in->len;
    while (step->left && start < end) {
        struct utf8_char c = utf8_next(in->data + start, end - start);
        if (!utf8_is_space(c.cp))
            break;
        start += c.len;
    }
    while (step->right && start < end) {
        size_t last = utf8_last(in->data, end);
        if (!utf8_is_space(utf8_next(in->data + last, end - last).cp))
            break;
        end = last;
    }
    textbuf_append(out, in->data + start, end - start);
}

int normalizer_apply(const struct normalizer *norm, struct pattern_scratch *scratch, struct textbuf *text,
                     struct textbuf *spare, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < norm->n && text->len > 0; i++) {
        const struct normalizer_step *step = &norm->steps[i];
        textbuf_clear(spare);
        switch (step->kind) {
        case STEP_FORM: nform_append(spare, text->data, text->len, step->form); break;
        case STEP_PREPEND:
            textbuf_append(spare, step->content.data, step->content.len);
            textbuf_append(spare, text->data, text->len);
            break;
        case STEP_REPLACE:
            r = pattern_replace(step->pattern, scratch, text->data, text->len, &step->content, spare, err);
            break;
        case STEP_LOWERCASE: lowercase(text, spare); break;
        case STEP_STRIP: strip(step, text, spare); break;
        }
        struct textbuf swap = *text;
        *text = *spare;
        *spare = swap;
    }
    if (r == 0 && (text->failed || spare->failed))
        r = err_set(err, -ENOMEM, "no memory to normalize the text");
    return r;
}
