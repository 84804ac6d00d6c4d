/* SPDX-License-Identifier: MIT
 *
 * Requests of three APIs become one struct; what is out of range or unknown is refused by its name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/completion_request.h"

#define USER "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"
#define TOOL "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": true}}]"

static json_t *parse(const char *text)
{
    json_error_t where;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &where);
    if (!json)
        fail_msg("%s: %s", where.text, text);
    return json;
}

static struct completion_request take(enum completion_api api, const char *text)
{
    struct completion_request r;
    struct refusal refusal;
    json_t *json = parse(text);
    if (completion_request_read(&r, api, json, &refusal))
        fail_msg("%s: %s", refusal.text, text);
    json_decref(json); /* the request keeps its own */
    return r;
}

static struct completion_request chat(const char *fields)
{
    char text[4096];
    snprintf(text, sizeof text, "{" USER ", %s}", fields);
    return take(API_CHAT, text);
}

/* The refusal names `param`, and its sentence has `words`. */
static void refused(enum completion_api api, const char *text, const char *param, const char *words)
{
    struct completion_request r;
    struct refusal refusal;
    json_t *json = parse(text);
    memset(&r, 0x55, sizeof r);
    const struct completion_request before = r;
    const int rc = completion_request_read(&r, api, json, &refusal);
    if (!rc)
        fail_msg("taken: %s", text);
    assert_int_equal(rc, -EINVAL);
    assert_memory_equal(&r, &before, sizeof r);
    if (strcmp(refusal.param, param) != 0 || !strstr(refusal.text, words))
        fail_msg("\"%s\" is refused for %s: %s", text, refusal.param, refusal.text);
    assert_int_equal(json->refcount, 1);
    json_decref(json);
}

static void chat_refused(const char *fields, const char *param, const char *words)
{
    char text[4096];
    snprintf(text, sizeof text, "{" USER ", %s}", fields);
    refused(API_CHAT, text, param, words);
}

static void text_refused(const char *fields, const char *param, const char *words)
{
    char text[4096];
    snprintf(text, sizeof text, "{\"prompt\": \"a\", %s}", fields);
    refused(API_COMPLETIONS, text, param, words);
}

static void messages_refused(const char *fields, const char *param, const char *words)
{
    char text[4096];
    snprintf(text, sizeof text, "{" USER ", \"max_tokens\": 5, %s}", fields);
    refused(API_MESSAGES, text, param, words);
}

static void defaults(void **state)
{
    (void)state;
    struct completion_request r = chat("\"model\": \"m\"");
    assert_string_equal(r.model, "m");
    assert_int_equal(json_array_size(r.messages), 1);
    assert_null(r.tools);
    assert_null(r.template_args);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.nprompts, 1);
    assert_int_equal(r.max_tokens, 0);
    assert_int_equal(r.nstops, 0);
    assert_int_equal(r.form, ANSWER_TEXT);
    assert_false(r.stream || r.include_usage || r.logprobs || r.one_call || r.continues || r.echo);
    assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1 && r.sampling.min_p == 0);
    assert_true(r.sampling.repetition_penalty == 1 && r.sampling.presence_penalty == 0);
    assert_true(r.sampling.frequency_penalty == 0 && r.sampling.top_k == 0 && r.sampling.repeat_last_n == 64);
    assert_false(r.sampling.has_seed);
    completion_request_done(&r);
    r = chat(
        "\"temperature\": null, \"user\": \"u\", \"store\": true, \"service_tier\": \"auto\", \"nobody\": 1");
    assert_null(r.model);
    completion_request_done(&r);
}

static void sampling_is_read(void **state)
{
    (void)state;
    struct completion_request r = chat(
        "\"temperature\": 0.5, \"top_p\": 0.9, \"min_p\": 0.1, \"top_k\": 40, \"repeat_penalty\": 1.1,"
        "\"presence_penalty\": -2, \"frequency_penalty\": 2, \"repeat_last_n\": 7, \"seed\": -7, \"n\": 3,"
        "\"max_tokens\": 5, \"max_completion_tokens\": 9, \"stream\": true, \"stream_options\": "
        "{\"include_usage\": true},"
        "\"logprobs\": true, \"top_logprobs\": 20, \"logit_bias\": {\"7\": -100, \"4294967295\": 1.5}");
    assert_true(r.sampling.temperature == 0.5 && r.sampling.top_p == 0.9 && r.sampling.min_p == 0.1);
    assert_true(r.sampling.repetition_penalty == 1.1 && r.sampling.presence_penalty == -2);
    assert_true(r.sampling.frequency_penalty == 2 && r.sampling.top_k == 40 && r.sampling.repeat_last_n == 7);
    assert_true(r.sampling.has_seed && r.sampling.seed == (uint64_t)-7);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.max_tokens, 9);
    assert_true(r.stream && r.include_usage && r.logprobs);
    assert_int_equal(r.top_logprobs, 20);
    assert_int_equal(r.sampling.nbiases, 2);
    assert_true(r.sampling.biases[0].id == 7 && r.sampling.biases[0].add == -100);
    assert_true(r.sampling.biases[1].id == UINT32_MAX && r.sampling.biases[1].add == 1.5f);
    completion_request_done(&r);
    r = chat("\"top_k\": -1, \"seed\": -1, \"top_p\": 0, \"max_tokens\": -1, \"repetition_penalty\": 1.2,"
             "\"repeat_penalty\": 3");
    assert_true(r.sampling.top_k == 0 && !r.sampling.has_seed && r.sampling.top_p == 1e-6 &&
                r.max_tokens == 0);
    assert_true(r.sampling.repetition_penalty == 1.2);
    completion_request_done(&r);
}

static void ranges_are_checked(void **state)
{
    (void)state;
    chat_refused("\"temperature\": -0.1", "temperature",
                 "\"temperature\" must be a number from 0 to 100, and is -0.1");
    chat_refused("\"temperature\": \"1\"", "temperature", "number");
    chat_refused("\"top_p\": 1.1", "top_p", "from 0 to 1");
    chat_refused("\"min_p\": 2", "min_p", "from 0 to 1");
    chat_refused("\"top_k\": -2", "top_k", "whole number from 0");
    chat_refused("\"repetition_penalty\": 0", "repetition_penalty", "0.01");
    chat_refused("\"repeat_penalty\": 0", "repeat_penalty", "0.01");
    chat_refused("\"presence_penalty\": 101", "presence_penalty", "100");
    chat_refused("\"seed\": 1.5", "seed", "whole number");
    chat_refused("\"n\": 0", "n", "from 1 to 32");
    chat_refused("\"n\": 33", "n", "from 1 to 32");
    chat_refused("\"max_tokens\": 0", "max_tokens", "from 1");
    chat_refused("\"max_completion_tokens\": 0", "max_completion_tokens", "from 1");
    chat_refused("\"stream\": 1", "stream", "true or false");
    chat_refused("\"stream_options\": 1", "stream_options", "object");
    chat_refused("\"stream_options\": {\"include_usage\": 1}", "include_usage", "true or false");
    chat_refused("\"logprobs\": true, \"top_logprobs\": 21", "top_logprobs", "from 0 to 20");
    chat_refused("\"top_logprobs\": 2", "top_logprobs", "needs \"logprobs\"");
    chat_refused("\"logit_bias\": {\"x\": 1}", "logit_bias", "\"x\" is no id");
    chat_refused("\"logit_bias\": {\"-1\": 1}", "logit_bias", "no id");
    chat_refused("\"logit_bias\": {\"4294967296\": 1}", "logit_bias", "no id");
    chat_refused("\"logit_bias\": {\"1\": 101}", "logit_bias", "token 1 must be a number from -100 to 100");
    chat_refused("\"logit_bias\": []", "logit_bias", "object");
    chat_refused("\"model\": \"\"", "model", "1 to 256 bytes");
    chat_refused("\"model\": 1", "model", "1 to 256 bytes");
    refused(API_CHAT, "[]", "", "JSON object");
    refused(API_CHAT, "{}", "messages", "list of 1");
}

static void stops_are_read(void **state)
{
    (void)state;
    struct completion_request r = chat("\"stop\": \"END\"");
    assert_int_equal(r.nstops, 1);
    assert_string_equal(r.stops[0], "END");
    completion_request_done(&r);
    r = chat("\"stop\": [\"a\", \"\", \"b\"]");
    assert_int_equal(r.nstops, 2);
    assert_string_equal(r.stops[1], "b");
    completion_request_done(&r);
    chat_refused("\"stop\": 1", "stop", "at most 16 texts of at most 256 bytes");
    chat_refused("\"stop\": [1]", "stop", "at most 16 texts");
    chat_refused("\"stop\": "
                 "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\",\"e\",\"f\","
                 "\"g\",\"h\"]",
                 "stop", "at most 16 texts");
    char fields[400] = "\"stop\": \"";
    memset(fields + strlen(fields), 'x', STOP_BYTES + 1);
    strcat(fields, "\"");
    chat_refused(fields, "stop", "256 bytes");
}

static void lacks_are_named(void **state)
{
    (void)state;
    chat_refused("\"best_of\": 2", "best_of", "\"best_of\" is not supported here: use \"n\"");
    chat_refused("\"functions\": [{}]", "functions", "use \"tools\"");
    chat_refused("\"modalities\": [\"text\", \"audio\"]", "modalities", "only text");
    chat_refused("\"mirostat\": 2", "mirostat", "not supported");
    chat_refused("\"guided_json\": {}", "guided_json", "response_format");
    text_refused("\"suffix\": \"x\"", "suffix", "not supported");
    /* with the value that does nothing */
    struct completion_request r = chat("\"best_of\": 1, \"functions\": [], \"function_call\": \"none\", "
                                       "\"modalities\": [\"text\"], \"mirostat\": 0.0,"
                                       "\"typical_p\": 1, \"typ_p\": 1, \"tfs_z\": 1, \"top_a\": 0, "
                                       "\"dry_multiplier\": 0, \"xtc_probability\": 0,"
                                       "\"dynatemp_range\": 0, \"suffix\": \"\", \"use_beam_search\": false, "
                                       "\"length_penalty\": 1, \"stop_token_ids\": [],"
                                       "\"ignore_eos\": false, \"min_tokens\": 0, \"bad_words\": [], "
                                       "\"allowed_token_ids\": [], \"logits_processors\": [],"
                                       "\"verbosity\": \"medium\", \"echo\": false, \"documents\": []");
    completion_request_done(&r);
}

static void tools_are_read(void **state)
{
    (void)state;
    struct completion_request r = chat(TOOL);
    json_t *want =
        parse("[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"); /* strict is not the model's */
    assert_true(json_equal(r.tools, want));
    assert_int_equal(r.tool_choice, TOOLS_AUTO);
    completion_request_done(&r);
    r = chat(TOOL ", \"tool_choice\": \"required\", \"parallel_tool_calls\": false");
    assert_int_equal(r.tool_choice, TOOLS_REQUIRED);
    assert_true(r.one_call);
    completion_request_done(&r);
    r = chat(TOOL ", \"tool_choice\": \"none\"");
    assert_int_equal(r.tool_choice, TOOLS_NONE);
    completion_request_done(&r);
    r = chat(TOOL ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}");
    assert_int_equal(r.tool_choice, TOOLS_NAMED);
    assert_string_equal(r.tool_name, "f");
    completion_request_done(&r);
    r = chat("\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"g\"}}, {\"type\": "
             "\"function\", \"function\": "
             "{\"name\": \"f\"}}], \"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": "
             "{\"mode\": \"required\","
             "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]}}");
    assert_int_equal(r.tool_choice, TOOLS_REQUIRED);
    assert_true(json_equal(r.tools, want));
    completion_request_done(&r);
    json_decref(want);
    r = chat("\"tools\": [], \"tool_choice\": \"auto\"");
    assert_null(r.tools);
    completion_request_done(&r);
}

static void bad_tools_are_refused(void **state)
{
    (void)state;
    chat_refused("\"tools\": {}", "tools", "list of at most 128");
    chat_refused("\"tools\": [1]", "tools[0]", "must be {\"type\"");
    chat_refused("\"tools\": [{\"type\": \"custom\"}]", "tools[0]", "type \"custom\" are not supported");
    chat_refused("\"tools\": [{\"type\": \"function\", \"function\": {}}]", "tools[0].function.name",
                 "1 to 64 letters");
    chat_refused("\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a b\"}}]",
                 "tools[0].function.name", "letters");
    chat_refused("\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"a\", \"parameters\": 1}}]",
                 "tools[0]", "schema");
    chat_refused("\"tool_choice\": \"required\"", "tool_choice", "no \"tools\"");
    chat_refused("\"tool_choice\": \"never\"", "tool_choice", "must be");
    chat_refused(TOOL ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"g\"}}",
                 "tool_choice", "names \"g\"");
    chat_refused(TOOL
                 ", \"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"auto\","
                 "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]}}",
                 "tool_choice", "must be");
    chat_refused("\"parallel_tool_calls\": 1", "parallel_tool_calls", "true or false");
}

static void forms_are_read(void **state)
{
    (void)state;
    struct completion_request r = chat("\"response_format\": {\"type\": \"json_object\"}");
    assert_int_equal(r.form, ANSWER_JSON);
    completion_request_done(&r);
    r = chat("\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", "
             "\"schema\": {\"a\": 1}}}");
    assert_int_equal(r.form, ANSWER_SCHEMA);
    assert_int_equal(json_integer_value(json_object_get(r.schema, "a")), 1);
    completion_request_done(&r);
    r = chat("\"response_format\": {\"type\": \"text\"}, \"grammar\": \"root ::= x\"");
    assert_int_equal(r.form, ANSWER_GRAMMAR);
    assert_string_equal(r.grammar, "root ::= x");
    completion_request_done(&r);
    r = chat("\"json_schema\": {}");
    assert_int_equal(r.form, ANSWER_SCHEMA);
    completion_request_done(&r);
    chat_refused("\"response_format\": {\"type\": \"xml\"}", "response_format", "json_object");
    chat_refused("\"response_format\": {\"type\": \"json_schema\"}", "response_format.json_schema.schema",
                 "JSON schema");
    chat_refused("\"response_format\": {\"type\": \"json_object\"}, \"grammar\": \"x\"", "grammar",
                 "exclude");
    chat_refused("\"json_schema\": {}, \"grammar\": \"x\"", "grammar", "exclude");
    chat_refused("\"grammar\": 1", "grammar", "text of 1 to 65536");
}

static void reasoning_is_read(void **state)
{
    (void)state;
    struct completion_request r = chat("\"reasoning_effort\": \"high\"");
    json_t *want = parse("{\"reasoning_effort\": \"high\"}");
    assert_true(json_equal(r.template_args, want));
    json_decref(want);
    completion_request_done(&r);
    r = chat("\"reasoning_effort\": \"none\", \"chat_template_kwargs\": {\"thinking\": true, \"x\": 1}");
    want =
        parse("{\"thinking\": true, \"x\": 1, \"enable_thinking\": false, \"reasoning_effort\": \"none\"}");
    assert_true(json_equal(r.template_args, want));
    json_decref(want);
    completion_request_done(&r);
    r = chat("\"enable_thinking\": true");
    assert_true(json_is_true(json_object_get(r.template_args, "thinking")));
    completion_request_done(&r);
    chat_refused("\"reasoning_effort\": \"huge\"", "reasoning_effort", "minimal");
    chat_refused("\"enable_thinking\": 1", "enable_thinking", "true or false");
    chat_refused("\"chat_template_kwargs\": 1", "chat_template_kwargs", "object");
}

static void continued_messages(void **state)
{
    (void)state;
    struct completion_request r = take(
        API_CHAT,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"so\"}], \"continue_final_message\": true}");
    assert_true(r.continues);
    completion_request_done(&r);
    r = take(
        API_CHAT,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"so\"}], \"continue_final_message\": true,"
        "\"add_generation_prompt\": false}");
    completion_request_done(&r);
    chat_refused("\"add_generation_prompt\": false", "add_generation_prompt", "continue_final_message");
    chat_refused("\"continue_final_message\": true", "continue_final_message", "last message");
    r = take(API_MESSAGES,
             "{\"max_tokens\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
             "\"assistant\", \"content\": \"so\"}]}");
    assert_true(r.continues);
    completion_request_done(&r);
}

static void text_requests(void **state)
{
    (void)state;
    struct completion_request r = take(API_COMPLETIONS, "{\"prompt\": \"a\", \"echo\": true}");
    assert_int_equal(r.nprompts, 1);
    assert_string_equal(r.prompts[0].text, "a");
    assert_int_equal(r.max_tokens, 16);
    assert_true(r.echo);
    completion_request_done(&r);
    r = take(API_COMPLETIONS, "{\"prompt\": [1, 2], \"max_tokens\": -1, \"logprobs\": 0}");
    assert_int_equal(r.nprompts, 1);
    assert_int_equal(json_array_size(r.prompts[0].token), 2);
    assert_int_equal(r.max_tokens, 0);
    assert_true(r.logprobs);
    assert_int_equal(r.top_logprobs, 0);
    completion_request_done(&r);
    r = take(API_COMPLETIONS, "{\"prompt\": [\"a\", \"b\", [3]], \"n\": 2, \"max_tokens\": 7}");
    assert_int_equal(r.nprompts, 3);
    assert_string_equal(r.prompts[1].text, "b");
    assert_int_equal(r.max_tokens, 7);
    completion_request_done(&r);
    r = take(API_COMPLETIONS,
             "{\"prompt\": "
             "[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"], \"n\": 2}");
    completion_request_done(&r);
    refused(API_COMPLETIONS, "{}", "prompt", "must be a text");
    refused(API_COMPLETIONS, "{\"prompt\": []}", "prompt", "1 to 32 texts");
    refused(API_COMPLETIONS, "{\"prompt\": [\"a\", []]}", "prompt", "token ids");
    refused(API_COMPLETIONS, "{\"prompt\": [1, -1]}", "prompt", "token ids");
    refused(API_COMPLETIONS, "{\"prompt\": [\"a\", \"b\"], \"n\": 17}", "n",
            "at most 32 answers, and ask for 34");
    refused(API_COMPLETIONS, "{\"prompt\": [1], \"echo\": true}", "echo", "needs \"logprobs\"");
    refused(API_COMPLETIONS, "{\"prompt\": \"a\", \"max_tokens\": 0}", "max_tokens", "without \"echo\"");
    refused(API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 0}",
            "max_tokens", "");
    r = take(API_COMPLETIONS,
             "{\"prompt\": [[1, 2], [3]], \"echo\": true, \"logprobs\": 1, \"max_tokens\": 0}");
    assert_true(r.echo && r.logprobs && r.has_no_answer);
    completion_request_done(&r);
    r = take(API_COMPLETIONS, "{\"prompt\": [1], \"echo\": true, \"logprobs\": 0, \"max_tokens\": 1}");
    assert_true(r.echo && r.logprobs && !r.has_no_answer && r.max_tokens == 1);
    completion_request_done(&r);
    text_refused("\"logprobs\": 21", "logprobs", "from 0 to 20");
}

static void anthropic_requests(void **state)
{
    (void)state;
    struct completion_request r = take(
        API_MESSAGES,
        "{" USER
        ", \"model\": \"m\", \"max_tokens\": 5, \"system\": \"s\", \"stop_sequences\": [\"X\"], \"top_k\": 3,"
        "\"temperature\": 0.5, \"stream\": true, \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": "
        "1024},"
        "\"tools\": [{\"name\": \"f\", \"description\": \"d\", \"input_schema\": {}}], \"metadata\": "
        "{\"user_id\": \"u\"},"
        "\"tool_choice\": {\"type\": \"tool\", \"name\": \"f\", \"disable_parallel_tool_use\": true},"
        "\"output_config\": {\"effort\": \"low\", \"format\": {\"type\": \"json_schema\", \"schema\": {}}}}");
    json_t *tools = parse("[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", "
                          "\"parameters\": {}}}]");
    json_t *args = parse("{\"enable_thinking\": true, \"thinking\": true, \"reasoning_effort\": \"low\"}");
    assert_true(json_equal(r.tools, tools));
    assert_true(json_equal(r.template_args, args));
    json_decref(tools);
    json_decref(args);
    assert_int_equal(json_array_size(r.messages), 2);
    assert_int_equal(r.tool_choice, TOOLS_NAMED);
    assert_true(r.one_call && r.stream);
    assert_int_equal(r.form, ANSWER_SCHEMA);
    assert_string_equal(r.stops[0], "X");
    assert_true(r.sampling.top_k == 3 && r.sampling.temperature == 0.5 && r.max_tokens == 5);
    completion_request_done(&r);
    r = take(API_MESSAGES, "{" USER ", \"max_tokens\": 5, \"thinking\": {\"type\": \"disabled\"}}");
    assert_true(json_is_false(json_object_get(r.template_args, "enable_thinking")));
    assert_false(r.continues);
    completion_request_done(&r);
    refused(API_MESSAGES, "{" USER "}", "max_tokens", "is missing");
    messages_refused("\"tools\": [{\"type\": \"web_search_20250305\"}]", "tools[0]", "web_search_20250305");
    messages_refused("\"tools\": [{\"name\": \"f\"}]", "tools[0]", "input_schema");
    messages_refused("\"tools\": [{\"name\": \"\", \"input_schema\": {}}]", "tools[0].name", "letters");
    messages_refused("\"tool_choice\": {\"type\": \"any\"}", "tool_choice", "no \"tools\"");
    messages_refused("\"tool_choice\": {\"type\": \"tool\"}", "tool_choice", "must have a \"type\"");
    messages_refused("\"tool_choice\": \"auto\"", "tool_choice", "must have a \"type\"");
    messages_refused("\"thinking\": {\"type\": \"maybe\"}", "thinking", "enabled");
    messages_refused("\"output_config\": {\"format\": {\"type\": \"xml\"}}", "output_config.format",
                     "json_schema");
    messages_refused("\"container\": \"c\"", "container", "not supported");
    messages_refused("\"stop_sequences\": [1]", "stop_sequences", "texts");
}

static void tokens_can_be_counted(void **state)
{
    (void)state;
    struct completion_request r;
    struct refusal refusal;
    json_t *json = parse("{" USER ", \"model\": \"m\"}");
    assert_int_equal(completion_request_read_count(&r, json, &refusal), 0);
    completion_request_done(&r);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(sampling_is_read),
        cmocka_unit_test(ranges_are_checked),
        cmocka_unit_test(stops_are_read),
        cmocka_unit_test(lacks_are_named),
        cmocka_unit_test(tools_are_read),
        cmocka_unit_test(bad_tools_are_refused),
        cmocka_unit_test(forms_are_read),
        cmocka_unit_test(reasoning_is_read),
        cmocka_unit_test(continued_messages),
        cmocka_unit_test(text_requests),
        cmocka_unit_test(anthropic_requests),
        cmocka_unit_test(tokens_can_be_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
