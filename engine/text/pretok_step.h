/* SPDX-License-Identifier: MIT
 *
 * One step of a pre-tokenizer: shared by pretok_parse.c, which makes it, and pretok.c, which
 * applies it. */
#ifndef TEXT_PRETOK_STEP_H
#define TEXT_PRETOK_STEP_H

#include <stdbool.h>

#include "text/textbuf.h"

struct pattern;

enum pretok_kind {
    PRETOK_SPLIT,       /* cut at matches of the pattern */
    PRETOK_SPACE_FIRST, /* a space in front, unless there is one */
    PRETOK_BYTES,       /* bytes → GPT-2's alphabet */
    PRETOK_MARK         /* Metaspace: spaces → mark, a mark in front */
};

/* What becomes of the matches; the names are tokenizer.json's. */
enum split_behaviour {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS
};
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct pretok_step {
    enum pretok_kind kind;
    struct pattern *pattern;        /* owned: PRETOK_SPLIT; of PRETOK_MARK, the space */
    enum split_behaviour behaviour; /* PRETOK_SPLIT */
    bool invert;                    /* PRETOK_SPLIT: what lies between matches counts as the match */
    struct textbuf mark;            /* PRETOK_MARK */
    enum prepend_scheme prepend;    /* PRETOK_MARK */
};

#endif
