/* SPDX-License-Identifier: MIT
 *
 * Tokens of a text, and the text of tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/tokenize.h"
#include "tests/unit/daemon/ringd/openai/json_is.h"

static struct tokenize_request take(const char *text)
{
    struct tokenize_request r;
    struct refusal refusal;
    json_t *json = json_of(text);
    if (tokenize_request_read(&r, json, &refusal))
        fail_msg("%s: %s", refusal.text, text);
    json_decref(json);
    return r;
}

static void refused(const char *text, const char *param)
{
    struct tokenize_request r;
    struct refusal refusal;
    json_t *json = json_of(text);
    assert_int_not_equal(tokenize_request_read(&r, json, &refusal), 0);
    assert_string_equal(refusal.param, param);
    json_decref(json);
}

static void requests(void **state)
{
    (void)state;
    struct tokenize_request r = take("{\"model\": \"m\", \"prompt\": \"a\", \"return_token_strs\": true}");
    assert_string_equal(r.text, "a");
    assert_true(r.add_special && r.with_pieces && !r.messages);
    tokenize_request_done(&r);
    r = take("{\"content\": \"a\", \"add_special\": false}");
    assert_int_equal(r.ntext, 1);
    assert_false(r.add_special || r.with_pieces);
    tokenize_request_done(&r);
    r = take("{\"prompt\": \"a\", \"add_special_tokens\": false}");
    assert_false(r.add_special);
    tokenize_request_done(&r);
    r = take("{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}");
    assert_int_equal(json_array_size(r.messages), 1);
    assert_true(r.add_generation_prompt && !r.add_special && !r.text);
    tokenize_request_done(&r);
    r = take("{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"add_generation_prompt\": false}");
    assert_false(r.add_generation_prompt);
    tokenize_request_done(&r);
    refused("{}", "prompt");
    refused("{\"prompt\": 1}", "prompt");
    refused("{\"prompt\": \"a\", \"messages\": []}", "prompt");
    refused("{\"messages\": []}", "messages");
    refused("{\"prompt\": \"a\", \"add_special_tokens\": 1}", "add_special_tokens");
    refused("{\"prompt\": \"a\", \"add_special\": 1}", "add_special");
    refused("[]", "");
}

static void answers(void **state)
{
    static const uint32_t ids[] = {7, 4294967295};
    (void)state;
    json_is(tokenize_answer(ids, 2, 512, NULL),
            "{\"count\":2,\"max_model_len\":512,\"tokens\":[7,4294967295]}");
    json_is(tokenize_answer(ids, 1, 512, json_of("[\"a\"]")),
            "{\"count\":1,\"max_model_len\":512,\"tokens\":[7],\"token_strs\":[\"a\"]}");
    json_is(detokenize_answer("a\xc3", 2), "{\"prompt\":\"a\xef\xbf\xbd\",\"content\":\"a\xef\xbf\xbd\"}");
    json_is(count_tokens_answer(9), "{\"input_tokens\":9}");
}

static void back(void **state)
{
    struct detokenize_request r;
    struct refusal refusal;
    (void)state;
    json_t *json = json_of("{\"tokens\": [1, 2]}");
    assert_int_equal(detokenize_request_read(&r, json, &refusal), 0);
    assert_int_equal(json_array_size(r.token), 2);
    detokenize_request_done(&r);
    json_object_set_new(json, "tokens", json_array());
    assert_int_equal(detokenize_request_read(&r, json, &refusal), 0);
    detokenize_request_done(&r);
    json_object_set_new(json, "tokens", json_of("[\"a\"]"));
    assert_int_not_equal(detokenize_request_read(&r, json, &refusal), 0);
    assert_string_equal(refusal.param, "tokens");
    json_object_del(json, "tokens");
    assert_int_not_equal(detokenize_request_read(&r, json, &refusal), 0);
    assert_int_equal(json->refcount, 1);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
        cmocka_unit_test(answers),
        cmocka_unit_test(back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
