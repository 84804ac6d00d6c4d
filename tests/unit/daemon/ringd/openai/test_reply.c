/* SPDX-License-Identifier: MIT
 *
 * Answers as clients get them: whole and in a stream, in the forms of three APIs. The forms were
 * compared with what the npm packages openai and @anthropic-ai/sdk read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/openai/reply.h"

#define USER "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"
#define TOOLS "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"
#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"

struct world {
    struct completion_request request;
    struct reply *reply;
    struct out_text out;
    bool goes_on;
};

static void begin(struct world *w, enum completion_api api, const char *text, bool in_reasoning)
{
    struct refusal refusal;
    json_error_t where;
    json_t *json = json_loads(text, 0, &where);
    *w = (struct world){.goes_on = true};
    if (!json || completion_request_read(&w->request, api, json, &refusal))
        fail_msg("%s: %s", json ? refusal.text : where.text, text);
    json_decref(json);
    w->reply = reply_new(&(struct reply_setup){.request = &w->request,
                                               .format = {call_format_named("hermes"), true, false},
                                               .in_reasoning = in_reasoning,
                                               .id = "7",
                                               .model = "m",
                                               .created = 100});
    reply_prompt(w->reply, 10, 4);
    reply_start(w->reply, &w->out);
}

static void done(struct world *w)
{
    reply_free(w->reply);
    completion_request_done(&w->request);
    out_text_done(&w->out);
}

static void say(struct world *w, size_t choice, const char *text)
{
    static const struct likely_text top[] = {{"x", 1, -0.5}, {"\xe4\xbd", 2, -INFINITY}};
    const struct reply_token token = {{text, strlen(text), -0.25}, top, w->request.top_logprobs};
    w->goes_on = reply_token(w->reply, choice, &token, &w->out);
}

static void finish(struct world *w, enum reply_ending ending)
{
    reply_end(w->reply, 0, ending, &w->out);
    reply_finish(w->reply, &w->out);
}

static void is(struct world *w, const char *want)
{
    if (strcmp(w->out.data ? w->out.data : "", want) != 0)
        fail_msg("is\n%s\nand should be\n%s", w->out.data, want);
    out_text_clear(&w->out);
}

#define CHUNK                                                                                                \
    "data: "                                                                                                 \
    "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":100,\"model\":\"m\","           \
    "\"choices\":"
#define DELTA(index, delta, reason)                                                                          \
    CHUNK "[{\"index\":" index ",\"delta\":" delta ",\"logprobs\":null,\"finish_reason\":" reason "}]}\n\n"
#define BODY                                                                                                 \
    "{\"id\":\"chatcmpl-7\",\"object\":\"chat.completion\",\"created\":100,\"model\":\"m\",\"choices\":"
#define USAGE(n, all, thought)                                                                               \
    "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":" n ",\"total_tokens\":" all                      \
    ",\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_"           \
    "tokens\":" thought "}}"

static void chat_stream(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_CHAT, "{" USER ", \"stream\": true}", false);
    is(&w, DELTA("0", "{\"role\":\"assistant\",\"content\":\"\"}", "null"));
    say(&w, 0, "H\xc3");
    is(&w, DELTA("0", "{\"content\":\"H\"}", "null"));
    say(&w, 0, "\xa9");
    is(&w, DELTA("0", "{\"content\":\"\xc3\xa9\"}", "null"));
    reply_ping(w.reply, &w.out);
    is(&w, ": ping\n\n");
    finish(&w, REPLY_STOPPED);
    is(&w, DELTA("0", "{}", "\"stop\"") "data: [DONE]\n\n");
    done(&w);
}

static void chat_stream_of_two(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_CHAT,
          "{" USER
          ", \"stream\": true, \"n\": 2, \"stop\": \"Z\", \"stream_options\": {\"include_usage\": true}}",
          true);
    out_text_clear(&w.out);
    say(&w, 1, "t");
    is(&w, CHUNK "[{\"index\":1,\"delta\":{\"reasoning_content\":\"t\"},\"logprobs\":null,\"finish_reason\":"
                 "null}],\"usage\":null}"
                 "\n\n");
    say(&w, 0, "</think>a");
    say(&w, 0, "bZ");
    assert_false(w.goes_on);
    out_text_clear(&w.out);
    reply_end(w.reply, 0, REPLY_STOPPED, &w.out);
    reply_end(w.reply, 0, REPLY_CUT, &w.out); /* nothing, the second time */
    is(&w,
       CHUNK "[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null}\n\n");
    reply_end(w.reply, 1, REPLY_CUT, &w.out);
    is(&w, CHUNK
       "[{\"index\":1,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":null}\n\n");
    reply_finish(w.reply, &w.out);
    is(&w, CHUNK "[]," USAGE("3", "13", "2") "}\n\ndata: [DONE]\n\n");
    assert_int_equal(reply_completion_tokens(w.reply), 3);
    done(&w);
}

static void chat_stream_with_calls(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_CHAT, "{" USER ", \"stream\": true, " TOOLS "}", false);
    out_text_clear(&w.out);
    say(&w, 0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":");
    is(&w, DELTA("0",
                 "{\"tool_calls\":[{\"index\":0,\"id\":\"call_700000\",\"type\":\"function\",\"function\":{"
                 "\"name\":\"f\","
                 "\"arguments\":\"\"}}]}",
                 "null")
               DELTA("0", "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\":\"}}]}",
                     "null"));
    say(&w, 0, " 1}}\n</tool_call>" CALL);
    is(&w, DELTA("0", "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\" 1}\"}}]}",
                 "null") DELTA("0",
                               "{\"tool_calls\":[{\"index\":1,\"id\":\"call_700001\",\"type\":\"function\","
                               "\"function\":{\"name\":\"f\","
                               "\"arguments\":\"\"}}]}",
                               "null")
               DELTA("0", "{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{\\\"a\\\": 1}\"}}]}",
                     "null"));
    finish(&w, REPLY_STOPPED);
    is(&w, DELTA("0", "{}", "\"tool_calls\"") "data: [DONE]\n\n");
    done(&w);
}

static void chat_whole(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_CHAT, "{" USER ", " TOOLS "}", false);
    say(&w, 0, "<think>t</think>Hi ");
    say(&w, 0, "there\n" CALL);
    assert_null(w.out.data);
    finish(&w, REPLY_STOPPED);
    is(&w, BODY "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hi "
                "there\",\"refusal\":null,\"reasoning_content\":"
                "\"t\",\"tool_calls\":[{\"id\":\"call_700000\",\"type\":\"function\",\"function\":{\"name\":"
                "\"f\",\"arguments\":"
                "\"{\\\"a\\\": 1}\"}}]},\"logprobs\":null,\"finish_reason\":\"tool_calls\"}]," USAGE(
                    "2", "12", "0") "}");
    done(&w);
    begin(&w, API_CHAT, "{" USER ", \"tool_choice\": \"none\", " TOOLS "}", false);
    say(&w, 0, CALL);
    finish(&w, REPLY_CUT);
    assert_non_null(strstr(w.out.data, "\"content\":\"<tool_call>"));
    assert_non_null(strstr(w.out.data, "\"finish_reason\":\"length\""));
    done(&w);
    begin(&w, API_CHAT, "{" USER ", " TOOLS "}", false);
    say(&w, 0, CALL "<tool_call>{\"name\": \"g\"}</tool_call>");
    finish(&w, REPLY_STOPPED);
    assert_non_null(strstr(w.out.data, "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}"));
    assert_non_null(strstr(w.out.data, "{\"name\":\"g\",\"arguments\":\"{}\"}"));
    done(&w);
    begin(&w, API_CHAT, "{" USER ", \"parallel_tool_calls\": false, " TOOLS "}", false);
    say(&w, 0, CALL "more");
    assert_false(w.goes_on);
    finish(&w, REPLY_STOPPED);
    assert_non_null(strstr(w.out.data, "\"content\":null"));
    done(&w);
}

#define LIKELY                                                                                               \
    "\"top_logprobs\":[{\"token\":\"x\",\"logprob\":-0.5,\"bytes\":[120]},{\"token\":\"\xef\xbf\xbd\","      \
    "\"logprob\":-9999.0,"                                                                                   \
    "\"bytes\":[228,189]}]"

static void chat_logprobs(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_CHAT,
          "{" USER ", \"stream\": true, \"logprobs\": true, \"top_logprobs\": 2, \"stop\": \"abc\"}", false);
    out_text_clear(&w.out);
    say(&w, 0, "ab"); /* may become a stop string: its logprobs wait with it */
    is(&w, "");
    say(&w, 0, "\xc3");
    say(&w, 0, "\xa9");
    is(&w,
       CHUNK "[{\"index\":0,\"delta\":{\"content\":\"ab\xc3\xa9\"},\"logprobs\":{\"content\":["
             "{\"token\":\"ab\",\"logprob\":-0.25,\"bytes\":[97,98]," LIKELY "},"
             "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.25,\"bytes\":[195]," LIKELY "},"
             "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.25,\"bytes\":[169]," LIKELY "}],\"refusal\":null},"
             "\"finish_reason\":null}]}\n\n");
    say(&w, 0, "abc");
    assert_false(w.goes_on);
    is(&w, "");
    reply_end(w.reply, 0, REPLY_STOPPED, &w.out);
    assert_non_null(strstr(w.out.data, "\"token\":\"abc\""));
    done(&w);
    /* tokens whose text is held for long */
    begin(&w, API_CHAT, "{" USER ", \"stream\": true, \"logprobs\": true, " TOOLS "}", false);
    out_text_clear(&w.out);
    say(&w, 0, "<tool_call>{\"x\": \"");
    for (size_t i = 0; i < 100; i++)
        say(&w, 0, "y");
    assert_non_null(strstr(w.out.data, "\"delta\":{},\"logprobs\":{\"content\":[{"));
    done(&w);
}

#define TEXT_CHUNK                                                                                           \
    "{\"id\":\"cmpl-7\",\"object\":\"text_completion\",\"created\":100,\"model\":\"m\",\"choices\":"

static void text_forms(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_COMPLETIONS, "{\"prompt\": \"say \", \"stream\": true, \"echo\": true}", false);
    is(&w,
       "data: " TEXT_CHUNK "[{\"index\":0,\"text\":\"say \",\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    say(&w, 0, "<think>a</think>");
    is(&w, "data: " TEXT_CHUNK
           "[{\"index\":0,\"text\":\"<think>a</think>\",\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    finish(&w, REPLY_CUT);
    is(&w,
       "data: " TEXT_CHUNK
       "[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n");
    done(&w);
    begin(&w, API_COMPLETIONS,
          "{\"prompt\": \"a\", \"stream\": true, \"stream_options\": {\"include_usage\": true}}", false);
    say(&w, 0, "b");
    assert_non_null(strstr(w.out.data, "\"finish_reason\":null}],\"usage\":null}"));
    out_text_clear(&w.out);
    finish(&w, REPLY_STOPPED);
    assert_non_null(strstr(w.out.data, TEXT_CHUNK "[]," USAGE("1", "11", "0") "}"));
    done(&w);
    begin(&w, API_COMPLETIONS, "{\"prompt\": [\"p\", \"q\"], \"echo\": true}", false);
    say(&w, 1, "1");
    say(&w, 0, "0");
    reply_end(w.reply, 1, REPLY_STOPPED, &w.out);
    finish(&w, REPLY_STOPPED);
    is(&w, TEXT_CHUNK "[{\"index\":0,\"text\":\"p0\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
                      "{\"index\":1,\"text\":\"q1\",\"logprobs\":null,\"finish_reason\":\"stop\"}]," USAGE(
                          "2", "12", "0") "}");
    done(&w);
}

static void text_logprobs(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_COMPLETIONS, "{\"prompt\": \"a\", \"logprobs\": 2}", false);
    say(&w, 0, "\xc3\xa9");
    say(&w, 0, "\xe4");
    say(&w, 0, "\xbd\xa0");
    say(&w, 0, "b");
    finish(&w, REPLY_STOPPED);
    const char *top = "{\"x\":-0.5,\"bytes:\\\\xe4\\\\xbd\":-9999.0}";
    char want[1000];
    snprintf(want, sizeof want,
             "\"logprobs\":{\"tokens\":[\"\xc3\xa9\",\"bytes:\\\\xe4\",\"bytes:\\\\xbd\\\\xa0\",\"b\"],"
             "\"token_logprobs\":[-0.25,"
             "-0.25,-0.25,-0.25],\"top_logprobs\":[%s,%s,%s,%s],\"text_offset\":[0,1,2,2]}",
             top, top, top, top);
    if (!strstr(w.out.data, want))
        fail_msg("%s\nis not in\n%s", want, w.out.data);
    done(&w);
}

/* A token of prompt 0; each of the likeliest has the same text. */
static void echo(struct world *w, const char *text, bool is_first)
{
    const struct likely_text top[] = {{"x", 1, -0.5}, {"x", 1, -2}};
    const struct reply_token token = {{text, strlen(text), -1.5}, top, is_first ? 0 : 2};
    assert_true(reply_prompt_token(w->reply, 0, &token, is_first, &w->out));
}

static void has(const struct world *w, const char *wanted)
{
    if (!w->out.data || !strstr(w->out.data, wanted))
        fail_msg("%s\nis not in\n%s", wanted, w->out.data);
}

static void echoed_logprobs(void **state)
{
    struct world w;
    (void)state;
    /* <s> and the space before the text are the tokenizer's; é is two tokens. */
    begin(&w, API_COMPLETIONS,
          "{\"prompt\": \"say \u00e9 it\", \"echo\": true, \"logprobs\": 2, \"max_tokens\": 1}", false);
    echo(&w, "<s>", true);
    echo(&w, " say", false);
    echo(&w, " ", false);
    echo(&w, "", false);
    echo(&w, "\xc3\xa9", false);
    echo(&w, " it", false);
    say(&w, 0, "!");
    finish(&w, REPLY_CUT);
    has(&w, "\"text\":\"say \xc3\xa9 it!\"");
    has(&w, "\"tokens\":[\"<s>\",\" say\",\" \",\"\",\"\xc3\xa9\",\" it\",\"!\"],"
            "\"token_logprobs\":[null,-1.5,-1.5,-1.5,-1.5,-1.5,-0.25],\"top_logprobs\":[null,{\"x\":-0.5},");
    has(&w, "\"text_offset\":[0,0,3,4,4,5,8]");
    done(&w);
    /* The text of tokens is that of the tokens, in each of the answers. */
    begin(&w, API_COMPLETIONS, "{\"prompt\": [1, 2], \"echo\": true, \"logprobs\": 0, \"n\": 2}", false);
    echo(&w, "<s>", true);
    echo(&w, "ab", false);
    say(&w, 1, "1");
    say(&w, 0, "0");
    reply_end(w.reply, 1, REPLY_CUT, &w.out);
    finish(&w, REPLY_CUT);
    has(&w, "\"text\":\"<s>ab0\"");
    has(&w, "\"text\":\"<s>ab1\"");
    has(&w, "\"text_offset\":[0,3,5]");
    done(&w);
    begin(&w, API_COMPLETIONS, "{\"prompt\": [1, 2], \"echo\": true, \"logprobs\": 0, \"stream\": true}",
          false);
    echo(&w, "a", true);
    has(&w, "\"text\":\"a\",\"logprobs\":{\"tokens\":[\"a\"],\"token_logprobs\":[null]");
    done(&w);
}

#define EVENT(name, rest) "event: " name "\ndata: {" rest "\"type\":\"" name "\"}\n\n"

static void anthropic_stream(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_MESSAGES,
          "{" USER
          ", \"max_tokens\": 9, \"stream\": true, \"tools\": [{\"name\": \"f\", \"input_schema\": {}}]}",
          false);
    is(&w, EVENT("message_start", "\"message\":{\"id\":\"msg_7\",\"type\":\"message\",\"role\":\"assistant\","
                                  "\"model\":\"m\",\"content\":[],"
                                  "\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":6,"
                                  "\"cache_creation_input_tokens\":0,"
                                  "\"cache_read_input_tokens\":4,\"output_tokens\":0}},") EVENT("ping", ""));
    say(&w, 0, "<think>t</think>Hi" CALL);
    is(&w,
       EVENT("content_block_start",
             "\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"},")
           EVENT("content_block_delta",
                 "\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"t\"},")
               EVENT("content_block_stop", "\"index\":0,") EVENT(
                   "content_block_start", "\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"},")
                   EVENT("content_block_delta",
                         "\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"},")
                       EVENT("content_block_stop", "\"index\":1,")
                           EVENT("content_block_start",
                                 "\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":"
                                 "\"toolu_700000\",\"name\":\"f\",\"input\":{}},")
                               EVENT("content_block_delta",
                                     "\"index\":2,\"delta\":{\"type\":\"input_json_delta\","
                                     "\"partial_json\":\"{\\\"a\\\": 1}\"},"));
    reply_ping(w.reply, &w.out);
    is(&w, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    finish(&w, REPLY_STOPPED);
    is(&w,
       EVENT("content_block_stop", "\"index\":2,") EVENT(
           "message_delta",
           "\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":6,"
           "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,\"output_tokens\":1},")
           EVENT("message_stop", ""));
    done(&w);
}

static void anthropic_whole(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_MESSAGES,
          "{" USER ", \"max_tokens\": 9, \"stop_sequences\": [\"Z\"], \"tools\": [{\"name\": \"f\", "
          "\"input_schema\": {}}]}",
          true);
    say(&w, 0, "t</think>Hi" CALL "Z");
    assert_false(w.goes_on);
    finish(&w, REPLY_STOPPED);
    is(&w, "{\"id\":\"msg_7\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{"
           "\"type\":\"thinking\","
           "\"thinking\":\"t\",\"signature\":\"\"},{\"type\":\"text\",\"text\":\"Hi\"},{\"type\":\"tool_"
           "use\",\"id\":\"toolu_700000\","
           "\"name\":\"f\",\"input\":{\"a\":1}}],\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"Z\","
           "\"usage\":{\"input_tokens\""
           ":6,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,\"output_tokens\":1}}");
    done(&w);
    begin(&w, API_MESSAGES, "{" USER ", \"max_tokens\": 1}", false);
    say(&w, 0, "H");
    finish(&w, REPLY_CUT);
    assert_non_null(strstr(w.out.data, "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null"));
    done(&w);
}

static void failures(void **state)
{
    struct refusal refusal;
    struct world w;
    (void)state;
    refusal_set(&refusal, REFUSAL_INTERNAL, NULL, "node b is gone");
    begin(&w, API_CHAT, "{" USER ", \"stream\": true}", false);
    out_text_clear(&w.out);
    reply_fail(w.reply, &refusal, &w.out);
    is(&w, "data: {\"error\":{\"message\":\"node b is "
           "gone\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n");
    done(&w);
    begin(&w, API_CHAT, "{" USER "}", false);
    reply_ping(w.reply, &w.out);
    is(&w, "");
    reply_fail(w.reply, &refusal, &w.out);
    is(&w,
       "{\"error\":{\"message\":\"node b is gone\",\"type\":\"server_error\",\"param\":null,\"code\":null}}");
    done(&w);
    begin(&w, API_MESSAGES, "{" USER ", \"max_tokens\": 1, \"stream\": true}", false);
    out_text_clear(&w.out);
    reply_fail(w.reply, &refusal, &w.out);
    is(&w, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"node b "
           "is gone\"}}\n\n");
    done(&w);
}

/* What waits for the end of an answer has a bound. */
static void held_is_bounded(void **state)
{
    struct world w;
    (void)state;
    begin(&w, API_CHAT, "{" USER ", \"logprobs\": true, \"top_logprobs\": 2}", false);
    size_t n = 0;
    while (w.goes_on && n < REPLY_HELD_MAX / 1000) {
        say(&w, 0, "");
        n++;
    }
    assert_false(w.goes_on);
    finish(&w, REPLY_STOPPED);
    assert_non_null(strstr(w.out.data, "\"finish_reason\":\"length\""));
    done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_stream),
        cmocka_unit_test(chat_stream_of_two),
        cmocka_unit_test(chat_stream_with_calls),
        cmocka_unit_test(chat_whole),
        cmocka_unit_test(chat_logprobs),
        cmocka_unit_test(text_forms),
        cmocka_unit_test(text_logprobs),
        cmocka_unit_test(echoed_logprobs),
        cmocka_unit_test(anthropic_stream),
        cmocka_unit_test(anthropic_whole),
        cmocka_unit_test(failures),
        cmocka_unit_test(held_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
