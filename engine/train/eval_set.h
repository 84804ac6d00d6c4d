/* SPDX-License-Identifier: MIT
 *
 * A file of questions that a model is evaluated with: rows as texts, before any tokenizer. Read
 * once by the stage of rank 0; then any thread may read it. */
#ifndef TRAIN_EVAL_SET_H
#define TRAIN_EVAL_SET_H

#include <stddef.h>

#include "err.h"
#include "train/data.h"

enum eval_task {
    EVAL_AUTO,       /* the first row says it by its keys */
    EVAL_CHOICE,     /* which of several answers is likeliest */
    EVAL_GENERATION, /* what the model writes behind a prompt */
    EVAL_PERPLEXITY, /* how likely a text is */
    EVAL_TASKS
};

enum { EVAL_CHOICES_MAX = 64 };

/* Valid UTF-8; owned by its set. */
struct eval_text {
    char *text;
    size_t n; /* bytes */
};

struct eval_row {
    size_t line;               /* of the file, from 1 */
    struct eval_text context;  /* what stands before the answer; of EVAL_PERPLEXITY the text */
    struct eval_text *answers; /* [nanswers] the choices, or all answers that are right */
    size_t nanswers;
    size_t right; /* of EVAL_CHOICE: the number of the right one, from 0 */
};

struct eval_set {
    enum eval_task task;   /* never EVAL_AUTO */
    struct eval_row *rows; /* owned [n] */
    size_t n, room;
};

struct eval_request {
    const char *path;
    enum eval_task task;
    size_t limit;              /* read so many rows at most; 0: all */
    struct data_fields fields; /* what the keys of prompts, completions and texts are called */
};

/* Rows of a file as jsonl.h reads it, or of test.jsonl in a directory. Each has a context: "prompt"
 * or "text", or "question", which becomes "Question: …\nAnswer:" as in ARC of
 * lm-evaluation-harness. Of multiple choice it has "choices" ([TEXT, …] or
 * {"text": [TEXT, …], "label": [TEXT, …]}), and in "answer", "answerKey" or "label" a number from
 * 0, the text of a choice, its label, or a letter from A. Of a generation it has "completion" or
 * "answer": a text, or a list of texts that are all right. −EBADMSG with file and line; −ENODATA:
 * there are no rows. */
int eval_set_open(struct eval_set *ret, const struct eval_request *req, struct err *err);
void eval_set_done(struct eval_set *set);

const char *eval_task_name(enum eval_task task); /* "multiple-choice", …; static */

#endif
