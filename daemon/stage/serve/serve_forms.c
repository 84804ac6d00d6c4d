/* SPDX-License-Identifier: MIT */
#include "daemon/stage/serve/serve_forms.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/sample.h"

enum { FORMS_KEPT = 16, VALUES_MAX = 128 };

/* --- making ----------------------------------------------------------------------------------- */

static int of_values(struct form **ret, const json_t *list, struct err *err)
{
    const size_t n = json_array_size(list);
    if (!n || n > VALUES_MAX)
        return err_set(err, -EINVAL, "a form may be one of 1 to %d values, and %zu are given", VALUES_MAX, n);
    struct form_value *values = calloc(n, sizeof *values);
    if (!values)
        return err_set(err, -ENOMEM, "no memory for the form of an answer");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        values[i] =
            (struct form_value){json_object_get(v, "schema"), json_string_value(json_object_get(v, "before")),
                                json_string_value(json_object_get(v, "after"))};
    }
    const int r = form_of_schemas(ret, values, n, err);
    free(values);
    return r;
}

static int form_of(struct form **ret, const json_t *how, struct err *err)
{
    const json_t *values = json_object_get(how, "values"), *grammar = json_object_get(how, "grammar");
    if (values)
        return of_values(ret, values, err);
    if (json_is_string(grammar))
        return form_of_grammar(ret, json_string_value(grammar), json_string_length(grammar), err);
    return json_is_true(json_object_get(how, "json"))
               ? form_of_json_object(ret, err)
               : err_set(err, -EINVAL, "the form of the answer is of no kind that this version knows");
}

static void form_let_go(struct serve_form *f)
{
    form_match_free(f->match);
    form_free(f->form);
    free(f->unended);
    free(f->key);
    free(f);
}

static uint64_t *unended_of(const struct serve_forms *all)
{
    uint64_t *mask = calloc(sample_words(all->vocab), sizeof *mask);
    for (size_t id = 0; mask && id < all->vocab; id++)
        mask[id / 64] |= UINT64_C(1) << id % 64;
    for (size_t i = 0; mask && i < all->nends; i++)
        mask[all->ends[i] / 64] &= ~(UINT64_C(1) << all->ends[i] % 64);
    return mask;
}

static int make(struct serve_form **ret, struct serve_forms *all, const json_t *how, struct err *err)
{
    struct serve_form *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(err, -ENOMEM, "no memory for the form of an answer");
    f->words = sample_words(all->vocab);
    f->unended = unended_of(all);
    int r = f->unended ? 0 : err_set(err, -ENOMEM, "no memory for the form of an answer");
    if (!r && !all->tok)
        r = err_set(err, -EINVAL, "the model has no tokenizer.json, so its answers can have no form");
    if (!r && !all->tokens)
        r = form_tokens_of(&all->tokens, all->tok, all->vocab, all->ends, all->nends, err);
    r = r ? r : form_of(&f->form, how, err);
    r = r ? r : form_match_new(&f->match, f->form, all->tokens, err);
    if (r)
        form_let_go(f);
    else
        *ret = f;
    return r;
}

/* Those that nobody uses, behind the first ones. */
static void forget(struct serve_forms *all)
{
    size_t n = 0;
    for (struct serve_form **at = &all->forms, *f; (f = *at);) {
        if (++n <= FORMS_KEPT || f->users) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        form_let_go(f);
    }
}

int serve_form_take(struct serve_form **ret, struct serve_forms *all, const json_t *how, struct err *err)
{
    char *key = json_dumps(how, JSON_COMPACT);
    struct serve_form **at = &all->forms, *f;
    if (!key)
        return err_set(err, -ENOMEM, "no memory for the form of an answer");
    while (*at && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    f = *at;
    if (f) {
        *at = f->next;
        free(key);
    } else {
        const int r = make(&f, all, how, err);
        if (r) {
            free(key);
            return r;
        }
        f->key = key;
    }
    f->users++;
    f->next = all->forms;
    all->forms = f;
    forget(all);
    *ret = f;
    return 0;
}

void serve_form_drop(struct serve_form *form)
{
    if (form)
        form->users--;
}

void serve_forms_done(struct serve_forms *all)
{
    while (all->forms) {
        struct serve_form *next = all->forms->next;
        form_let_go(all->forms);
        all->forms = next;
    }
    form_tokens_free(all->tokens);
    free(all->ends);
    *all = (struct serve_forms){0};
}

/* --- following -------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *what)
{
    size_t n = strlen(text);
    const size_t k = strlen(what);
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    return n >= k && !memcmp(text + n - k, what, k);
}

void form_at_begin(struct form_at *at, struct serve_form *form, const json_t *how, const char *tail)
{
    const char *opens = json_string_value(json_object_get(how, "opens")),
               *closes = json_string_value(json_object_get(how, "closes"));
    *at = (struct form_at){.form = form, .closes = closes, .state = form_match_start(form->match)};
    at->is_free = opens && closes && *opens && *closes && strlen(closes) <= FORM_CLOSES_MAX && tail &&
                  ends_with(tail, opens);
}

void form_at_done(struct form_at *at)
{
    if (at->form)
        form_match_drop(at->form->match, at->state);
    *at = (struct form_at){0};
}

struct form_at form_at_copy(const struct form_at *at)
{
    if (at->form)
        form_match_keep(at->form->match, at->state);
    return *at;
}

/* The text behind what closes; NULL: that was not said yet. */
static const char *hear(struct form_at *at, const char *text, const char *end)
{
    const size_t k = strlen(at->closes);
    for (; text < end; text++) {
        const size_t n = strlen(at->heard);
        if (n == k)
            memmove(at->heard, at->heard + 1, k);
        at->heard[n == k ? k - 1 : n] = *text;
        if (!strcmp(at->heard, at->closes))
            return text + 1;
    }
    return NULL;
}

static int go_on(struct form_at *at, form_state next)
{
    form_match_drop(at->form->match, at->state);
    at->state = next;
    return 0;
}

int form_at_token(struct form_at *at, uint32_t token, const char *text, size_t n, struct err *err)
{
    form_state next;
    if (!at->form)
        return 0;
    if (at->is_free) {
        const char *rest = hear(at, text, text + n), *end = text + n;
        if (!rest)
            return 0;
        at->is_free = false;
        while (rest < end && strchr(" \t\r\n", *rest))
            rest++;
        const int r = form_match_bytes(at->form->match, at->state, rest, (size_t)(end - rest), &next, err);
        return r ? r : go_on(at, next);
    }
    const int r = form_match_token(at->form->match, at->state, token, &next, err);
    return r ? r : go_on(at, next);
}

bool form_at_is_over(const struct form_at *at)
{
    const uint64_t *mask;
    struct err quiet;
    if (!at->form || at->is_free || !form_match_may_end(at->form->match, at->state))
        return false;
    const int r = form_match_mask(at->form->match, at->state, &mask, &quiet);
    for (size_t i = 0; !r && i < at->form->words; i++)
        if (mask[i] & at->form->unended[i])
            return false;
    return !r || r == -ENOENT;
}

int form_at_mask(const struct form_at *at, const uint64_t **ret, struct err *err)
{
    *ret = at->form ? at->form->unended : NULL;
    return at->form && !at->is_free ? form_match_mask(at->form->match, at->state, ret, err) : 0;
}
