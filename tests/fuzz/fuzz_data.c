/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a data set, and as questions: either refused with a sentence, or rows that keep what
 * data.h and eval_set.h say about them. */
#include "tests/fuzz/lib/fuzz.h"

#include <string.h>

#include "train/data.h"
#include "train/eval_set.h"

enum { VOCAB = 300, SEQ_LEN = 9 };

static void check_row(struct data_row row)
{
    size_t supervised = 0;
    if (row.n < 2 || row.n > SEQ_LEN || row.labels[row.n - 1] != LABEL_NONE)
        abort();
    for (size_t t = 0; t < row.n; t++) {
        supervised += row.labels[t] != LABEL_NONE;
        if (row.ids[t] >= VOCAB ||
            (row.labels[t] != LABEL_NONE && (row.labels[t] < 0 || row.labels[t] >= VOCAB)))
            abort();
    }
    if (supervised < 1 || supervised != row.supervised)
        abort();
}

static void check_question(const struct eval_set *set, const struct eval_row *row)
{
    if (set->task == EVAL_AUTO || !row->context.text || strlen(row->context.text) != row->context.n)
        abort();
    if (set->task == EVAL_CHOICE ? row->nanswers < 2 || row->right >= row->nanswers
                                 : (row->nanswers > 0) != (set->task == EVAL_GENERATION))
        abort();
    for (size_t i = 0; i < row->nanswers; i++)
        if (!row->answers[i].n || strlen(row->answers[i].text) != row->answers[i].n)
            abort();
}

static void read_questions(const char *path, enum eval_task task)
{
    struct eval_set set = {0};
    struct err err = {""};
    const struct eval_request req = {.path = path, .task = task};
    if (eval_set_open(&set, &req, &err) == 0) {
        for (size_t i = 0; i < set.n; i++)
            check_question(&set, &set.rows[i]);
    } else if (!err.text[0] || set.n) {
        abort();
    }
    eval_set_done(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct data *data = NULL;
    struct err err = {""};
    struct data_request req = {.path = fuzz_file(bytes, n),
                               .split = "train",
                               .seq_len = SEQ_LEN,
                               .vocab = VOCAB,
                               .eos = -1,
                               .overlong = (enum data_overlong)(n % 3)};
    if (data_open(&data, &req, &err) == 0) {
        for (size_t i = 0; i < data_rows(data); i++)
            check_row(data_row(data, i));
    } else if (!err.text[0] || data) {
        abort();
    }
    data_close(data);
    read_questions(req.path, (enum eval_task)(n % EVAL_TASKS));
    return 0;
}
