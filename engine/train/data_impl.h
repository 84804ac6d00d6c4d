/* SPDX-License-Identifier: MIT
 *
 * What the parts of the data reader share: data.c opens files and shows rows, data_add.c keeps
 * them, data_read.c takes them apart by kind, data_talk.c makes conversations of them, data_mask.c
 * makes tokens of those and finds what is trained. */
#ifndef TRAIN_DATA_IMPL_H
#define TRAIN_DATA_IMPL_H

#include <jansson.h>

#include "train/data.h"
#include "train/jsonl.h"

enum row_kind { ROW_UNDECIDED, ROW_IDS, ROW_PAIR, ROW_TALK, ROW_ALPACA, ROW_TEXT, ROW_CHOICE, ROW_KINDS };

struct data_stretch {
    size_t begin, n, supervised, line;
};

struct data {
    uint32_t *ids;   /* owned */
    int32_t *labels; /* owned, shifted */
    size_t tokens, room;
    struct data_stretch *rows; /* owned */
    size_t nrows, row_room;
    size_t longest;
    enum row_kind kind;
    struct data_counts counts;
};

enum { PAIR_ROWS = 2 };

/* Of a pair of answers, while its two rows are read. */
struct data_pair {
    struct data before; /* as the set was: what is taken back with a row that is not kept */
    size_t kept, over;  /* rows of it that are kept; those longer than seq_len */
};

/* What is known while a file is read. */
struct data_reader {
    const struct data_request *req; /* borrowed, as all here but ids and labels */
    const char *path;
    struct jsonl *in;
    struct data *data;
    time_t changed; /* the file, last */
    enum row_kind kind;
    size_t kind_line;     /* the line that decided it */
    const char *key;      /* that decided it; of a conversation, the one its turns are under */
    bool arguments_known; /* whether the template takes those of a tool call as an object, or as text */
    bool arguments_as_text;
    uint32_t *ids;   /* owned: [room], those of one row */
    int32_t *labels; /* owned: [room], its labels, unshifted */
    size_t room;
    struct data_pair *pair; /* or NULL */
    struct err *err;
};

/* A conversation in the form templates know. */
struct data_talk {
    json_t *messages; /* owned, as all here: [{"role", "content", …}, …] */
    json_t *tools;    /* or NULL */
    json_t *trained;  /* [true, …]: false for a turn its row says is not to be learnt */
    bool has_calls;   /* a tool is called */
    size_t asked;     /* turns that are the prompt: all behind them is the answer; 0: all but the last */
};

/* "PATH:LINE: sentence"; returns code. */
int data_bad(const struct data_reader *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int data_no_memory(const struct data_reader *r);
/* Makes ids and labels hold n. */
int data_make_room(struct data_reader *r, size_t n);
/* Takes over a copy. labels: one for each id, unshifted; NULL = the ids themselves. */
int data_add_row(struct data_reader *r, const uint32_t *ids, const int32_t *labels, size_t n);
/* The rows between are a pair: both are kept, or none. */
void data_pair_begin(struct data_reader *r, struct data_pair *pair);
void data_pair_end(struct data_reader *r);
int data_check_encoded(const struct data_reader *r, const uint32_t *ids, size_t n);

/* Classifies the row and adds what it holds. */
int data_read_row(struct data_reader *r, json_t *row);
const char *data_kind_name(enum row_kind kind);

/* The conversation of a row of the reader's kind; fails on what no template could be given. */
int data_talk_read(struct data_reader *r, const json_t *row, struct data_talk *ret);
/* One answer of a row of ROW_CHOICE, under `key`, with what was asked before it. */
int data_talk_read_answer(struct data_reader *r, const json_t *row, const char *key, struct data_talk *ret);
void data_talk_done(struct data_talk *talk);
/* Arguments of tool calls as objects, or as text. */
void data_talk_arguments(struct data_talk *talk, bool as_text);

int data_add_talk(struct data_reader *r, struct data_talk *talk);
/* `n` bytes, of which those from `trained` on are; EOS is appended. */
int data_add_plain(struct data_reader *r, const char *text, size_t n, size_t trained);

#endif
