/* SPDX-License-Identifier: MIT
 *
 * Applying pre-tokenizers. Every component of tokenizer.json has become one to three plain steps
 * (pretok_parse.c): cut at a pattern, or rewrite each word. Called by encode on any thread. */
#include "text/pretok.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/bytelevel.h"
#include "text/pattern.h"
#include "text/pretok_step.h"

/* The span [start, end) of a word, added as `step` says. `cut` is the state of one word. */
struct pretok_cut {
    size_t first_out;  /* index of the word's first piece in the output */
    bool matched_last; /* the span before was a match */
    bool any;
};

static void add_span(const struct pretok_step *step, struct pieces *out, struct pretok_cut *cut,
                     struct piece span, bool match)
{
    struct piece *last = cut->any && out->n > cut->first_out ? &out->at[out->n - 1] : NULL;
    bool join = false;
    switch (step->behaviour) {
    case SPLIT_REMOVED:
        if (match)
            return;
        break;
    case SPLIT_ISOLATED: break;
    case SPLIT_CONTIGUOUS: join = match == cut->matched_last; break;
    case SPLIT_WITH_PREVIOUS: join = match && !cut->matched_last; break;
    case SPLIT_WITH_NEXT: join = !match && cut->matched_last; break;
    }
    cut->matched_last = match;
    cut->any = true;
    if (last && join)
        last->len += span.len;
    else
        pieces_add(out, span.start, span.len, span.at_start);
}

/* Cuts one word of in->text; offsets stay offsets into that text. */
static int split_word(const struct pretok_step *step, struct pattern_scratch *scratch,
                      const struct pieces *in, struct piece word, struct pieces *out, struct err *err)
{
    const char *s = in->text.data + word.start;
    struct pretok_cut cut = {.first_out = out->n};
    struct pattern_walk walk = PATTERN_WALK;
    struct pattern_hit hit;
    size_t done = 0;
    int r;
    while ((r = pattern_next(step->pattern, scratch, s, word.len, &walk, &hit, err)) > 0) {
        if (hit.start > done)
            add_span(step, out, &cut,
                     (struct piece){word.start + done, hit.start - done, word.at_start && !done},
                     step->invert);
        if (hit.end > hit.start)
            add_span(step, out, &cut,
                     (struct piece){word.start + hit.start, hit.end - hit.start, word.at_start && !hit.start},
                     !step->invert);
        done = hit.end;
    }
    if (r == 0 && done < word.len)
        add_span(step, out, &cut, (struct piece){word.start + done, word.len - done, word.at_start && !done},
                 step->invert);
    return r;
}

static bool begins_with(const char *s, size_t n, const struct textbuf *start)
{
    return n >= start->len && memcmp(s, start->data, start->len) == 0;
}

/* Spaces become the mark, and the word begins with one if the scheme says so. */
static int mark_word(const struct pretok_step *step, struct pattern_scratch *scratch, const char *s, size_t n,
                     bool at_start, struct pieces *out, struct err *err)
{
    size_t start = out->text.len;
    bool wanted = step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && at_start);
    bool has = s[0] == ' ' || begins_with(s, n, &step->mark);
    if (wanted && !has)
        textbuf_append(&out->text, step->mark.data, step->mark.len);
    int r = pattern_replace(step->pattern, scratch, s, n, &step->mark, &out->text, err);
    pieces_add(out, start, out->text.len - start, at_start);
    return r;
}

static int rewrite_word(const struct pretok_step *step, struct pattern_scratch *scratch, const char *s,
                        size_t n, bool at_start, struct pieces *out, struct err *err)
{
    size_t start = out->text.len;
    switch (step->kind) {
    case PRETOK_SPACE_FIRST:
        if (s[0] != ' ')
            textbuf_append(&out->text, " ", 1);
        textbuf_append(&out->text, s, n);
        break;
    case PRETOK_BYTES: bytelevel_encode(&out->text, s, n); break;
    case PRETOK_MARK: return mark_word(step, scratch, s, n, at_start, out, err);
    case PRETOK_SPLIT: return 0; /* pretok_apply() has split it */
    }
    pieces_add(out, start, out->text.len - start, at_start);
    return 0;
}

static int apply_step(const struct pretok_step *step, struct pattern_scratch *scratch, struct pieces *words,
                      struct pieces *spare, struct err *err)
{
    int r = 0;
    pieces_clear(spare);
    for (size_t i = 0; r == 0 && i < words->n; i++) {
        struct piece w = words->at[i];
        if (w.len == 0)
            continue;
        if (step->kind == PRETOK_SPLIT)
            r = split_word(step, scratch, words, w, spare, err);
        else
            r = rewrite_word(step, scratch, words->text.data + w.start, w.len, w.at_start, spare, err);
    }
    if (step->kind == PRETOK_SPLIT) { /* new spans, same text */
        struct textbuf text = spare->text;
        spare->text = words->text;
        words->text = text;
    }
    pieces_swap(words, spare);
    return r;
}

int pretok_apply(const struct pretok *pre, struct pattern_scratch *scratch, struct pieces *words,
                 struct pieces *spare, struct err *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < pre->n; i++)
        r = apply_step(&pre->steps[i], scratch, words, spare, err);
    if (r == 0 && (words->text.failed || spare->text.failed))
        r = err_set(err, -ENOMEM, "no memory to split the text into words");
    return r;
}

void pretok_done(struct pretok *pre)
{
    for (size_t i = 0; i < pre->n; i++) {
        pattern_free(pre->steps[i].pattern);
        textbuf_done(&pre->steps[i].mark);
    }
    free(pre->steps);
    *pre = (struct pretok){0};
}
