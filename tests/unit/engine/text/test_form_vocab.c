/* SPDX-License-Identifier: MIT
 *
 * The bytes of a tokenizer's tokens: whatever it makes of a text, the tokens fit a form that is
 * that text alone. Of every tokenizer in tests/data/tokenizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <unistd.h>

#include "tests/unit/engine/text/form_world.h"
#include "text/tokenizer.h"

/* One line of letters, signs and characters that take two tokens or more each. */
static const char line[] =
    "{\"name\": \"Zo\xc3\xab \xf0\x9f\xa6\x99 \xe2\x82\xac\", \"n\": [1, 20, -3.5e7],  \"x\": null}";

static struct form *form_of_line(void)
{
    char text[1000] = "root ::= \" \"? \""; /* some tokenizers begin every text with a space */
    size_t n = strlen(text);
    for (const char *c = line; *c; c++) {
        if (*c == '"')
            text[n++] = '\\';
        text[n++] = *c;
    }
    text[n] = '"';
    return grammar(text);
}

/* The tokens of the line, one after the other. */
static void follow(const char *name, struct form_match *match, const struct tokenizer *tok, uint32_t end)
{
    uint32_t *ids;
    size_t n;
    struct err err = {""};
    form_state at = form_match_start(match), to;
    assert_int_equal(tokenizer_encode(tok, line, strlen(line), false, &ids, &n, &err), 0);
    for (size_t i = 0; i < n; i++) {
        const uint64_t *mask;
        assert_int_equal(form_match_mask(match, at, &mask, &err), 0);
        if (!is_allowed(mask, ids[i]) || is_allowed(mask, end))
            fail_msg("%s: token %zu of %zu, number %u", name, i, n, ids[i]);
        assert_int_equal(form_match_token(match, at, ids[i], &to, &err), 0);
        at = to;
    }
    assert_true(form_match_may_end(match, at));
    assert_int_equal(form_match_token(match, at, end, &to, &err), 0);
    free(ids);
}

/* Where any text may stand, special tokens may not: they are not text. */
static void special_tokens_are_no_text(const struct form_tokens *tokens, const struct tokenizer *tok,
                                       uint32_t end)
{
    struct form *form = grammar("root ::= .*");
    struct form_match *match;
    struct err err = {""};
    const uint64_t *mask;
    size_t special = 0, others = 0;
    assert_int_equal(form_match_new(&match, form, tokens, &err), 0);
    assert_int_equal(form_match_mask(match, form_match_start(match), &mask, &err), 0);
    for (uint32_t id = 0; id < form_tokens_vocab(tokens); id++) {
        const bool is_special = id != end && tokenizer_is_special(tok, id);
        assert_false(is_special && is_allowed(mask, id));
        special += is_special;
        others += is_allowed(mask, id);
    }
    assert_true(special > 0 || tokenizer_is_special(tok, end));
    assert_true(others > 200);
    assert_true(is_allowed(mask, end));
    form_match_free(match);
    form_free(form);
}

static void check_tokenizer(const char *dir, const char *name)
{
    struct tokenizer *tok;
    struct form_tokens *tokens;
    struct form_match *match;
    struct err err = {""};
    struct form *form = form_of_line();
    if (tokenizer_open(&tok, dir, &err))
        fail_msg("%s: %s", name, err.text);
    uint32_t end = 0, vocab = 0;
    while (vocab < 200000 && !(vocab > 1000 && !tokenizer_has(tok, vocab)))
        vocab++;
    while (end < vocab && !tokenizer_is_special(tok, end))
        end++;
    end = end == vocab ? 0 : end; /* its own text does not count then */
    if (form_tokens_of(&tokens, tok, vocab, &end, 1, &err) || form_match_new(&match, form, tokens, &err))
        fail_msg("%s: %s", name, err.text);
    follow(name, match, tok, end);
    special_tokens_are_no_text(tokens, tok, end);
    form_match_free(match);
    form_tokens_free(tokens);
    form_free(form);
    tokenizer_close(tok);
}

static void every_tokenizer_fits_its_text(void **state)
{
    (void)state;
    static const char root[] = "tests/data/tokenizers";
    size_t checked = 0;
    DIR *all = opendir(root);
    assert_non_null(all);
    for (struct dirent *entry; (entry = readdir(all));) {
        char dir[512], path[600];
        snprintf(dir, sizeof dir, "%s/%s", root, entry->d_name);
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
        if (entry->d_name[0] == '.' || access(path, R_OK))
            continue;
        check_tokenizer(dir, entry->d_name);
        checked++;
    }
    closedir(all);
    assert_int_equal(checked, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_tokenizer_fits_its_text)};
    return cmocka_run_group_tests_name("form_vocab", tests, NULL, NULL);
}
