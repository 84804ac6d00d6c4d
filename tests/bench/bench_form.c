/* SPDX-License-Identifier: MIT
 *
 * `bench_form NAME TOKENIZER`: what it costs to hold an answer in a form, with the vocabulary of a
 * model's tokenizer: a mask where an answer comes for the first time, and where one of the same
 * form was before. Both are held against one look at the logits of all tokens, which each choice
 * of a token takes. */
#include "tests/bench/bench.h"

#include <math.h>

#include "text/form/form_match.h"
#include "text/tokenizer.h"

enum { REPEATS = 7, LOOKS = 20 };

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},\"code\":{\"type\":\"string\",\"pattern\":"
    "\"^[A-Z]{3}-\\\\d+$\"},\"note\":{\"type\":\"string\",\"maxLength\":200}},\"required\":[\"name\",\"age\","
    "\"tags\",\"code\"],\"additionalProperties\":false}";

/* Where in an answer. */
static const struct {
    const char *what, *text, *more; /* more: a byte behind it, after which there is another mask */
} places[] = {
    {"any object, in a string", NULL, NULL},
    {"schema, at its beginning", "", NULL},
    {"schema, in a string", "{\"name\":\"Anna", NULL},
    {"schema, in a number", "{\"name\":\"Anna\",\"age\":4", NULL},
    {"schema, in a string of an array", "{\"name\":\"Anna\",\"age\":4,\"tags\":[\"x\",\"y", NULL},
    {"schema, in a pattern", "{\"name\":\"Anna\",\"age\":4,\"tags\":[],\"code\":\"A", NULL},
    {"schema, in a string with a maxLength",
     "{\"name\":\"Anna\",\"age\":4,\"tags\":[],\"code\":\"ABC-1\",\"note\":\"Some", "t"},
};

static double look_at(const float *logits, size_t vocab)
{
    const double begin = bench_now();
    float most = -INFINITY;
    for (int i = 0; i < LOOKS; i++) {
        for (size_t k = 0; k < vocab; k++)
            most = logits[k] > most ? logits[k] : most;
        __asm__ volatile("" : "+x"(most) : : "memory");
    }
    return (bench_now() - begin) / LOOKS * 1e6;
}

static double mask_us(struct form_match *m, form_state at, int times)
{
    struct err err = {""};
    const uint64_t *mask;
    const double begin = bench_now();
    for (int i = 0; i < times; i++)
        bench_must(form_match_mask(m, at, &mask, &err), &err);
    return (bench_now() - begin) / times * 1e6;
}

static void measure(const char *name, size_t place, const struct form *form, const struct form_tokens *tokens,
                    const float *logits)
{
    const char *text = places[place].text ? places[place].text : "{\"name\":\"Anna";
    struct bench_series cold = {.n = REPEATS}, next = {.n = REPEATS}, warm = {.n = REPEATS};
    char what[80];
    for (int i = 0; i < REPEATS; i++) {
        struct form_match *m;
        struct err err = {""};
        form_state at, behind;
        bench_must(form_match_new(&m, form, tokens, &err), &err);
        bench_must(form_match_bytes(m, form_match_start(m), text, strlen(text), &at, &err), &err);
        cold.limit[i] = look_at(logits, form_tokens_vocab(tokens));
        cold.figure[i] = mask_us(m, at, 1);
        warm.limit[i] = next.limit[i] = cold.limit[i];
        if (places[place].more) {
            bench_must(form_match_bytes(m, at, places[place].more, 1, &behind, &err), &err);
            next.figure[i] = mask_us(m, behind, 1);
        }
        warm.figure[i] = mask_us(m, at, 1000);
        form_match_free(m);
    }
    snprintf(what, sizeof what, "%s, %s", name, places[place].what);
    bench_print(&(struct bench_row){what, "us", "a look at the logits", "us", 1, 0}, &cold);
    if (places[place].more) {
        snprintf(what, sizeof what, "%s, a byte further", name);
        bench_print(&(struct bench_row){what, "us", "a look at the logits", "us", 1, 0}, &next);
    }
    snprintf(what, sizeof what, "%s, again", name);
    bench_print(&(struct bench_row){what, "us", "a look at the logits", "us", 1, 0}, &warm);
}

int main(int argc, char **argv)
{
    struct tokenizer *tok;
    struct form_tokens *tokens;
    struct form *object, *person;
    struct err err = {""};
    uint32_t vocab = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: bench_form NAME TOKENIZER\n");
        return 2;
    }
    bench_must(tokenizer_open(&tok, argv[2], &err), &err);
    while (tokenizer_has(tok, vocab))
        vocab++;
    json_t *json = json_loads(schema, 0, NULL);
    bench_must(form_tokens_of(&tokens, tok, vocab, NULL, 0, &err), &err);
    bench_must(form_of_json_object(&object, &err), &err);
    bench_must(form_of_schema(&person, json, &err), &err);
    float *logits = bench_alloc(vocab * sizeof *logits);
    for (uint32_t i = 0; i < vocab; i++)
        logits[i] = (float)(i % 1000);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        measure(argv[1], i, places[i].text ? person : object, tokens, logits);
    free(logits);
    json_decref(json);
    form_free(object);
    form_free(person);
    form_tokens_free(tokens);
    tokenizer_close(tok);
    return 0;
}
