/* SPDX-License-Identifier: MIT
 *
 * Requests to score a text, and their answer, which is that of a job that scores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/score.h"
#include "tests/unit/daemon/ringd/openai/json_is.h"

static void refused(const char *text, const char *param)
{
    struct score_request r;
    struct refusal refusal;
    json_t *json = json_of(text);
    assert_int_not_equal(score_request_read(&r, json, &refusal), 0);
    assert_string_equal(refusal.param, param);
    json_decref(json);
}

static void requests(void **state)
{
    struct score_request r;
    struct refusal refusal;
    json_t *json = json_of("{\"model\": \"m\", \"prompt\": [1, 2], \"top_logprobs\": 3}");
    (void)state;
    assert_int_equal(score_request_read(&r, json, &refusal), 0);
    json_decref(json);
    assert_string_equal(r.model, "m");
    assert_null(r.text->text);
    assert_int_equal(json_array_size(r.text->token), 2);
    assert_int_equal(r.top_logprobs, 3);
    score_request_done(&r);
    refused("[]", "");
    refused("{}", "prompt");
    refused("{\"prompt\": [\"a\", \"b\"]}", "prompt");
    refused("{\"prompt\": \"a\", \"top_logprobs\": 21}", "top_logprobs");
    refused("{\"prompt\": \"a\", \"model\": 1}", "model");
}

static void add(struct score_sum *sum, const char *said)
{
    json_t *json = json_of(said);
    assert_true(score_sum_add(sum, json));
    json_decref(json);
}

static void answers(void **state)
{
    struct score_sum sum;
    struct refusal refusal;
    json_t *answer;
    (void)state;
    score_sum_init(&sum);
    add(&sum, "{\"id\": 1, \"alone\": \"a\", \"text\": \" a\", \"logprob\": null, \"top\": []}");
    assert_int_not_equal(score_answer(&answer, &sum, &refusal), 0); /* its perplexity would be 0/0 */
    assert_string_equal(refusal.param, "prompt");
    add(&sum, "{\"id\": 2, \"text\": \"\", \"logprob\": -0.5, \"top\": [{\"id\": 3, \"logprob\": -0.25}]}");
    add(&sum, "{\"id\": 4, \"alone\": \"b\", \"text\": \"b\", \"logprob\": -1.5, \"top\": []}");
    assert_int_equal(score_answer(&answer, &sum, &refusal), 0);
    json_t *wanted =
        json_of("{\"tokens\": [{\"id\": 1, \"text\": \"a\", \"logprob\": null, \"top\": []},"
                "{\"id\": 2, \"logprob\": -0.5, \"top\": [{\"id\": 3, \"logprob\": -0.25}]},"
                "{\"id\": 4, \"text\": \"b\", \"logprob\": -1.5, \"top\": []}], \"total\": -2.0}");
    json_object_set_new(wanted, "perplexity", json_real(exp(1)));
    assert_true(json_equal(answer, wanted));
    json_decref(wanted);
    json_decref(answer);
    score_sum_done(&sum);
}

static void an_answer_has_an_end(void **state)
{
    struct score_sum sum;
    json_t *token = json_of("{\"id\": 1, \"logprob\": -1}");
    size_t n = 1;
    (void)state;
    score_sum_init(&sum);
    while (score_sum_add(&sum, token))
        n++;
    assert_true(n > 100000 && n < SCORE_HELD_MAX / 100);
    score_sum_done(&sum);
    json_decref(token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(requests), cmocka_unit_test(answers),
                                       cmocka_unit_test(an_answer_has_an_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
