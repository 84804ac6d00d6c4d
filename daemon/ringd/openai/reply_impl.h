/* SPDX-License-Identifier: MIT
 *
 * Inside an answer (reply.c), and what its three forms fill in (reply_chat.c, reply_text.c,
 * reply_messages.c). */
#ifndef DAEMON_OPENAI_REPLY_IMPL_H
#define DAEMON_OPENAI_REPLY_IMPL_H

#include "daemon/ringd/openai/reply.h"
#include "daemon/ringd/openai/text_parts.h"

struct reply_choice {
    struct reply *reply; /* borrowed: it owns this */
    size_t index;
    struct text_parts *parts; /* owned */
    struct out_text *out;     /* borrowed: of the call under way */
    bool is_over;             /* reply_end was called */
    enum reply_ending ending;
    /* of an answer that is no stream: all of it */
    struct out_text text, reasoning;
    json_t *calls;             /* owned: as the API writes them, with "arguments" open */
    struct out_text arguments; /* of the last call */
    json_t *logprobs;          /* owned: of a stream those that no chunk had yet; NULL: none */
    size_t offset;             /* of the next token: characters of the text */
    size_t echoed;             /* bytes of the prompt's text before the next token of the prompt */
    /* of Anthropic's stream */
    size_t block;
    int block_kind; /* enum text_part_kind of the open block, −1: none is open */
};

/* One of the three forms. */
struct reply_form {
    const char *prefix; /* of the id */
    void (*start)(struct reply *r, struct out_text *out);
    void (*part)(struct reply_choice *c, const struct text_part *part); /* of a stream */
    void (*logprobs)(struct reply_choice *c);              /* the same: those that no chunk had yet */
    void (*end)(struct reply_choice *c);                   /* the same */
    void (*finish)(struct reply *r, struct out_text *out); /* the same */
    json_t *(*whole)(struct reply *r);
};

extern const struct reply_form reply_form_chat, reply_form_text, reply_form_messages;

struct reply {
    struct reply_setup setup;
    const struct reply_form *form;
    char id[16 + REPLY_ID_MAX];   /* with its prefix */
    struct reply_choice *choices; /* owned [nchoices] */
    size_t nchoices;
    size_t tokens, reasoning_tokens;
    size_t prompt_tokens, cached_tokens; /* of all prompts so far */
    size_t held;                         /* bytes that wait for the end, roughly */
};

/* A call's id: "call_" or "toolu_", that of the answer, and two numbers. */
enum { REPLY_CALL_ID = 32 + REPLY_ID_MAX };
void reply_call_id(const struct reply_choice *c, const char *prefix, size_t call, char ret[REPLY_CALL_ID]);
/* The usage of OpenAI. */
json_t *reply_usage(const struct reply *r);
/* "stop", "length" or "tool_calls". */
const char *reply_finish_reason(const struct reply_choice *c);
/* The logprobs that no chunk had yet, or null. */
json_t *reply_take_logprobs(struct reply_choice *c);
json_t *reply_json_text(const struct out_text *text);

#endif
