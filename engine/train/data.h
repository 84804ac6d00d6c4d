/* SPDX-License-Identifier: MIT
 *
 * A data set as rows of token ids with labels, and the order in which steps take them. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "text/tokenizer.h"

enum { LABEL_NONE = -100 }; /* Hugging Face's "not supervised" */

struct data_row {
    const uint32_t *ids; /* [n] */
    const int32_t
        *labels;       /* [n], shifted: labels[t] is what position t should predict, LABEL_NONE at the last */
    size_t n;          /* ≥ 2 */
    size_t supervised; /* labels that count, ≥ 1 */
};
struct data_counts {
    size_t rows, kept;
    size_t unsupervised; /* dropped: no supervised token */
    size_t truncated;    /* longer than seq_len, cut */
    size_t tokens, supervised;
};
struct data;

struct data_request {
    const char *path;  /* a JSONL file, or a directory with SPLIT.jsonl; one file of plain text is refused */
    const char *split; /* "train" or "valid" */
    const struct tokenizer *tok; /* may be NULL if every row has input_ids */
    size_t seq_len;              /* longest row in tokens; longer ones are cut and counted */
    size_t vocab;                /* ids ≥ this are refused, naming line and id */
    int32_t eos;                 /* appended to `text` rows that do not end in it; −1 = none */
};
/* Rows: {"text": …} → the tokenizer's ids with its special tokens and EOS, all supervised but the first;
 * {"input_ids": […], "labels": […]} → as given, labels unshifted as in Hugging Face (−100 = not supervised;
 * absent = ids). The first row decides the kind. Errors name file and line. Rows with nothing supervised are
 * dropped and counted; nothing left is −ENODATA. */
int data_open(struct data **ret, const struct data_request *req, struct err *err);
void data_close(struct data *data);
size_t data_rows(const struct data *data);
struct data_counts data_counts(const struct data *data);
struct data_row data_row(const struct data *data, size_t i);
size_t data_longest(const struct data *data);

/* Which row is the k-th taken since the start (k counts rows over all epochs): rows of epoch e are permuted
 * by rng_for(seed, "shuffle/e"), or in file order without shuffling. A pure function, so a resumed job
 * continues exactly. */
struct data_order;
int data_order_new(struct data_order **ret, size_t rows, bool shuffle, uint64_t seed, struct err *err);
size_t data_order_at(struct data_order *order, uint64_t k);
void data_order_free(struct data_order *order);

#endif
