/* SPDX-License-Identifier: MIT
 *
 * Files of questions in the forms that people have them in, and figures against values worked out
 * by hand with lm-evaluation-harness' formulas. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/eval_figures.h"
#include "train/eval_set.h"

static struct eval_set open_rows(const char *rows, enum eval_task task, size_t limit, int want,
                                 struct err *err)
{
    char path[] = "/tmp/test-eval-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, rows, strlen(rows)), strlen(rows));
    close(fd);
    struct eval_set set = {0};
    const struct eval_request req = {.path = path, .task = task, .limit = limit};
    const int r = eval_set_open(&set, &req, err);
    unlink(path);
    if (r != want)
        fail_msg("%d instead of %d: %s", r, want, err->text);
    return set;
}

static void refuses(const char *rows, enum eval_task task, const char *why)
{
    struct err err = {""};
    open_rows(rows, task, 0, -EBADMSG, &err);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" is not in \"%s\"", why, err.text);
}

static void test_choices(void **state)
{
    (void)state;
    struct err err = {""};
    struct eval_set set = open_rows("{\"question\":\"Why?\",\"choices\":[\"a\",\"bc\"],\"answer\":1}\n"
                                    "{\"prompt\":\"P\",\"choices\":[\"0\",\"A\"],\"answer\":\"A\"}\n\n"
                                    "{\"question\":\"Q\",\"choices\":{\"text\":[\"x\",\"y\",\"z\"],\"label\":"
                                    "[\"1\",\"2\",\"3\"]},\"answerKey\":\"3\"}\n"
                                    "{\"text\":\"T\",\"choices\":[\"x\",\"y\"],\"label\":\"1\"}\n"
                                    "{\"text\":\"T\",\"choices\":[\"x\",\"y\"],\"answer\":\"B\"}\n",
                                    EVAL_AUTO, 0, 0, &err);
    static const size_t right[] = {1, 1, 2, 1, 1}, lines[] = {1, 2, 4, 5, 6};
    assert_int_equal(set.task, EVAL_CHOICE);
    assert_int_equal(set.n, 5);
    for (size_t i = 0; i < set.n; i++) {
        assert_int_equal(set.rows[i].right, right[i]);
        assert_int_equal(set.rows[i].line, lines[i]);
    }
    assert_string_equal(set.rows[0].context.text, "Question: Why?\nAnswer:");
    assert_string_equal(set.rows[1].context.text, "P");
    assert_string_equal(set.rows[2].answers[2].text, "z");
    eval_set_done(&set);
}

static void test_other_tasks(void **state)
{
    (void)state;
    struct err err = {""};
    struct eval_set set =
        open_rows("{\"prompt\":\"P\",\"completion\":[\"a\",\"b\"]}\n{\"question\":\"Q\",\"answer\":\"c\"}\n"
                  "{\"prompt\":\"beyond the limit\"}\n",
                  EVAL_AUTO, 2, 0, &err);
    assert_int_equal(set.task, EVAL_GENERATION);
    assert_int_equal(set.n, 2);
    assert_int_equal(set.rows[0].nanswers, 2);
    assert_string_equal(set.rows[1].answers[0].text, "c");
    eval_set_done(&set);
    set = open_rows("{\"text\":\"a b\"}\n", EVAL_AUTO, 0, 0, &err);
    assert_int_equal(set.task, EVAL_PERPLEXITY);
    eval_set_done(&set);
}

static void test_refusals(void **state)
{
    (void)state;
    struct err err = {""};
    refuses("{\"prompt\":\"P\",\"choices\":[\"x\",\"y\"],\"answer\":0}\n\n"
            "{\"prompt\":\"P\",\"choices\":[\"x\",\"y\"],\"answer\":2}\n",
            EVAL_AUTO, ":3: \"answer\" names none of the 2 choices");
    refuses("{\"prompt\":\"P\",\"choices\":[\"x\",\"y\"],\"answer\":\"C\"}\n", EVAL_AUTO, "names none");
    refuses("{\"prompt\":\"P\",\"choices\":[\"x\",\"y\"],\"answer\":1.0}\n", EVAL_AUTO, "names none");
    refuses("{\"prompt\":\"P\",\"choices\":[\"x\",\"y\"]}\n", EVAL_AUTO, "no choice is right");
    refuses("{\"prompt\":\"P\",\"choices\":[\"x\",\"\"],\"answer\":0}\n", EVAL_AUTO,
            "entry 2 of \"choices\"");
    refuses("{\"choices\":[\"x\",\"y\"],\"answer\":0}\n", EVAL_AUTO,
            "needs \"prompt\", \"question\" or \"text\"");
    refuses("{\"prompt\":\"P\"}\n", EVAL_AUTO, "no task fits");
    refuses("{\"prompt\":\"P\"}\n", EVAL_GENERATION, "has no \"completion\"");
    refuses("{\"text\":\"\"}\n", EVAL_PERPLEXITY, "\"text\" must be");
    open_rows("\n", EVAL_AUTO, 0, -ENODATA, &err);
}

static void test_shares(void **state)
{
    (void)state;
    const struct eval_share share = eval_share_of(3, 8);
    assert_true(share.mean == 0.375);
    /* s² = (3·0.625² + 5·0.375²) / 7 */
    assert_true(fabs(share.stderr_of - sqrt(1.875 / 7 / 8)) < 1e-15);
    assert_true(eval_share_of(8, 8).stderr_of == 0);
    assert_true(isnan(eval_share_of(1, 1).stderr_of));
}

static void test_likeliest(void **state)
{
    (void)state;
    struct eval_text answers[] = {{(char *)"ab", 2}, {(char *)"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", 8}};
    struct eval_row row = {.answers = answers, .nanswers = 2, .right = 0};
    const double sums[] = {-4, -5}, even[] = {-4, -4}, by_bytes[] = {-2, -6};
    assert_true(eval_is_acc(&row, sums));
    assert_false(eval_is_acc_norm(&row, sums));    /* -2 and -1.25 a character */
    assert_true(eval_is_acc(&row, even));          /* the first of equals */
    assert_true(eval_is_acc_norm(&row, by_bytes)); /* -1 and -1.5 a character, -0.75 a byte */
}

static void test_match(void **state)
{
    (void)state;
    struct eval_text answers[] = {{(char *)" four", 5}, {(char *)"4", 1}};
    const struct eval_row row = {.answers = answers, .nanswers = 2};
    assert_true(eval_is_match(&row, "four\n", 5));
    assert_true(eval_is_match(&row, "\t4", 2));
    assert_false(eval_is_match(&row, "Four", 4));
    assert_false(eval_is_match(&row, "", 0));
}

static void test_perplexity(void **state)
{
    (void)state;
    struct eval_perplexity p = {0};
    struct eval_row row = {.context = {(char *)"one  two\n", 9}}; /* re.split gives "one", "two", "" */
    eval_perplexity_add(&p, &row, -6);
    row.context = (struct eval_text){(char *)"three", 5};
    eval_perplexity_add(&p, &row, -2);
    assert_int_equal(p.words, 4);
    assert_int_equal(p.bytes, 14);
    assert_true(fabs(eval_word_perplexity(&p) - exp(2)) < 1e-12);
    assert_true(fabs(eval_byte_perplexity(&p) - exp(8.0 / 14)) < 1e-12);
    assert_true(fabs(eval_bits_per_byte(&p) - 8.0 / 14 / log(2)) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),    cmocka_unit_test(test_other_tasks),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_shares),
        cmocka_unit_test(test_likeliest),  cmocka_unit_test(test_match),
        cmocka_unit_test(test_perplexity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
