/* SPDX-License-Identifier: MIT
 *
 * The beginning of a call of a tool, up to the first bracket of its arguments: there a stream can
 * say which tool is called. And calls that are read as a whole. Pure: any thread. */
#ifndef DAEMON_OPENAI_CALL_HEAD_H
#define DAEMON_OPENAI_CALL_HEAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/ringd/openai/chat_format.h"

enum {
    CALL_NAME_MAX = 128,     /* bytes of a tool's name */
    CALL_HEAD_MAX = 1024,    /* bytes of a head */
    CALL_BYTES_MAX = 1 << 20 /* bytes of a whole call; a longer one is text */
};

enum call_head_state {
    CALL_HEAD_MORE,  /* it may become one */
    CALL_HEAD_FOUND, /* the text ends with the first bracket of the arguments */
    CALL_HEAD_NONE,  /* it does not begin so */
};

/* Reads the head of a call from all that follows the call's marker. */
enum call_head_state call_head_read(enum call_style style, const char *text, size_t n,
                                    char ret_name[CALL_NAME_MAX + 1]);

/* Reads a whole call in JSON whose members stand in another order or form: also {"type":
 * "function", "function": {…}}, and arguments that are a text of JSON. *ret_arguments: compact
 * JSON of an object, for the caller to free. False: it is no call. */
bool call_read_whole(const char *text, size_t n, char ret_name[CALL_NAME_MAX + 1], char **ret_arguments);
/* Reads `tool.call(key="value", …)`, as Llama 3.1 calls what it brings along. */
bool call_read_python(const char *text, size_t n, char ret_name[CALL_NAME_MAX + 1], char **ret_arguments);
/* Is it an object in JSON? */
bool call_is_object(const char *text, size_t n);

#endif
