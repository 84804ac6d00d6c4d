/* SPDX-License-Identifier: MIT
 *
 * Rows of prompts, conversations and instructions: what text they become and which of it is
 * trained. The tokenizer has a token for every byte, so that a row can be read: trained tokens
 * stand in [ ]. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "train/data.h"

enum { BOS = 1, EOS = 2, FIRST_MERGE = 260, VOCAB = 300 };

struct place {
    char path[64];
    struct tokenizer *tok;
    struct chat_template *tpl;
    struct data_request req;
};

/* Bytes as <0xNN>, a special token each for the begin, the end of a text and the end of a turn, and
 * one merge of two letters, so that a token can lie across a border. */
static struct tokenizer *make_tokenizer(void)
{
    json_t *vocab = json_object(), *added = json_array();
    const char *const special[] = {"<unk>", "<s>", "</s>", "<|end|>"};
    for (int i = 0; i < 4; i++) {
        json_object_set_new(vocab, special[i], json_integer(i));
        json_array_append_new(added, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", i, "content",
                                               special[i], "single_word", 0, "lstrip", 0, "rstrip", 0,
                                               "normalized", 0, "special", 1));
    }
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        json_object_set_new(vocab, name, json_integer(4 + i));
    }
    const char *const merged[] = {"!", "?", "!?"};
    for (int i = 0; i < 3; i++)
        json_object_set_new(vocab, merged[i], json_integer(FIRST_MERGE + i));
    json_t *all = json_pack("{s:o,s:{s:s,s:s,s:b,s:o,s:[[s,s]]},s:{s:s,s:[{s:s},{s:s}]}}", "added_tokens",
                            added, "model", "type", "BPE", "unk_token", "<unk>", "byte_fallback", 1, "vocab",
                            vocab, "merges", "!", "?", "decoder", "type", "Sequence", "decoders", "type",
                            "ByteFallback", "type", "Fuse");
    char *text = json_dumps(all, 0);
    struct tokenizer *tok = NULL;
    struct err err = {""};
    if (!text || tokenizer_parse(&tok, text, strlen(text), &err))
        fail_msg("%s", err.text);
    free(text);
    json_decref(all);
    return tok;
}

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->path, "/tmp/test_talk.XXXXXX");
    int fd = mkstemp(p->path);
    if (fd < 0)
        return -1;
    close(fd);
    p->tok = make_tokenizer();
    p->req = (struct data_request){
        .path = p->path, .split = "train", .tok = p->tok, .seq_len = 1000, .vocab = VOCAB, .eos = EOS};
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    unlink(p->path);
    chat_template_close(p->tpl);
    tokenizer_close(p->tok);
    free(p);
    return 0;
}

static void use_template(struct place *p, const char *text)
{
    struct err err = {""};
    chat_template_close(p->tpl);
    p->tpl = NULL;
    if (chat_template_parse(&p->tpl, text, strlen(text), NULL, &err))
        fail_msg("%s", err.text);
    p->req.tpl = p->tpl;
}

static int open_rows(const struct place *p, const char *rows, struct data **ret, struct err *err)
{
    FILE *f = fopen(p->path, "we");
    fputs(rows, f);
    assert_int_equal(fclose(f), 0);
    return data_open(ret, &p->req, err);
}

/* A row as text, trained tokens in [ ]. */
static char *read_row(const struct place *p, struct data_row row)
{
    char *out = NULL;
    size_t size;
    bool inside = false;
    FILE *f = open_memstream(&out, &size);
    for (size_t t = 0; t < row.n; t++) {
        const bool trained = t > 0 && row.labels[t - 1] != LABEL_NONE;
        if (trained)
            assert_int_equal(row.labels[t - 1], row.ids[t]);
        if (trained != inside)
            fputc(inside ? ']' : '[', f);
        inside = trained;
        char *piece;
        size_t n;
        assert_int_equal(tokenizer_decode(p->tok, &row.ids[t], 1, false, &piece, &n, NULL), 0);
        fputs(piece, f);
        free(piece);
    }
    if (inside)
        fputc(']', f);
    fclose(f);
    return out;
}

static void wants(const struct place *p, const char *row, const char *want)
{
    struct data *data = NULL;
    struct err err = {""};
    if (open_rows(p, row, &data, &err))
        fail_msg("%s: %s", row, err.text);
    char *got = read_row(p, data_row(data, 0));
    if (strcmp(got, want) != 0)
        fail_msg("%s\n gives \"%s\"\nand not \"%s\"", row, got, want);
    free(got);
    data_close(data);
}

static void refuses(const struct place *p, const char *row, const char *part)
{
    struct data *data = NULL;
    struct err err = {""};
    int code = open_rows(p, row, &data, &err);
    if (code >= 0 || !strstr(err.text, part) || !strstr(err.text, ":1: "))
        fail_msg("%s: %d \"%s\" instead of \"%s\"", row, code, err.text, part);
}

/* --- without a template ----------------------------------------------------------------------- */

#define PAIR "{\"prompt\": \"two\", \"completion\": \"three\"}"

static void test_plain(void **state)
{
    struct place *p = *state;
    wants(p, PAIR, "t[wo\nthree</s>]");
    p->req.mask = DATA_MASK_PROMPT;
    wants(p, PAIR, "two\n[three</s>]");
    wants(p, "{\"prompt\": \"two \", \"completion\": \"three\"}", "two [three</s>]");
    wants(p, "{\"prompt\": \"two\", \"completion\": \" three</s>\"}", "two[ three</s>]");
    wants(p, "{\"prompt\": \"two\", \"completion\": \"\"}", "two[</s>]");
    wants(p, "{\"instruction\": \"Do\", \"input\": \"it\", \"output\": \"so\"}",
          "### Instruction:\nDo\n\n### Input:\nit\n\n### Response:\n[so</s>]");
    wants(p, "{\"instruction\": \"Do\", \"input\": \"\", \"output\": \"so\", \"system\": \"Be\"}",
          "Be\n\n### Instruction:\nDo\n\n### Response:\n[so</s>]");
    refuses(p, "{\"text\": \"x\"}", "has only \"text\", without prompts");
    refuses(p, "{\"input_ids\": [1]}", "leave out --mask");
    refuses(p, "{\"prompt\": \"x\", \"completion\": 7}", "\"completion\" must be a string");
    refuses(p, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
            "needs a chat template, and the model has none");
    p->req.tpl_why = "line 3 is strange";
    refuses(p, PAIR, "needs the model's chat template: line 3 is strange");
}

static void test_fields(void **state)
{
    struct place *p = *state;
    p->req.fields = (struct data_fields){.prompt = "q", .completion = "a"};
    wants(p, "{\"text\": \"no\", \"q\": \"x\", \"a\": \"y\"}", "x[\ny</s>]");
    refuses(p, "{\"text\": \"no\", \"prompt\": \"x\", \"a\": \"y\"}",
            "not what --text-field, --prompt-field");
    p->req.fields = (struct data_fields){.text = "prompt"};
    wants(p, PAIR, "t[wo</s>]");
}

/* --- by a template ---------------------------------------------------------------------------- */

#define TURNS                                                                                                \
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<|end|>\n{% endfor %}"                            \
    "{% if add_generation_prompt %}a:{% endif %}"
#define TALK                                                                                                 \
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": "         \
    "\"one\"}, "                                                                                             \
    "{\"role\": \"assistant\", \"content\": \"uno\"}, {\"role\": \"user\", \"content\": \"two\"}, "          \
    "{\"role\": \"assistant\", \"content\": \"due\"}]}"

static void test_turns(void **state)
{
    struct place *p = *state;
    use_template(p, TURNS);
    wants(p, TALK, "s[:S<|end|>\nu:one<|end|>\na:uno<|end|>\nu:two<|end|>\na:due<|end|>\n]");
    p->req.mask = DATA_MASK_PROMPT;
    wants(p, TALK, "s:S<|end|>\nu:one<|end|>\na:uno<|end|>\nu:two<|end|>\na:[due<|end|>\n]");
    wants(p, PAIR, "u:two<|end|>\na:[three<|end|>\n]");
    wants(p, "{\"instruction\": \"Do\", \"input\": \"it\", \"output\": \"so\"}",
          "u:Do\nit<|end|>\na:[so<|end|>\n]");
    wants(p, "{\"instruction\": \"Do\", \"input\": null, \"output\": \"so\"}",
          "u:Do<|end|>\na:[so<|end|>\n]");
    refuses(p, "{\"instruction\": \"Do\", \"input\": [\"it\"], \"output\": \"so\"}",
            "\"input\" must be a string");
    refuses(p, "{\"instruction\": \"Do\", \"input\": \"i\\u0000t\", \"output\": \"so\"}",
            "\"input\" holds the character U+0000");
    refuses(p, "{\"prompt\": \"two\", \"completion\": \"three\", \"system\": {\"a\": 1}}",
            "\"system\" must be a string");
    p->req.mask = DATA_MASK_ASSISTANT;
    wants(p, TALK, "s:S<|end|>\nu:one<|end|>\na:[uno<|end|>]\nu:two<|end|>\na:[due<|end|>]\n");
    /* sharegpt's names, a system of its own, and a turn that is not to be learnt */
    wants(p,
          "{\"conversations\": [{\"from\": \"human\", \"value\": \"one\"}, {\"from\": \"gpt\", \"value\": "
          "\"uno\", \"weight\": 0},"
          " {\"from\": \"human\", \"value\": \"two\"}, {\"from\": \"gpt\", \"value\": \"due\"}], \"system\": "
          "\"S\"}",
          "s:S<|end|>\nu:one<|end|>\na:uno<|end|>\nu:two<|end|>\na:[due<|end|>]\n");
    /* parts, and a conversation that the assistant begins */
    wants(p,
          "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"Hel\"}, "
          "{\"type\": \"text\", "
          "\"value\": \"lo\"}]}, {\"role\": \"user\", \"content\": \"x\"}]}",
          "a:[Hello<|end|>]\nu:x<|end|>\n");
    /* a token that lies across either border belongs to the turn */
    use_template(
        p, "{% for m in messages %}{{ '' if loop.first else '?' }}{{ m.role[0] }}!{{ m.content }}{% endfor %}"
           "{% if add_generation_prompt %}?a!{% endif %}");
    wants(p,
          "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": "
          "\"?y!\"}, "
          "{\"role\": \"user\", \"content\": \"z\"}]}",
          "u!x?a[!?y!?]u!z");
}

/* The last turn is written with thoughts, an earlier one without: what differs is the turn. */
static void test_rewritten(void **state)
{
    struct place *p = *state;
    use_template(p, "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' and loop.last "
                    "%}<think></think>{% endif %}"
                    "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}a:{% endif %}");
    p->req.mask = DATA_MASK_ASSISTANT;
    wants(p, TALK, "s:S<|end|>u:one<|end|>a:[uno<|end|>]u:two<|end|>a:[<think></think>due<|end|>]");
    /* a turn that begins and ends as what is said in its place */
    wants(p,
          "{\"messages\": [{\"role\": \"assistant\", \"content\": \"Zed may dance\"}, {\"role\": \"user\", "
          "\"content\": "
          "\"x\"}, {\"role\": \"assistant\", \"content\": \"Quite another\"}, {\"role\": \"user\", "
          "\"content\": \"x\"}]}",
          "a:[Zed may dance<|end|>]u:x<|end|>a:[Quite another<|end|>]u:x<|end|>");
    /* what the heading of a turn opens by itself is not the assistant's, not even where the earlier
     * turn lacks it */
    use_template(p, "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' and loop.last "
                    "%}<think>{% endif %}"
                    "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}a:<think>{% endif %}");
    wants(p, TALK, "s:S<|end|>u:one<|end|>a:[uno<|end|>]u:two<|end|>a:<think>[due<|end|>]");
    /* a template that accepts nothing but this very conversation */
    use_template(p, "{% if messages | length != 5 or messages[2].content != 'uno' %}{{ "
                    "raise_exception('other') }}{% endif %}x");
    refuses(p, TALK, "the chat template changes turn 3 when other turns follow");
}

static void test_ends(void **state)
{
    struct place *p = *state;
    p->req.mask = DATA_MASK_ASSISTANT;
    /* no special token at all: the text's end teaches the end */
    use_template(p, "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}{% if "
                    "add_generation_prompt %}a:{% endif %}");
    wants(p, TALK, "s:S\nu:one\na:[uno\n]u:two\na:[due\n</s>]");
    p->req.eos = -1;
    wants(p, TALK, "s:S\nu:one\na:[uno\n]u:two\na:[due\n]");
    /* marked by the template itself; the end that stands behind the mark belongs to the turn */
    use_template(p, "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ "
                    "m.content }}{% endgeneration %}"
                    "{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}");
    wants(p, TALK, "s:S<|end|>u:one<|end|>a:[uno<|end|>]u:two<|end|>a:[due<|end|>]");
}

#define CALL(arguments)                                                                                      \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"tool_calls\": "   \
    "[{\"function\": "                                                                                       \
    "{\"name\": \"f\", \"arguments\": " arguments "}}]}, {\"role\": \"tool\", \"content\": \"4\"}, "         \
    "{\"role\": \"assistant\", \"content\": \"y\"}], \"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\"}"

static void test_calls(void **state)
{
    struct place *p = *state;
    static const char head[] = "{% for t in tools %}{{ t.type }} {{ t.function.name }};{% endfor %}{% for m "
                               "in messages %}{{ m.role[0] }}:{{ m.content or '' }}"
                               "{% for c in m.tool_calls or [] %}",
                      tail[] = "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
    static const char *const middle[] = {"{{ c.function.name }}({{ c.function.arguments.items() | list }})",
                                         "{{ c.function.name + c.function.arguments }}"};
    static const char *const want[] = {"function f;u:x<|end|>a:[f([('k', 1)])<|end|>]t:4<|end|>a:[y<|end|>]",
                                       "function f;u:x<|end|>a:[f{\"k\": 1}<|end|>]t:4<|end|>a:[y<|end|>]"};
    p->req.mask = DATA_MASK_ASSISTANT;
    for (size_t i = 0; i < 2; i++) {
        char tpl[600];
        snprintf(tpl, sizeof tpl, "%s%s%s", head, middle[i], tail);
        use_template(p, tpl);
        wants(p, CALL("{\"k\": 1}"), want[i]);
        wants(p, CALL("\"{\\\"k\\\": 1}\""), want[i]);
    }
    wants(p,
          "{\"conversations\": [{\"from\": \"human\", \"value\": \"x\"}, {\"from\": \"function_call\", "
          "\"value\": \"{\\\"name\\\": "
          "\\\"f\\\", \\\"arguments\\\": {\\\"k\\\": 1}}\"}, {\"from\": \"observation\", \"value\": \"4\"}, "
          "{\"from\": \"gpt\", "
          "\"value\": \"y\"}], \"tools\": [{\"name\": \"f\"}]}",
          want[1]);
}

/* --- pairs of answers ------------------------------------------------------------------------- */

/* Both rows of each pair, in the order of the file. */
static void wants_pairs(const struct place *p, const char *rows, size_t n, const char *const *want)
{
    struct data *data = NULL;
    struct data_packs *packs = NULL;
    struct err err = {""};
    if (open_rows(p, rows, &data, &err) || data_packs_new(&packs, data, 0, &err))
        fail_msg("%s: %s", rows, err.text);
    assert_int_equal(data_rows(data), n);
    assert_int_equal(data_packs_count(packs), n / 2);
    assert_int_equal(data_counts(data).kept, n / 2);
    for (size_t i = 0; i < n; i++) {
        size_t together;
        char *got = read_row(p, data_row(data, i));
        if (strcmp(got, want[i]) != 0)
            fail_msg("%s\n gives \"%s\"\nand not \"%s\"", rows, got, want[i]);
        free(got);
        assert_int_equal(data_packs_at(packs, i / 2, &together)[i % 2], i);
        assert_int_equal(together, 2);
    }
    data_packs_free(packs);
    data_close(data);
}

#define SAYS(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define CHOICE(prompt, chosen, rejected)                                                                     \
    "{\"prompt\": " prompt ", \"chosen\": " chosen ", \"rejected\": " rejected "}\n"

static void test_pairs(void **state)
{
    struct place *p = *state;
    static const char three[] = CHOICE("\"q \"", "\"good\"", "\"bad\"")
        CHOICE("\"q \"", "\"longer\"", "\"b\"") CHOICE("\"r \"", "\"a\"", "\"b\"");
    p->req.pairs = true;
    p->req.mask = DATA_MASK_PROMPT;
    wants_pairs(p, three, 6,
                (const char *const[]){"q [good</s>]", "q [bad</s>]", "q [longer</s>]", "q [b</s>]",
                                      "r [a</s>]", "r [b</s>]"});
    p->req.seq_len = 7; /* the second pair's chosen answer has two tokens more */
    wants_pairs(p, three, 6,
                (const char *const[]){"q [good</s>]", "q [bad</s>]", "q [longe]", "q [b</s>]", "r [a</s>]",
                                      "r [b</s>]"});
    p->req.overlong = DATA_DROP; /* with the other answer */
    wants_pairs(p, three, 4, (const char *const[]){"q [good</s>]", "q [bad</s>]", "r [a</s>]", "r [b</s>]"});
    p->req.overlong = DATA_TRUNCATE;
    p->req.seq_len = 5; /* nothing is left of the second pair's answers */
    wants_pairs(p,
                CHOICE("\"q \"", "\"a\"", "\"b\"") CHOICE("\"what a question\"", "\"a\"", "\"b\"")
                    CHOICE("\"r \"", "\"c\"", "\"d\""),
                4, (const char *const[]){"q [a</s>]", "q [b</s>]", "r [c</s>]", "r [d</s>]"});
    p->req.seq_len = 1000;
    refuses(p, "{\"prompt\": \"x\", \"chosen\": \"y\"}", "needs \"chosen\" and \"rejected\"");
    refuses(p, CHOICE("\"x\"", "\"y\"", "7"), "\"rejected\" must be a string");
    refuses(p, "{\"chosen\": \"x y\", \"rejected\": \"x z\"}", "is no answer to a prompt");
    p->req.pairs = false;
    refuses(p, three, "give --loss dpo");
}

static void test_pairs_of_turns(void **state)
{
    struct place *p = *state;
    use_template(p, TURNS);
    p->req.pairs = true;
    p->req.mask = DATA_MASK_PROMPT;
    static const char *const want[] = {"u:x<|end|>\na:[yes<|end|>\n]", "u:x<|end|>\na:[no<|end|>\n]"};
    wants_pairs(p, CHOICE("\"x\"", "\"yes\"", "\"no\""), 2, want);
    wants_pairs(
        p,
        CHOICE("[" SAYS("user", "x") "]", "[" SAYS("assistant", "yes") "]", "[" SAYS("assistant", "no") "]"),
        2, want);
    wants_pairs(p,
                "{\"chosen\": [" SAYS("user", "x") ", " SAYS("assistant", "yes") "], \"rejected\": [" SAYS(
                    "user", "x") ", " SAYS("assistant", "no") "]}",
                2, want);
    wants_pairs(p, /* as a text it is not said twice */
                CHOICE("\"x\"", "[" SAYS("user", "x") ", " SAYS("assistant", "yes") "]",
                       "[" SAYS("user", "x") ", " SAYS("assistant", "no") "]"),
                2, want);
    wants_pairs(p, /* and neither is what the system says */
                "{\"system\": \"s\", \"prompt\": [" SAYS("system", "s") ", " SAYS(
                    "user", "x") "], "
                                 "\"chosen\": \"yes\", \"rejected\": \"no\"}",
                2,
                (const char *const[]){"s:s<|end|>\nu:x<|end|>\na:[yes<|end|>\n]",
                                      "s:s<|end|>\nu:x<|end|>\na:[no<|end|>\n]"});
    wants_pairs(p, /* an answer of several turns is trained from where it begins */
                CHOICE("[" SAYS("user", "x") "]",
                       "[" SAYS("assistant", "a") ", " SAYS("user", "b") ", " SAYS("assistant", "c") "]",
                       "[" SAYS("assistant", "no") "]"),
                2, (const char *const[]){"u:x<|end|>\na:[a<|end|>\nu:b<|end|>\na:c<|end|>\n]", want[1]});
    refuses(p, "{\"chosen\": [" SAYS("user", "x") "], \"rejected\": [" SAYS("user", "y") "]}",
            "is no answer to a prompt");
    refuses(p, CHOICE("[]", "\"a\"", "\"b\""), "\"prompt\" must be a text, or a list of turns");
}

static void test_refusals(void **state)
{
    struct place *p = *state;
    use_template(p, TURNS);
    refuses(p, "{\"messages\": []}", "\"messages\" must be a list of turns");
    refuses(p, "{\"messages\": [{\"content\": \"x\"}]}", "turn 1 has no \"role\"");
    refuses(p, "{\"messages\": [{\"role\": \"user\", \"content\": 7}]}",
            "turn 1: its content must be a text");
    refuses(p, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
            "turn 1 has a part of type \"image\"; only text");
    refuses(p, "{\"conversations\": [{\"from\": \"function_call\", \"value\": \"f(x)\"}]}",
            "turn 1 calls a function, but not as JSON");
    refuses(p, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": \"f\"}",
            "\"tools\" must be a list");
    refuses(p, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [{}]}",
            "entry 0 of \"tools\"");
    use_template(p, "{{ raise_exception('users first') }}");
    refuses(p, TALK, "refuses these messages: users first");
    p->req.tok = NULL;
    refuses(p, TALK, "needs the model's tokenizer.json");
}

#define PLACED(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACED(test_plain),     PLACED(test_fields), PLACED(test_turns),
        PLACED(test_rewritten), PLACED(test_ends),   PLACED(test_calls),
        PLACED(test_refusals),  PLACED(test_pairs),  PLACED(test_pairs_of_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
