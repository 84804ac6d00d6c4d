/* SPDX-License-Identifier: MIT
 *
 * The options of every command that reads a data set, as entries of its table: how the rows are
 * read and what of them is trained. The stage reads them in stage_spec.c. */
#ifndef DAEMON_CTL_DATA_H
#define DAEMON_CTL_DATA_H

#include "daemon/ctl/ctl_options.h"
#include "daemon/common/spec_limits.h"

#define CTL_DATA_OPTIONS(seq_len_default)                                                                    \
    {.name = "mask",                                                                                         \
     .type = OPT_CHOICE,                                                                                     \
     .placeholder = "none|prompt|assistant",                                                                 \
     .def = "none",                                                                                          \
     .help = "which tokens of a row are not trained: none; those before the completion or the last "         \
             "turn; all but the assistant's turns and the tokens that end them"},                            \
        {.name = "seq-len",                                                                                  \
         .type = OPT_INT,                                                                                    \
         .placeholder = "N",                                                                                 \
         .def = seq_len_default,                                                                             \
         .min = 2,                                                                                           \
         .max = SPEC_SEQ_LEN_MAX,                                                                            \
         .help = "tokens per row at most"},                                                                  \
        {.name = "overlong",                                                                                 \
         .type = OPT_CHOICE,                                                                                 \
         .placeholder = "truncate|split|drop",                                                               \
         .def = "truncate",                                                                                  \
         .help = "a row longer than --seq-len: cut its end off, make several rows of it, or leave it out"},  \
        {.name = "text-field",                                                                               \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "what rows call their text (default text)"},                                                \
        {.name = "prompt-field",                                                                             \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "what rows call a prompt (default prompt)"},                                                \
        {.name = "completion-field",                                                                         \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "what rows call its completion (default completion)"},                                      \
        {.name = "messages-field",                                                                           \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "what rows call the turns of a conversation (default messages or conversations)"},          \
        {.name = "tools-field",                                                                              \
         .type = OPT_STRING,                                                                                 \
         .placeholder = "KEY",                                                                               \
         .help = "what rows call the functions a conversation may use (default tools)"},                     \
        OPTION_TEMPLATE_ARG("a variable of the chat template, as enable_thinking=false")

#define CTL_PACKING_OPTION                                                                                   \
    {                                                                                                        \
        .name = "packing", .type = OPT_FLAG,                                                                 \
        .help = "lay as many rows into --seq-len tokens as fit, each with its own positions and attention; " \
                "what counts rows then counts these packs"                                                   \
    }

#endif
