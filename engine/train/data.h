/* SPDX-License-Identifier: MIT
 *
 * A data set as rows of token ids with labels, the packs they go through the ring in, and the order
 * in which steps take them. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "err.h"
#include "text/chat.h"
#include "text/tokenizer.h"

enum { LABEL_NONE = -100 }; /* Hugging Face's "not supervised" */

/* What is not trained. The first token of a row never is. */
enum data_mask {
    DATA_MASK_NONE,      /* nothing else */
    DATA_MASK_PROMPT,    /* all before the completion, or before the last turn */
    DATA_MASK_ASSISTANT, /* all but the assistant's turns, each with the token that ends it */
};
/* What becomes of a row longer than seq_len. */
enum data_overlong {
    DATA_TRUNCATE, /* its end is cut off */
    DATA_SPLIT, /* it becomes several; the last token of one is the first of the next, so that no label is lost */
    DATA_DROP,
};

struct data_row {
    const uint32_t *ids; /* [n] */
    const int32_t
        *labels;       /* [n], shifted: labels[t] is what position t should predict, LABEL_NONE at the last */
    size_t n;          /* ≥ 2 */
    size_t supervised; /* labels that count, ≥ 1 */
    size_t line;       /* of the file, from 1: where it came from */
};
struct data_counts {
    size_t rows;         /* of the file; all that follows but tokens counts these */
    size_t kept;         /* those there are now, pieces of those that were split among them */
    size_t unsupervised; /* dropped: no supervised token */
    size_t truncated;    /* longer than seq_len, and cut */
    size_t split;        /* or made several of */
    size_t dropped;      /* or dropped */
    size_t lost;         /* tokens cut off, or of dropped rows */
    size_t tokens, supervised;
};
struct data;

/* What the keys of a row are called; NULL = as usual. One that is given also says what kind the
 * rows are of. */
struct data_fields {
    const char *text, *prompt, *completion, *messages, *tools;
};

/* The file that a path names: itself or, of a directory, its SPLIT.jsonl or SPLIT.json; owned by
 * the caller. −ENOENT: the directory has neither. */
int data_split_path(char **ret, const char *path, const char *split, struct err *err);

struct data_request {
    const char *path;                /* a file, or a directory with SPLIT.jsonl or SPLIT.json */
    const char *split;               /* "train", "valid" or "test" */
    const struct tokenizer *tok;     /* may be NULL if every row has input_ids */
    const struct chat_template *tpl; /* NULL if the model has none */
    const char *tpl_why;             /* why there is none that can be used, NULL if the model just has none */
    const json_t *template_args;     /* more variables of the template, or NULL */
    struct data_fields fields;
    enum data_mask mask;
    enum data_overlong overlong; /* of pairs not DATA_SPLIT */
    bool pairs;                  /* rows of "chosen" and "rejected" are wanted, and no others */
    size_t seq_len;              /* longest row in tokens */
    size_t vocab;                /* ids ≥ this are refused, naming line and id */
    int32_t eos;                 /* appended to texts that do not end in it; −1 = none */
};
/* A file of JSON objects (jsonl.h), whose first row decides what all are, by its keys:
 *   input_ids, labels          as given; labels unshifted as in Hugging Face (−100 = not
 *   supervised; absent = ids)
 *   prompt, completion         a question of a user and its answer, by the model's chat template;
 *   without one, text after text
 *   messages, tools            a conversation, by the template; OpenAI's form
 *   conversations, tools       the same as messages, or in sharegpt's form
 *   instruction, input, output alpaca's form of a prompt and a completion
 *   text                       the tokenizer's ids with its special tokens and EOS
 * With `pairs` all are
 *   prompt, chosen, rejected   as TRL has them: a question and two answers, as texts or as lists of
 *   messages; without a prompt, two conversations that begin alike. Each becomes two rows, 2i the
 *   chosen and 2i + 1 the rejected answer, whose prompt is not supervised.
 * Errors name file and line. Rows with nothing supervised are dropped and counted; nothing left is
 * −ENODATA. A template that asks for the time gets when the file was last changed, so that the
 * same file is always the same rows. */
int data_open(struct data **ret, const struct data_request *req, struct err *err);
void data_close(struct data *data);
size_t data_rows(const struct data *data);
struct data_counts data_counts(const struct data *data);
struct data_row data_row(const struct data *data, size_t i);
size_t data_longest(const struct data *data);
/* Rows that belong together, and stay in one pack: 2 of pairs, else 1. */
size_t data_together(const struct data *data);
const char *data_kind(const struct data *data); /* what the rows are, in a word or two */
/* A number that follows from every id and label: the same data, the same number. */
uint64_t data_fingerprint(const struct data *data);

/* Rows that go through the ring as one: with a capacity, as many as fit into so many tokens (best
 * fit, the longest first), each still with its own positions and attention; with capacity 0, one
 * row each, or one pair. Pairs take no capacity. */
struct data_packs;
int data_packs_new(struct data_packs **ret, const struct data *data, size_t capacity, struct err *err);
void data_packs_free(struct data_packs *packs);
size_t data_packs_count(const struct data_packs *packs);
/* The rows of pack i, *ret_n ≥ 1 of them. */
const uint32_t *data_packs_at(const struct data_packs *packs, size_t i, size_t *ret_n);
size_t data_packs_length(const struct data_packs *packs, size_t i); /* in tokens */
size_t data_packs_most_rows(const struct data_packs *packs);        /* of any pack */
size_t data_packs_longest(const struct data_packs *packs);          /* in tokens */

/* Which pack is the k-th taken since the start (k counts packs over all epochs): those of epoch e
 * are permuted by rng_for(seed, "shuffle/e"), or in file order without shuffling. With a group,
 * each run of so many that begins at a multiple of it holds packs of like length. A pure function,
 * so a resumed job continues exactly. */
struct data_order;
struct data_order_request {
    const struct data_packs *packs; /* borrowed */
    bool shuffle;
    uint64_t seed;
    size_t group; /* packs of a step, 0 = lengths do not matter */
};
int data_order_new(struct data_order **ret, const struct data_order_request *req, struct err *err);
size_t data_order_at(struct data_order *order, uint64_t k);
void data_order_free(struct data_order *order);

#endif
