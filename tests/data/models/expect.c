/* SPDX-License-Identifier: MIT
 *
 * What a second implementation (tests/lib/reference.c, f64) writes after some prompts with one of
 * the test models: an expected.json on standard output. usage: expect MODEL-DIR */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/config.h"
#include "tests/lib/reference.h"
#include "text/tokenizer.h"

enum { NEW_TOKENS = 40, MOST = 128 };

static const char *const prompts[] = {
    "",
    "In the beginning",
    "And it came to pass",
    "The LORD said unto Moses",
    "Once upon a time",
    "Be strong and of a good courage",
};

static const char verse[] =
    "And God said, Let there be light: and there was light. And God saw the light, that it was good: and God "
    "divided the light from the darkness.";

/* The likeliest next token, and how far the second one is behind it. */
static uint32_t next_token(const double *logits, size_t vocab, double *ret_margin)
{
    size_t best = 0, second = 1;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) {
            second = best;
            best = i;
        } else if (i == 1 || logits[i] > logits[second]) {
            second = i;
        }
    *ret_margin = logits[best] - logits[second];
    return (uint32_t)best;
}

static bool ends(const struct config *c, uint32_t id)
{
    for (size_t i = 0; i < c->neos; i++)
        if ((uint32_t)c->eos[i] == id)
            return true;
    return false;
}

static json_t *continue_ids(const char *dir, const struct config *c, uint32_t *ids, size_t n)
{
    json_t *before = json_array(), *after = json_array();
    double least = 1e9;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(before, json_integer(ids[i]));
    for (size_t i = 0; i < NEW_TOKENS && n < MOST; i++) {
        double margin, *logits = reference_logits(dir, c, ids, n);
        ids[n] = next_token(logits + (n - 1) * c->vocab, c->vocab, &margin);
        free(logits);
        json_array_append_new(after, json_integer(ids[n]));
        least = margin < least ? margin : least;
        if (ends(c, ids[n++]))
            break;
    }
    return json_pack("{s:o,s:o,s:f}", "ids", before, "greedy_new_ids", after, "min_margin", least);
}

static json_t *continue_prompt(const char *dir, const struct config *c, const struct tokenizer *tok,
                               const char *prompt)
{
    uint32_t ids[MOST], *given;
    size_t n, before, len;
    char *text;
    struct err err;
    if (tokenizer_encode(tok, prompt, strlen(prompt), true, &given, &n, &err)) {
        fprintf(stderr, "expect: %s\n", err.text);
        exit(1);
    }
    memcpy(ids, given, n * sizeof *ids);
    free(given);
    before = n;
    json_t *said = continue_ids(dir, c, ids, n);
    n += json_array_size(json_object_get(said, "greedy_new_ids"));
    json_object_set_new(said, "prompt", json_string(prompt));
    if (!tokenizer_decode(tok, ids, n, true, &text, &len, &err)) {
        json_object_set_new(said, "text", json_stringn(text, len));
        free(text);
    }
    fprintf(stderr, "%zu + %zu tokens, margin %g\n", before, n - before,
            json_real_value(json_object_get(said, "min_margin")));
    return said;
}

/* The mean loss of a text over all of its tokens but the first. */
static json_t *score(const char *dir, const struct config *c, const struct tokenizer *tok, const char *text)
{
    uint32_t *ids;
    size_t n;
    double sum = 0;
    if (tokenizer_encode(tok, text, strlen(text), true, &ids, &n, NULL) || n < 2)
        return json_null();
    double *logits = reference_logits(dir, c, ids, n);
    for (size_t t = 0; t + 1 < n; t++) {
        const double *row = logits + t * c->vocab;
        double most = row[0], total = 0;
        for (size_t i = 1; i < c->vocab; i++)
            most = row[i] > most ? row[i] : most;
        for (size_t i = 0; i < c->vocab; i++)
            total += exp(row[i] - most);
        sum += most + log(total) - row[ids[t + 1]];
    }
    free(logits);
    free(ids);
    return json_pack("{s:s,s:I,s:f}", "text", text, "tokens", (json_int_t)(n - 1), "mean_nll",
                     sum / (double)(n - 1));
}

int main(int argc, char **argv)
{
    struct config c;
    struct tokenizer *tok;
    struct err err = {""};
    if (argc != 2) {
        fprintf(stderr, "usage: expect MODEL-DIR\n");
        return 2;
    }
    if (config_read(&c, argv[1], &err) < 0 || tokenizer_open(&tok, argv[1], &err) < 0) {
        fprintf(stderr, "expect: %s\n", err.text);
        return 1;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
        json_array_append_new(list, continue_prompt(argv[1], &c, tok, prompts[i]));
    json_t *whole = json_pack("{s:o,s:o}", "prompts", list, "score", score(argv[1], &c, tok, verse));
    json_dumpf(whole, stdout, JSON_INDENT(1));
    puts("");
    json_decref(whole);
    tokenizer_close(tok);
    return 0;
}
