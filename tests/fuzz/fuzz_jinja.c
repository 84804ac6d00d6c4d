/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a chat template, and behind a NUL any as the messages: refused with a sentence, or a
 * text. */
#include "tests/fuzz/lib/fuzz.h"

#include <assert.h>

#include "text/chat.h"

static json_t *messages_of(const char *text, size_t n)
{
    json_t *messages = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    if (messages)
        return messages;
    return json_pack("[{s:s,s:s},{s:s,s:s,s:[{s:{s:s,s:{s:i}}}]}]", "role", "user", "content", "a \xc3\xa9",
                     "role", "assistant", "content", "<think>b</think>c", "tool_calls", "function", "name",
                     "f", "arguments", "x", 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *nul = size ? memchr(text, '\0', size) : NULL;
    size_t n = nul ? (size_t)(nul - text) : size;
    struct err err = {""};
    struct chat_template *tpl;
    json_t *messages = nul ? messages_of(nul + 1, size - n - 1) : messages_of("", 0);
    json_t *tokens = json_pack("{s:s}", "bos_token", "<s>");
    struct chat_request req = {.messages = messages, .add_generation_prompt = true, .now = 1721952000};
    struct chat_text got;
    if (chat_template_parse(&tpl, text, n, tokens, &err)) {
        assert(err.text[0] && memchr(err.text, '\0', sizeof err.text));
    } else {
        if (chat_render(tpl, &req, &got, &err)) {
            assert(err.text[0] && memchr(err.text, '\0', sizeof err.text));
        } else {
            assert(got.text[got.n] == '\0');
            for (size_t i = 0; i < got.nspans; i++)
                assert(got.spans[i].start <= got.spans[i].end && got.spans[i].end <= got.n);
            chat_text_done(&got);
        }
        chat_template_close(tpl);
    }
    json_decref(tokens);
    json_decref(messages);
    return 0;
}
