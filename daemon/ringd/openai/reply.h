/* SPDX-License-Identifier: MIT
 *
 * An answer on its way to a client: tokens of the model go in, the body of the answer comes out.
 * For a stream that is text/event-stream (WHATWG HTML, section 9.2) piece by piece, else one JSON
 * object at the end. The request says which of three APIs it is for: OpenAI's chat
 * ("chat.completion" and "chat.completion.chunk" in its reference), OpenAI's completions
 * ("text_completion"), Anthropic's messages ("Streaming messages" in its reference).
 *
 * The order of calls: reply_new, reply_prompt, reply_start, for each choice reply_token until it
 * returns false or the model has ended, then reply_end; when all choices have ended reply_finish.
 * reply_fail may take the place of everything after reply_start. Choices may be interleaved;
 * Anthropic's API has one. What is to be sent is added to `out`, which may stay empty. Pure: one
 * thread at a time. */
#ifndef DAEMON_OPENAI_REPLY_H
#define DAEMON_OPENAI_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "daemon/ringd/openai/chat_format.h"
#include "daemon/ringd/openai/completion_request.h"
#include "daemon/ringd/openai/logprobs.h"
#include "daemon/ringd/openai/out_text.h"

enum {
    REPLY_ID_MAX = 40,         /* bytes of an id */
    REPLY_HELD_MAX = 32 << 20, /* bytes of an answer that is held until it is whole, roughly */
};

struct reply_setup {
    const struct completion_request *request; /* borrowed: until reply_free */
    struct chat_format format;                /* of the model; not for API_COMPLETIONS */
    bool in_reasoning;                        /* the prompt has opened it (chat_format_opens_reasoning) */
    /* copied: letters and digits that no other answer has; "chatcmpl-" or the like is put before */
    const char *id;
    const char *model; /* borrowed: until reply_free; as the answer calls it */
    time_t created;
};

enum reply_ending {
    REPLY_STOPPED, /* the model has ended it, or reply_token has returned false */
    REPLY_CUT,     /* by max_tokens or the context */
};

struct reply;

struct reply *reply_new(const struct reply_setup *setup);
void reply_free(struct reply *reply);

/* Tokens of one of its prompts, and how many of them were computed before. The usage at the end
  * counts all prompts. Anthropic's API has one prompt, and its usage at the beginning as well. */
void reply_prompt(struct reply *reply, size_t tokens, size_t cached);
/* What a client sees before the first token. */
void reply_start(struct reply *reply, struct out_text *out);
/* With "echo" and "logprobs": a token of that prompt, in their order, before all tokens of its
 * answers. is_first: it follows nothing, and nothing is said of how likely it was. False: the
 * answer would be larger than REPLY_HELD_MAX. */
bool reply_prompt_token(struct reply *reply, size_t prompt, const struct reply_token *token, bool is_first,
                        struct out_text *out);
/* A token of a choice, without the one that ends a turn. Its text has special tokens, because
 * formats of calls are written with them. False: the choice has ended, by a stop string, its last
 * call, or REPLY_HELD_MAX; no more tokens are wanted. */
bool reply_token(struct reply *reply, size_t choice, const struct reply_token *token, struct out_text *out);
/* No more tokens of this choice come. Once for each choice. */
void reply_end(struct reply *reply, size_t choice, enum reply_ending ending, struct out_text *out);
/* The end of the stream, or the whole body. */
void reply_finish(struct reply *reply, struct out_text *out);
/* In a stream that has begun: an error event, after which it ends. Without a stream: the body of
 * the error; refusal_openai_status and refusal_anthropic_status say its status. */
void reply_fail(struct reply *reply, const struct refusal *refusal, struct out_text *out);
/* Something that clients skip, while a stream has nothing to say. */
void reply_ping(const struct reply *reply, struct out_text *out);

size_t reply_completion_tokens(const struct reply *reply);

#endif
