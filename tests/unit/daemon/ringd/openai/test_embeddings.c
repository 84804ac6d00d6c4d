/* SPDX-License-Identifier: MIT
 *
 * Requests for embeddings are checked, and vectors are written as numbers or as base64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/embeddings.h"
#include "tests/unit/daemon/ringd/openai/json_is.h"

static struct embedding_request take(const char *text)
{
    struct embedding_request r;
    struct refusal refusal;
    json_t *json = json_of(text);
    if (embedding_request_read(&r, json, &refusal))
        fail_msg("%s: %s", refusal.text, text);
    json_decref(json);
    return r;
}

static void refused(const char *text, const char *param, const char *words)
{
    struct embedding_request r;
    struct refusal refusal;
    json_t *json = json_of(text);
    assert_int_not_equal(embedding_request_read(&r, json, &refusal), 0);
    if (strcmp(refusal.param, param) != 0 || !strstr(refusal.text, words))
        fail_msg("%s is refused for %s: %s", text, refusal.param, refusal.text);
    json_decref(json);
}

static void requests(void **state)
{
    (void)state;
    struct embedding_request r = take("{\"model\": \"m\", \"input\": [\"a\", [1, 2]], \"dimensions\": 3}");
    assert_string_equal(r.model, "m");
    assert_int_equal(r.ninput, 2);
    assert_string_equal(r.input[0].text, "a");
    assert_int_equal(json_array_size(r.input[1].token), 2);
    assert_int_equal(r.dimensions, 3);
    assert_false(r.is_base64);
    embedding_request_done(&r);
    r = take("{\"input\": \"a\", \"encoding_format\": \"base64\"}");
    assert_true(r.is_base64);
    embedding_request_done(&r);
    refused("{}", "input", "\"input\" must be a text");
    refused("{\"input\": []}", "input", "1 to 2048");
    refused("{\"input\": \"\"}", "input", "empty");
    refused("{\"input\": \"a\", \"encoding_format\": \"hex\"}", "encoding_format", "float or base64");
    refused("{\"input\": \"a\", \"dimensions\": 0}", "dimensions", "from 1");
    refused("1", "", "JSON object");
}

static const float vectors[] = {3, 4, 0, 1, -2, 0.5F}, small[] = {0.375F, 0.5F, 7};

static void answers(void **state)
{
    struct refusal refusal;
    json_t *got;
    (void)state;
    struct embedding_request r = take("{\"input\": [\"a\", \"b\"]}");
    assert_int_equal(embeddings_answer(&got, &r, "m", vectors, 3, 5, &refusal), 0);
    json_is(
        got,
        "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[3.0,4.0,0.0]},"
        "{\"object\":\"embedding\",\"index\":1,\"embedding\":[1.0,-2.0,0.5]}],\"model\":\"m\",\"usage\":"
        "{\"prompt_tokens\":5,\"total_tokens\":5}}");
    embedding_request_done(&r);
    /* python3: base64.b64encode(struct.pack('<3f', 3, 4, 0)) */
    r = take("{\"input\": \"a\", \"encoding_format\": \"base64\"}");
    assert_int_equal(embeddings_answer(&got, &r, "m", vectors, 3, 5, &refusal), 0);
    const json_t *data = json_array_get(json_object_get(got, "data"), 0);
    assert_string_equal(json_string_value(json_object_get(data, "embedding")), "AABAQAAAgEAAAAAA");
    json_decref(got);
    assert_int_equal(embeddings_answer(&got, &r, "m", vectors, 1, 5, &refusal), 0);
    data = json_array_get(json_object_get(got, "data"), 0);
    assert_string_equal(json_string_value(json_object_get(data, "embedding")), "AABAQA==");
    json_decref(got);
    embedding_request_done(&r);
}

static void fewer_dimensions(void **state)
{
    struct refusal refusal;
    json_t *got = NULL;
    (void)state;
    struct embedding_request r = take("{\"input\": \"a\", \"dimensions\": 2}");
    assert_int_equal(embeddings_answer(&got, &r, "m", vectors, 3, 5, &refusal), 0);
    const json_t *v = json_object_get(json_array_get(json_object_get(got, "data"), 0), "embedding");
    assert_int_equal(json_array_size(v), 2);
    assert_true(json_real_value(json_array_get(v, 0)) == (double)0.6F);
    assert_true(json_real_value(json_array_get(v, 1)) == (double)0.8F);
    json_decref(got);
    assert_int_equal(embeddings_answer(&got, &r, "m", small, 3, 5, &refusal), 0);
    v = json_object_get(json_array_get(json_object_get(got, "data"), 0), "embedding");
    assert_true(json_real_value(json_array_get(v, 0)) == (double)0.6F);
    json_decref(got);
    assert_int_not_equal(embeddings_answer(&got, &r, "m", vectors, 1, 5, &refusal), 0);
    assert_string_equal(refusal.param, "dimensions");
    embedding_request_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
        cmocka_unit_test(answers),
        cmocka_unit_test(fewer_dimensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
