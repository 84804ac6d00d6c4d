/* SPDX-License-Identifier: MIT
 *
 * Which tokens may come next: what a mask says is what its tokens do, wherever a text stands; a
 * state that is held means the same for as long; and what is too deep or takes too long ends with a
 * sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "tests/unit/engine/text/form_world.h"

/* Tokens that end within characters, that leave a string and come back to one, and so on. */
static const char *const texts[] = {
    "\"a",         "\":\"", "\",\"",    "\", \"", "a\",\"b",  "{\"",       "\"}",      "\"}]",
    "]]",          "[[",    "12",       "1,",     "e1",       "true",      "tru",      "null,",
    "\\n",         "\\u00", "\xc3\xa9", "\xc3",   "\xa9\"",   "x\xf0\x9f", "\x98\x80", "\xe2\x82\xac,",
    "hello world", "ab",    "ba",       "abab",   "\x7f",     "a\xff",     "a\tb",     " ",
    "  ",          "\n  ",  "",         "\"\"",   "\xed\xa0", "\xc0\x80",  "((",       "a))",
    NULL};

static struct form *json_object_form(void)
{
    struct err err = {""};
    struct form *form = NULL;
    if (form_of_json_object(&form, &err))
        fail_msg("%s", err.text);
    return form;
}

static const char *const grammars[] = {
    "root ::= \"[\" s (\",\" \" \"? s)* \"]\"\ns ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \"\\\"\"",
    "root ::= [^b\\x00-\\x1f]{0,20} (\"b\" .)*",
    "root ::= \"(\" root \")\" | [a-z ]+",
    "root ::= ([a\\u00e9-\\u20ac] | \"ab\" | \"ba\")*",
    "root ::= [0-9]{1,3} (\",\" [0-9]{3})* | .{2,5} \"e\"",
    "root ::= (\"a\" | \"ab\" | \"bab\")* \"!\"?",
};

/* Bits of the mask against tokens that are tried one by one. */
static void check_mask(struct form_world *w, form_state at, const uint64_t *mask)
{
    struct err err;
    for (uint32_t id = 0; id < w->vocab; id++) {
        form_state to;
        const int r = form_match_token(w->match, at, id, &to, &err);
        if (!r)
            form_match_drop(w->match, to);
        if (!r != is_allowed(mask, id))
            fail_msg("token %u (%.*s) is %sallowed, and %s", id, (int)w->token[id].n, w->token[id].text,
                     r ? "" : "not ", r ? "does not fit" : "fits");
    }
    assert_int_equal(is_allowed(mask, w->end), form_match_may_end(w->match, at));
}

/* An allowed token; small numbers, which are single bytes, are not all there is. */
static uint32_t draw_token(struct form_world *w, const uint64_t *mask, struct rng *rng)
{
    for (int i = 0; i < 200; i++) {
        const uint32_t id = 256 + (uint32_t)rng_below(rng, w->vocab - 256);
        if (is_allowed(mask, id))
            return id;
    }
    for (uint32_t id = (uint32_t)rng_below(rng, w->vocab);; id = (id + 1) % (uint32_t)w->vocab)
        if (is_allowed(mask, id))
            return id;
}

static void walk(struct form_world *w, struct rng *rng, int steps)
{
    struct err err = {""};
    form_state at = form_match_start(w->match);
    for (int i = 0; i < steps; i++) {
        const uint64_t *mask;
        uint64_t copy[16];
        form_state to;
        if (form_match_mask(w->match, at, &mask, &err))
            fail_msg("%s", err.text);
        memcpy(copy, mask, (w->vocab + 63) / 64 * sizeof *copy);
        check_mask(w, at, copy);
        const uint32_t id = draw_token(w, copy, rng);
        if (id == w->end)
            break;
        assert_int_equal(form_match_token(w->match, at, id, &to, &err), 0);
        form_match_drop(w->match, at);
        at = to;
    }
    form_match_drop(w->match, at);
}

static void a_mask_is_what_its_tokens_do(void **state)
{
    (void)state;
    struct rng rng = rng_for(5, "walks");
    for (size_t g = 0; g <= sizeof grammars / sizeof *grammars; g++) {
        struct form_world w;
        world_open(&w, g ? grammar(grammars[g - 1]) : json_object_form(), texts);
        for (int i = 0; i < 12; i++)
            walk(&w, &rng, 40);
        world_close(&w);
    }
}

static void equal_places_are_equal_states(void **state)
{
    (void)state;
    struct form_world w;
    struct err err;
    form_state a, b, c, start;
    world_open(&w, json_object_form(), texts);
    start = form_match_start(w.match);
    assert_int_equal(form_match_bytes(w.match, start, "{\"a\":[1", 7, &a, &err), 0);
    assert_int_equal(form_match_bytes(w.match, start, "{\"other\":[true,2", 16, &b, &err), 0);
    assert_int_equal(form_match_bytes(w.match, start, "{\"a\":[[1", 8, &c, &err), 0);
    assert_int_equal(a, b);
    assert_int_not_equal(a, c);
    world_close(&w);
}

/* With a vocabulary that has all bytes there is always a way to the end, and tokens reach it. */
static void what_is_begun_can_be_ended(void **state)
{
    (void)state;
    struct rng rng = rng_for(6, "ends");
    for (size_t g = 0; g <= sizeof grammars / sizeof *grammars; g++) {
        struct form_world w;
        struct err err = {""};
        world_open(&w, g ? grammar(grammars[g - 1]) : json_object_form(), NULL);
        for (int i = 0; i < 30; i++) {
            form_state at = form_match_start(w.match), to;
            size_t steps = 0;
            for (const uint64_t *mask; !form_match_may_end(w.match, at); at = to) {
                uint32_t id = (uint32_t)rng_below(&rng, 256);
                assert_int_equal(form_match_mask(w.match, at, &mask, &err), 0);
                for (uint32_t k = 0; k < 6 && steps > 50; k++) /* then the shortest way */
                    if (is_allowed(mask, (uint8_t) "\"}]:1!"[k])) {
                        id = (uint8_t) "\"}]:1!"[k];
                        break;
                    }
                while (!is_allowed(mask, id))
                    id = (id + 1) % 256;
                assert_int_equal(form_match_token(w.match, at, id, &to, &err), 0);
                form_match_drop(w.match, at);
                if (++steps > 3000)
                    fail_msg("no end after %zu bytes", steps);
            }
            form_match_drop(w.match, at);
        }
        world_close(&w);
    }
}

/* Each count is a state of its own: more than are kept. The one that is held stays what it was. */
static void what_is_held_outlives_what_is_forgotten(void **state)
{
    (void)state;
    struct form_world w;
    struct err err = {""};
    const uint64_t *mask;
    form_state held, at, to, again;
    world_open(&w, grammar("root ::= x* (\"c\" [0-9a-z]* \"!\" | \"d\")\nx ::= [a-b]{60000} \";\""), texts);
    at = form_match_start(w.match);
    assert_int_equal(form_match_bytes(w.match, at, "c12", 3, &held, &err), 0);
    for (int i = 0; i < 59000; i++) {
        assert_int_equal(form_match_bytes(w.match, at, i % 2 ? "ab" : "b", i % 2 ? 1 : 1, &to, &err), 0);
        form_match_drop(w.match, at);
        at = to;
    }
    assert_int_equal(form_match_mask(w.match, held, &mask, &err), 0);
    assert_true(is_allowed(mask, 'z') && is_allowed(mask, '!') && !is_allowed(mask, 'A'));
    check_mask(&w, held, (uint64_t[16]){mask[0], mask[1], mask[2], mask[3], mask[4]});
    assert_int_equal(form_match_mask(w.match, at, &mask, &err), 0);
    assert_true(is_allowed(mask, 'a') && !is_allowed(mask, ';'));
    assert_int_equal(form_match_bytes(w.match, held, "x", 1, &again, &err), 0);
    assert_int_equal(again, held);
    world_close(&w);
}

static void too_deep_is_not_let_through(void **state)
{
    (void)state;
    struct form_world w;
    struct err err = {""};
    const uint64_t *mask;
    form_state at, to;
    int depth = 0;
    world_open(&w, grammar("root ::= \"(\" root \")\" | \"x\""), texts);
    at = form_match_start(w.match);
    for (;; depth++) {
        assert_int_equal(form_match_mask(w.match, at, &mask, &err), 0);
        if (!is_allowed(mask, '('))
            break;
        assert_int_equal(form_match_bytes(w.match, at, "(", 1, &to, &err), 0);
        at = to;
    }
    assert_int_equal(depth, FORM_DEPTH_MAX);
    assert_true(is_allowed(mask, 'x'));
    assert_int_equal(form_match_bytes(w.match, at, "(", 1, &to, &err), -E2BIG);
    assert_non_null(strstr(err.text, "nested deeper than 512"));
    world_close(&w);
    /* Where the only way goes deeper, there is no token left, and that is said. */
    world_open(&w, grammar("root ::= a{600} \na ::= \"(\" | \"(\" b \"x\"\nb ::= \"y\""), NULL);
    world_close(&w);
    char deep[40000] = "root ::= r0 \"\"\n";
    for (int i = 0; i < 600; i++)
        sprintf(deep + strlen(deep), "r%d ::= \"(\" r%d \")\"\n", i, i + 1);
    strcat(deep, "r600 ::= \"x\"\n");
    world_open(&w, grammar(deep), NULL);
    at = form_match_start(w.match);
    int r = 0;
    for (depth = 0; depth < 600 && !(r = form_match_mask(w.match, at, &mask, &err)); depth++) {
        assert_int_equal(form_match_bytes(w.match, at, "(", 1, &to, &err), 0);
        at = to;
    }
    assert_int_equal(r, -E2BIG);
    assert_non_null(strstr(err.text, "nested deeper than 512"));
    world_close(&w);
}

/* Ways to read a text that double with every byte are one as long as they are at the same place;
 * where they are not, there is an end to it. */
static void too_many_ways_end_with_a_sentence(void **state)
{
    (void)state;
    struct form_world w;
    struct err err = {""};
    form_state at, to;
    int r = 0;
    char many[20000] = "root ::= ";
    world_open(&w, grammar("root ::= (\"a\" | \"a\" \"a\" | a)* \"b\"\na ::= \"a\" | \"a\" a"), NULL);
    char line[2001];
    memset(line, 'a', 2000);
    line[2000] = '\0';
    line[1999] = 'b';
    assert_true(accepts(&w, line));
    world_close(&w);
    for (int i = 0; i < 20; i++)
        strcat(many, "(\"a\" s \"b\" | \"a\" s \"c\" | \"a\" s)");
    strcat(many, "\ns ::= (\"a\" s \"x\" | \"a\" s \"y\")?");
    world_open(&w, grammar(many), NULL);
    at = form_match_start(w.match);
    for (int i = 0; i < 60 && !r; i++) {
        r = form_match_bytes(w.match, at, "a", 1, &to, &err);
        at = r ? at : to;
    }
    assert_int_equal(r, -E2BIG);
    assert_non_null(strstr(err.text, "4096 ways"));
    world_close(&w);
}

/* Nearly every byte of these tokens leads to a new state, which is a large one. */
static void what_takes_too_long_ends_with_a_sentence(void **state)
{
    (void)state;
    enum { LONG = 60, BYTES = 100 };
    static char bytes[LONG][BYTES + 1];
    const char *longs[LONG + 1] = {NULL};
    struct rng rng = rng_for(7, "long");
    struct form_world w;
    struct err err = {""};
    const uint64_t *mask;
    form_state to;
    for (size_t i = 0; i < LONG; i++) {
        for (size_t k = 0; k < BYTES; k++)
            bytes[i][k] = (char)('a' + rng_below(&rng, 20));
        longs[i] = bytes[i];
    }
    world_open(&w, grammar("root ::= s* | \"!\" [a-z]*\ns ::= [a-z] s [a-z ] | [a-z] s [A-Z] | \"e\""),
               longs);
    const form_state start = form_match_start(w.match);
    assert_int_equal(form_match_mask(w.match, start, &mask, &err), -E2BIG);
    assert_non_null(strstr(err.text, "takes too long"));
    assert_int_equal(form_match_bytes(w.match, start, "!", 1, &to, &err), 0);
    assert_int_equal(form_match_mask(w.match, to, &mask, &err), 0);
    check_mask(&w, to, (uint64_t[16]){mask[0], mask[1], mask[2], mask[3], mask[4]});
    world_close(&w);
}

static void a_vocabulary_without_the_bytes_is_named(void **state)
{
    (void)state;
    const struct form_token token[] = {{"ab", 2}, {"b", 1}, {"", 0}};
    const uint32_t end = 2, wrong = 3;
    struct form *form = grammar("root ::= \"a\" \"c\"");
    struct form_tokens *tokens;
    struct form_match *match;
    struct err err = {""};
    const uint64_t *mask;
    assert_int_equal(form_tokens_new(&tokens, token, 3, &wrong, 1, &err), -EINVAL);
    assert_int_equal(form_tokens_new(&tokens, token, 3, &end, 1, &err), 0);
    assert_int_equal(form_tokens_vocab(tokens), 3);
    assert_int_equal(form_match_new(&match, form, tokens, &err), 0);
    assert_int_equal(form_match_mask(match, form_match_start(match), &mask, &err), -ENOENT);
    assert_non_null(strstr(err.text, "lacks tokens for single bytes"));
    form_match_free(match);
    form_tokens_free(tokens);
    form_free(form);
    /* Likewise one that ends no answer. */
    form = grammar("root ::= \"b\"");
    assert_int_equal(form_tokens_new(&tokens, token, 3, NULL, 0, &err), 0);
    assert_int_equal(form_match_new(&match, form, tokens, &err), 0);
    form_state at;
    assert_int_equal(form_match_token(match, form_match_start(match), 1, &at, &err), 0);
    assert_int_equal(form_match_mask(match, at, &mask, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no token that ends it"));
    form_match_free(match);
    form_tokens_free(tokens);
    form_free(form);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_is_what_its_tokens_do),
        cmocka_unit_test(equal_places_are_equal_states),
        cmocka_unit_test(what_is_begun_can_be_ended),
        cmocka_unit_test(what_is_held_outlives_what_is_forgotten),
        cmocka_unit_test(too_deep_is_not_let_through),
        cmocka_unit_test(too_many_ways_end_with_a_sentence),
        cmocka_unit_test(what_takes_too_long_ends_with_a_sentence),
        cmocka_unit_test(a_vocabulary_without_the_bytes_is_named),
    };
    return cmocka_run_group_tests_name("form_match", tests, NULL, NULL);
}
