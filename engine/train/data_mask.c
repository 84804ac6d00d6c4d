/* SPDX-License-Identifier: MIT
 *
 * Conversations as tokens, and which of those are trained. Called for each row while a file is
 * read; owns nothing.
 *
 * A template that marks what the assistant says ({% generation %}) has said it. Of any other the
 * turns are found by writing parts of the conversation: what stands before a turn is what a model
 * would be given to continue, and a turn ends where the conversation up to it does. Where a
 * template writes an earlier turn in another way than a last one, the turn is found by writing the
 * whole again with something else in its place: what then differs is the turn. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "train/data_impl.h"

struct text_span {
    size_t start, end;
};

/* One conversation being made a row of. */
struct speech {
    struct data_reader *r;
    struct data_talk *talk;
    struct chat_text whole; /* owned */
    uint32_t *ids;          /* owned */
    size_t n;
    struct text_span *spans; /* owned: [turns], bytes of the whole that are trained */
    size_t nspans;
};

static int render(const struct speech *s, json_t *messages, bool prompt, struct chat_text *ret,
                  struct err *err)
{
    struct chat_request req = {.messages = messages,
                               .tools = s->talk->tools,
                               .add_generation_prompt = prompt,
                               .extra = s->r->req->template_args,
                               .now = s->r->changed};
    return chat_render(s->r->req->tpl, &req, ret, err);
}

/* Some templates take the arguments of a call as an object, some only as text: the first that works
 * is kept to. */
static int render_whole(struct speech *s)
{
    struct data_reader *r = s->r;
    struct err other;
    if (s->talk->has_calls)
        data_talk_arguments(s->talk, r->arguments_as_text);
    int code = render(s, s->talk->messages, false, &s->whole, r->err);
    if (code && s->talk->has_calls && !r->arguments_known) {
        data_talk_arguments(s->talk, true);
        if (!render(s, s->talk->messages, false, &s->whole, &other)) {
            r->arguments_as_text = true;
            code = 0;
        }
    }
    r->arguments_known |= !code && s->talk->has_calls;
    return code ? err_prefix(r->err, code, "%s:%zu", r->path, jsonl_line(r->in)) : 0;
}

/* --- where turns are -------------------------------------------------------------------------- */

static json_t *first_messages(const struct speech *s, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append(list, json_array_get(s->talk->messages, i));
    return list;
}

/* The bytes the first n messages take, if they are written as they are in the whole. */
static bool find_prefix(const struct speech *s, size_t n, bool prompt, size_t *ret_bytes)
{
    struct chat_text text = {0};
    json_t *messages = first_messages(s, n);
    bool found = !render(s, messages, prompt, &text, NULL) && text.n <= s->whole.n &&
                 !memcmp(text.text, s->whole.text, text.n);
    *ret_bytes = text.n;
    chat_text_done(&text);
    json_decref(messages);
    return found;
}

static size_t common_start(const struct chat_text *a, const struct chat_text *b)
{
    size_t n = 0, most = a->n < b->n ? a->n : b->n;
    while (n < most && a->text[n] == b->text[n])
        n++;
    return n;
}

static size_t common_end(const struct chat_text *a, const struct chat_text *b, size_t most)
{
    size_t n = 0;
    while (n < most && a->text[a->n - 1 - n] == b->text[b->n - 1 - n])
        n++;
    return n;
}

/* What changes when turn i says something else. Two other sayings, for one may begin or end as the
 * turn does, or be it. */
static int find_change(const struct speech *s, size_t i, struct text_span *ret)
{
    static const char *const sayings[] = {"Quite another", "Zebras dance"};
    size_t start = s->whole.n, end = start; /* all of it, until a saying shows less */
    for (size_t k = 0; k < 2; k++) {
        struct chat_text text = {0};
        json_t *messages = first_messages(s, json_array_size(s->talk->messages));
        json_array_set_new(messages, i, json_pack("{s:s,s:s}", "role", "assistant", "content", sayings[k]));
        int code = render(s, messages, false, &text, s->r->err);
        json_decref(messages);
        if (code)
            return code;
        if (text.n != s->whole.n || memcmp(text.text, s->whole.text, text.n) != 0) {
            size_t same = common_start(&s->whole, &text);
            start = same < start ? same : start;
            same = common_end(&s->whole, &text, (s->whole.n < text.n ? s->whole.n : text.n) - same);
            end = same < end ? same : end;
        }
        chat_text_done(&text);
    }
    *ret = (struct text_span){start, s->whole.n - end > start ? s->whole.n - end : start};
    return 0;
}

static int find_turn(const struct speech *s, size_t i, struct text_span *ret)
{
    struct text_span change;
    bool has_start = find_prefix(s, i, true, &ret->start), has_end = find_prefix(s, i + 1, false, &ret->end);
    if (has_start && has_end && ret->start <= ret->end)
        return 0;
    int code = find_change(s, i, &change);
    if (code)
        return data_bad(s->r, code,
                        "the chat template changes turn %zu when other turns follow, so the assistant's "
                        "tokens cannot be found; give --mask none, or a template with {%% generation %%}",
                        i + 1);
    if (!has_start || ret->start > change.end)
        ret->start = change.start;
    if (!has_end || ret->end < change.end)
        ret->end = change.end;
    return 0;
}

static bool is_assistant(const struct speech *s, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(s->talk->messages, i), "role"));
    return role && !strcmp(role, "assistant");
}

static int find_assistant(struct speech *s)
{
    const size_t turns = json_array_size(s->talk->messages);
    bool all = true;
    for (size_t i = 0; i < turns; i++)
        all &= json_is_true(json_array_get(s->talk->trained, i));
    if (all && s->whole.nspans) {
        for (size_t i = 0; i < s->whole.nspans; i++)
            s->spans[s->nspans++] = (struct text_span){s->whole.spans[i].start, s->whole.spans[i].end};
        return 0;
    }
    int code = 0;
    for (size_t i = 0; i < turns && !code; i++) {
        if (!is_assistant(s, i) || !json_is_true(json_array_get(s->talk->trained, i)))
            continue;
        code = find_turn(s, i, &s->spans[s->nspans]);
        s->nspans += !code;
    }
    return code;
}

/* The last turn, or all behind what was asked, to the very end of the row. */
static int find_last(struct speech *s)
{
    const size_t last = s->talk->asked ? s->talk->asked : json_array_size(s->talk->messages) - 1;
    struct text_span turn = {0};
    int code = 0;
    if (!find_prefix(s, last, is_assistant(s, last), &turn.start))
        code = find_turn(s, last, &turn);
    s->spans[s->nspans++] = (struct text_span){turn.start, s->whole.n};
    return code;
}

static int find_spans(struct speech *s)
{
    size_t turns = json_array_size(s->talk->messages);
    s->spans = calloc(turns + s->whole.nspans, sizeof *s->spans);
    if (!s->spans)
        return data_no_memory(s->r);
    switch (s->r->req->mask) {
    case DATA_MASK_ASSISTANT: return find_assistant(s);
    case DATA_MASK_PROMPT: return find_last(s);
    default: s->spans[s->nspans++] = (struct text_span){0, s->whole.n}; return 0;
    }
}

/* --- from bytes to tokens --------------------------------------------------------------------- */

/* How many of a row's tokens stand wholly before a byte; *ret_across: whether the next lies on both
 * sides. */
static int tokens_before(const struct data_reader *r, const char *text, size_t byte, bool special,
                         const uint32_t *ids, size_t n, size_t *ret, bool *ret_across)
{
    uint32_t *part;
    size_t nparts, same = 0;
    int code = tokenizer_encode(r->req->tok, text, byte, special, &part, &nparts, r->err);
    if (code)
        return code;
    while (same < nparts && same < n && part[same] == ids[same])
        same++;
    *ret = same;
    *ret_across = same < nparts && same < n;
    free(part);
    return 0;
}

static bool is_blank(const struct tokenizer *tok, uint32_t id)
{
    char *text;
    size_t n;
    if (tokenizer_is_special(tok, id) || tokenizer_decode(tok, &id, 1, false, &text, &n, NULL))
        return false;
    bool blank = strspn(text, " \t\r\n") == n;
    free(text);
    return blank;
}

/* The end of a turn is its end token: what is written between that and the next turn is nobody's,
 * and an end token that the turn lacks is the next there is. */
static size_t turn_end(const struct speech *s, size_t start, size_t end)
{
    const struct tokenizer *tok = s->r->req->tok;
    size_t last = end;
    while (last > start && is_blank(tok, s->ids[last - 1]))
        last--;
    if (last > start && tokenizer_is_special(tok, s->ids[last - 1]))
        return last;
    for (last = end; last < s->n && is_blank(tok, s->ids[last]);)
        last++;
    return last < s->n && tokenizer_is_special(tok, s->ids[last]) ? last + 1 : end;
}

static int mark_span(struct speech *s, struct text_span span)
{
    struct data_reader *r = s->r;
    size_t start = 0, end = s->n;
    bool across = false;
    int code =
        span.start ? tokens_before(r, s->whole.text, span.start, false, s->ids, s->n, &start, &across) : 0;
    if (!code && span.end < s->whole.n) {
        code = tokens_before(r, s->whole.text, span.end, false, s->ids, s->n, &end, &across);
        end += across;
    }
    if (code)
        return code;
    if (r->req->mask == DATA_MASK_ASSISTANT && end > start)
        end = turn_end(s, start, end);
    for (size_t t = start; t < end; t++)
        r->labels[t] = (int32_t)s->ids[t];
    return 0;
}

/* A row that ends with what the assistant said, and no special token behind it, would never teach
 * to stop. */
static bool lacks_end(const struct speech *s)
{
    size_t last = s->n;
    if (s->r->req->eos < 0 || !is_assistant(s, json_array_size(s->talk->messages) - 1))
        return false;
    while (last > 0 && is_blank(s->r->req->tok, s->ids[last - 1]))
        last--;
    return last == 0 || !tokenizer_is_special(s->r->req->tok, s->ids[last - 1]);
}

static int mark(struct speech *s)
{
    struct data_reader *r = s->r;
    const bool append = lacks_end(s);
    int code = data_make_room(r, s->n + 1);
    for (size_t t = 0; t < s->n && !code; t++) {
        r->ids[t] = s->ids[t];
        r->labels[t] = LABEL_NONE;
    }
    for (size_t i = 0; i < s->nspans && !code; i++)
        code = mark_span(s, s->spans[i]);
    if (code || !append)
        return code;
    /* It is trained if the token before it is, so that a turn that is not learnt does not teach to
     * stop either. */
    r->ids[s->n] = (uint32_t)r->req->eos;
    r->labels[s->n] = s->n && r->labels[s->n - 1] == LABEL_NONE ? LABEL_NONE : r->req->eos;
    s->n++;
    return 0;
}

static int check_means(const struct data_reader *r)
{
    if (!r->req->tok)
        return data_bad(r, -EINVAL, "\"%s\" needs the model's tokenizer.json; add it or give \"input_ids\"",
                        r->key);
    if (r->req->tpl)
        return 0;
    if (r->req->tpl_why)
        return data_bad(r, -EINVAL, "\"%s\" needs the model's chat template: %s", r->key, r->req->tpl_why);
    return data_bad(
        r, -EINVAL,
        "\"%s\" needs a chat template, and the model has none: put the chat_template.jinja of its chat "
        "variant into its directory, or give \"prompt\" and \"completion\"",
        r->key);
}

int data_add_talk(struct data_reader *r, struct data_talk *talk)
{
    struct speech s = {.r = r, .talk = talk};
    int code = check_means(r);
    if (!code)
        code = render_whole(&s);
    if (!code) /* the template has written what a post-processor would add */
        code = tokenizer_encode(r->req->tok, s.whole.text, s.whole.n, false, &s.ids, &s.n, r->err);
    if (!code)
        code = find_spans(&s);
    if (!code)
        code = mark(&s);
    if (!code)
        code = data_check_encoded(r, r->ids, s.n);
    if (!code)
        code = data_add_row(r, r->ids, r->labels, s.n);
    chat_text_done(&s.whole);
    free(s.spans);
    free(s.ids);
    return code;
}

/* --- texts ------------------------------------------------------------------------------------ */

int data_check_encoded(const struct data_reader *r, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= r->req->vocab)
            return data_bad(
                r, -ERANGE,
                "the tokenizer gives id %u, but the model knows 0 to %zu; they do not belong together",
                ids[i], r->req->vocab - 1);
    }
    return 0;
}

static int encode_plain(struct data_reader *r, const char *text, size_t n, size_t trained, size_t *ret_n)
{
    uint32_t *ids;
    size_t count, first = 0;
    bool across;
    int code = tokenizer_encode(r->req->tok, text, n, true, &ids, &count, r->err);
    if (code)
        return err_prefix(r->err, code, "%s:%zu", r->path, jsonl_line(r->in));
    code = data_make_room(r, count + 1);
    if (!code && trained)
        code = tokens_before(r, text, trained, true, ids, count, &first, &across);
    for (size_t t = 0; t < count && !code; t++) {
        r->ids[t] = ids[t];
        r->labels[t] = t < first ? LABEL_NONE : (int32_t)ids[t];
    }
    free(ids);
    *ret_n = count;
    return code;
}

int data_add_plain(struct data_reader *r, const char *text, size_t n, size_t trained)
{
    const int32_t eos = r->req->eos;
    size_t count = 0;
    if (!r->req->tok)
        return check_means(r);
    int code = encode_plain(r, text, n, trained, &count);
    if (code)
        return code;
    if (eos >= 0 && (count == 0 || r->ids[count - 1] != (uint32_t)eos)) {
        r->ids[count] = (uint32_t)eos;
        r->labels[count++] = eos;
    }
    code = data_check_encoded(r, r->ids, count);
    return code ? code : data_add_row(r, r->ids, r->labels, count);
}
