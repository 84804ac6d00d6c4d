/* SPDX-License-Identifier: MIT
 *
 * The options of every command that reads a data set, as entries of its table: how the rows are
 * read and what of them is trained. The stage reads them in job_spec.c. */
#ifndef DAEMON_CTL_DATA_H
#define DAEMON_CTL_DATA_H

#include "daemon/ctl/ctl_options.h"
#include "daemon/common/spec_limits.h"

#define CTL_DATA_OPTIONS(seq_len_default)                                                                    \
    {.name = "mask",                                                                                         \
     .type = OPT_CHOICE,                                                                                     \
     .placeholder = "none|prompt|assistant",                                                                 \
     .def = "none",                                                                                          \
     .help = "exclude tokens from training: none; prompt: those before the completion or the last turn; "    \
             "assistant: all but the assistant's turns and their end tokens"},                               \
        {.name = "seq-len",                                                                                  \
         .type = OPT_INT,                                                                                    \
         .placeholder = "N",                                                                                 \
         .def = seq_len_default,                                                                             \
         .min = 2,                                                                                           \
         .max = SPEC_SEQ_LEN_MAX,                                                                            \
         .help = "limit each row to this many tokens"},                                                      \
        {.name = "overlong",                                                                                 \
         .type = OPT_CHOICE,                                                                                 \
         .placeholder = "truncate|split|drop",                                                               \
         .def = "truncate",                                                                                  \
         .help = "what happens to a row longer than --seq-len: truncate cuts its end, split makes several "  \
                 "rows, drop leaves it out"},                                                                \
        {.name = "text-field",                                                                               \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "name of the field with a row's text (default: text)"},                                     \
        {.name = "prompt-field",                                                                             \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "name of the field with a row's prompt (default: prompt)"},                                 \
        {.name = "completion-field",                                                                         \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "name of the field with a row's completion (default: completion)"},                         \
        {.name = "messages-field",                                                                           \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "name of the field with a conversation's turns (default: messages or conversations)"},      \
        {.name = "tools-field",                                                                              \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "name of the field with the functions that a conversation may use (default: tools)"},       \
        OPTION_TEMPLATE_ARG("set a variable of the chat template, such as enable_thinking=false")

#define CTL_PACKING_OPTION                                                                                   \
    {                                                                                                        \
        .name = "packing", .type = OPT_FLAG,                                                                 \
        .help = "pack several rows into --seq-len tokens, each with its own positions and attention; "       \
                "options that count rows then count packs"                                                   \
    }

#endif
