/* SPDX-License-Identifier: MIT
 *
 * Lists of models and refusals, in the forms of both APIs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/model_list.h"
#include "daemon/ringd/openai/refusal.h"
#include "tests/unit/daemon/ringd/openai/json_is.h"

static void models(void **state)
{
    static const struct served_model served[] = {{"m", 1721952000, 512, NULL}, {"a", 0, 512, "m"}};
    (void)state;
    json_is(model_list_openai(served, 2), "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\","
                                          "\"created\":1721952000,\"owned_by\":\"ringd\","
                                          "\"max_model_len\":512},{\"id\":\"a\",\"object\":\"model\","
                                          "\"created\":0,\"owned_by\":\"ringd\",\"max_model_len\":512,"
                                          "\"parent\":\"m\"}]}");
    json_is(model_list_anthropic(served, 2), "{\"data\":[{\"type\":\"model\",\"id\":\"m\",\"display_name\":"
                                             "\"m\",\"created_at\":\"2024-07-26T00:00:00Z\"},"
                                             "{\"type\":\"model\",\"id\":\"a\",\"display_name\":\"a\","
                                             "\"created_at\":\"1970-01-01T00:00:00Z\"}],\"has_more\":false,"
                                             "\"first_id\":\"m\",\"last_id\":\"a\"}");
    json_is(model_list_anthropic(NULL, 0),
            "{\"data\":[],\"has_more\":false,\"first_id\":null,\"last_id\":null}");
}

static void refusals(void **state)
{
    struct refusal r;
    (void)state;
    assert_int_equal(refusal_set(&r, REFUSAL_NO_MODEL, "model", "there is no model \"%s\"", "x"), -22);
    json_is(refusal_openai(&r),
            "{\"error\":{\"message\":\"there is no model \\\"x\\\"\",\"type\":\"invalid_request_error\","
            "\"param\":\"model\",\"code\":\"model_not_found\"}}");
    json_is(refusal_anthropic(&r), "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":"
                                   "\"there is no model \\\"x\\\"\"}}");
    assert_int_equal(refusal_openai_status(&r), 404);
    for (unsigned kind = 0; kind < REFUSALS; kind++) {
        refusal_set(&r, kind, NULL, "x");
        assert_in_range(refusal_openai_status(&r), 400, 599);
        assert_in_range(refusal_anthropic_status(&r), 400, 599);
        json_decref(refusal_openai(&r));
    }
    refusal_set(&r, REFUSAL_BUSY, NULL, "x");
    assert_int_equal(refusal_openai_status(&r), 503);
    assert_int_equal(refusal_anthropic_status(&r), 529);
}

/* What clients wrote is quoted in sentences: it is cut between characters, and no terminal obeys
 * it. */
static void long_sentences(void **state)
{
    struct refusal r;
    char text[1801] = "";
    (void)state;
    for (size_t i = 0; i < sizeof text - 1; i += 3)
        memcpy(text + i, "\xe4\xbd\xa0", 3);
    refusal_set(&r, REFUSAL_INVALID, text, "\x1b[2J%s", text);
    json_t *json = refusal_openai(&r);
    assert_non_null(json);
    assert_null(strchr(r.text, '\x1b'));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models),
        cmocka_unit_test(refusals),
        cmocka_unit_test(long_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
