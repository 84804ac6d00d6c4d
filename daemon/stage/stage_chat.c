/* SPDX-License-Identifier: MIT
 *
 * Conversations as prompts: the model's chat template writes the messages down, and the text
 * becomes tokens. Called by stage_head.c when a generation is planned, by stage_generate.c for what
 * is said after an answer, and by stage_text.c. */
#include "daemon/stage/stage_chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/stage/plan/stage_head.h"

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

int chat_prompt_render(struct chat_prompt *ret, const struct chat_template *tpl, const char *model,
                       struct tokenizer **tok, const struct chat_request *req, struct err *err)
{
    struct chat_prompt p = {0};
    int r = check_messages(req->messages, err);
    if (!r)
        r = chat_render(tpl, req, &p.text, err);
    if (!r && tok && !*tok)
        r = tokenizer_open(tok, model, err);
    /* The template has written what a post-processor would add. */
    if (!r && tok)
        r = tokenizer_encode(*tok, p.text.text, p.text.n, false, &p.ids, &p.n, err);
    if (!r && tok && !p.n)
        r = err_set(err, -EINVAL, "the chat template makes an empty text of these messages");
    const char *end = r ? NULL : chat_template_token(tpl, "eos_token");
    p.end = end ? strdup(end) : NULL;
    if (r)
        chat_prompt_done(&p);
    else
        *ret = p;
    return r;
}

int chat_prompt_read(struct chat_prompt *ret, const char *model, struct tokenizer **tok,
                     const struct chat_request *req, struct err *err)
{
    struct chat_template *tpl = NULL;
    int r = chat_template_open(&tpl, model, err);
    if (!r)
        r = chat_prompt_render(ret, tpl, model, tok, req, err);
    chat_template_close(tpl);
    return r;
}

void chat_prompt_done(struct chat_prompt *p)
{
    chat_text_done(&p->text);
    free(p->end);
    free(p->ids);
}

/* The token that ends a turn also ends the answer, where generation_config.json forgets it. */
static void add_end(struct head *h, const char *text)
{
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
    struct chat_prompt prompt = {0};
    json_t *messages = messages_of(&h->spec);
    struct chat_request req = {.messages = messages,
                               .tools = h->spec.tools,
                               .add_generation_prompt = true,
                               .extra = h->spec.template_args,
                               .now = time(NULL)};
    int r = chat_prompt_read(&prompt, h->spec.model, &h->tok, &req, err);
    free(h->ids);
    h->ids = prompt.ids;
    h->nids = prompt.n;
    prompt.ids = NULL;
    if (!r)
        add_end(h, prompt.end);
    chat_prompt_done(&prompt);
    json_decref(messages);
    return r;
}
