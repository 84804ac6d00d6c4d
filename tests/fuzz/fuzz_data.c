/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a data set: either refused with a sentence, or rows that keep what data.h says about
 * them. */
#include "tests/fuzz/lib/fuzz.h"

#include "train/data.h"

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
    return 0;
}
