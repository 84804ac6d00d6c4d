/* SPDX-License-Identifier: MIT
 *
 * How a model writes what is more than plain text: its reasoning, and its calls of tools. The chat
 * template of the model shows it, because it writes the same for earlier turns. The formats are
 * those of Hermes and Qwen (github.com/NousResearch/Hermes-Function-Calling), Llama 3.x (Meta's
 * "Llama 3.1 model card and prompt formats"), gpt-oss (github.com/openai/harmony), and those that
 * the templates of DeepSeek V3, R1, V3.1 and V3.2, Kimi-K2, GLM-4.5, Qwen3-Coder, MiniMax-M2,
 * Mistral, Granite 3, Phi-4-mini and OLMo 3 show. Pure: any thread. */
#ifndef DAEMON_OPENAI_CHAT_FORMAT_H
#define DAEMON_OPENAI_CHAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

/* How a call looks behind its first marker. */
enum call_style {
    CALL_JSON,     /* {"name": …, "arguments" or "parameters": {…}} */
    CALL_DEEPSEEK, /* function SEP name \n ```json \n {…}, or in V3.1 name SEP {…} */
    CALL_KIMI,     /* functions.name:0 SEP {…}, with the number of the call */
    CALL_MISTRAL,  /* [ and then as CALL_JSON, or name [ARGS] {…} */
    CALL_MESSAGE,  /* the head of a message names the tool, and its text is {…} */
    /* Read once they are whole (call_marked.h): */
    CALL_GLM,      /* name <arg_key>k</arg_key> <arg_value>v</arg_value> … */
    CALL_FUNCTION, /* name> <parameter=k> v </parameter> … */
    CALL_INVOKE,   /* "name"> <parameter name="k">v</parameter> …; DeepSeek V3.2 has other tags */
    CALL_PYTHON,   /* a line for each call: name(k=v, …) */
};

enum { CALL_MARKERS = 4 };

/* Lists of markers end with NULL. */
struct call_format {
    const char *name; /* for an option that overrides the template: "hermes" */
    enum call_style style;
    const char *opens[CALL_MARKERS];  /* a list of calls: none of it is text */
    const char *begins[CALL_MARKERS]; /* a call */
    const char *ends[CALL_MARKERS];   /* a call or a list: skipped behind a call */
    const char *skips;                /* bytes that are skipped behind a call, as spaces are */
    const char *closes;               /* a call that is read once it is whole ends with this; else NULL */
    bool is_list;                     /* calls are a list in JSON: a { behind one begins the next */
    bool is_bare;    /* a { at the beginning of the answer begins a call, if it names a tool */
    bool takes_code; /* what follows a marker may be `tool.call(x="…")` or Python's code */
};

/* What a template shows. A format is a value; copy it as you like. */
struct chat_format {
    const struct call_format *calls; /* static, or NULL: the model has no tools that we know */
    bool reasons;                    /* the answer may begin with <think> */
    bool in_channels;                /* or it is messages in channels, with reasoning in one of them */
    bool calls_in_code;              /* of DeepSeek V3 and R1: arguments stand in ```json … ``` */
    bool calls_are_named;            /* of Mistral: a name stands before the arguments, not in JSON */
    bool arguments_are_text;         /* the template joins arguments to texts: they are no objects */
};

/* From the source of a chat template. */
struct chat_format chat_format_of(const char *chat_template, size_t n);
/* "hermes", "llama3", "deepseek", "dsml", "kimi", "harmony", "glm", "qwen3-coder", "minimax",
 * "mistral", "granite", "phi4" or "olmo3"; NULL where there is none of this name. */
const struct call_format *call_format_named(const char *name);

/* Does a prompt, as the template wrote it, end within reasoning that the answer goes on with? */
bool chat_format_opens_reasoning(const char *prompt, size_t n);

#endif
