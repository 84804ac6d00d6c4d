/* SPDX-License-Identifier: MIT
 *
 * Conversations as prompts: the model's chat template writes the messages down, and the text becomes tokens. Called by
 * stage_head.c when a generation is planned, and by stage_generate.c for what is said after an answer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/stage_head.h"
#include "engine/text/chat.h"

/* The messages of the job, or one of its prompt, behind that of --system. */
static json_t *messages_of(const struct job_spec *s)
{
    if (s->messages)
        return json_incref((json_t *)s->messages);
    json_t *list = json_array();
    if (s->system)
        json_array_append_new(list, json_pack("{s:s,s:s}", "role", "system", "content", s->system));
    json_array_append_new(list, json_pack("{s:s,s:s}", "role", "user", "content", s->prompt));
    return list;
}

static int check_messages(const json_t *messages, struct err *err)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        if (!json_is_string(json_object_get(message, "role")))
            return err_set(err, -EINVAL, "message %zu has no \"role\" (system, user or assistant)", i + 1);
        if (json_is_object(content) || json_is_number(content) || json_is_boolean(content))
            return err_set(err, -EINVAL, "message %zu: its \"content\" must be a text", i + 1);
    }
    return json_array_size(messages) ? 0 : err_set(err, -EINVAL, "\"messages\" is empty");
}

/* The token that ends a turn also ends the answer, where generation_config.json forgets it. */
static void add_end(struct head *h, const struct chat_template *tpl)
{
    const char *text = chat_template_token(tpl, "eos_token");
    struct config *c = &h->config;
    uint32_t id;
    if (!text || tokenizer_id(h->tok, text, &id) || c->neos == CONFIG_MAX_EOS)
        return;
    for (size_t i = 0; i < c->neos; i++)
        if ((uint32_t)c->eos[i] == id)
            return;
    c->eos[c->neos++] = (int32_t)id;
}

int head_read_chat(struct head *h, struct err *err)
{
    struct chat_template *tpl = NULL;
    struct chat_text text = {0};
    json_t *messages = messages_of(&h->spec);
    struct chat_request req = {.messages = messages,
                               .tools = h->spec.tools,
                               .add_generation_prompt = true,
                               .extra = h->spec.template_args,
                               .now = time(NULL)};
    int r = check_messages(messages, err);
    if (!r)
        r = chat_template_open(&tpl, h->spec.model, err);
    if (!r)
        r = chat_render(tpl, &req, &text, err);
    if (!r && !h->tok)
        r = tokenizer_open(&h->tok, h->spec.model, err);
    free(h->ids);
    h->ids = NULL;
    /* The template has written what a post-processor would add. */
    if (!r)
        r = tokenizer_encode(h->tok, text.text, text.n, false, &h->ids, &h->nids, err);
    if (!r && !h->nids)
        r = err_set(err, -EINVAL, "the chat template makes nothing of these messages");
    if (!r)
        add_end(h, tpl);
    chat_text_done(&text);
    chat_template_close(tpl);
    json_decref(messages);
    return r;
}
