/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a safetensors file: either refused with a sentence, or every byte of every tensor
 * can be read.
 */
#include "tests/fuzz/fuzz.h"

#include "file/st.h"

static unsigned touch(const struct st *st)
{
    unsigned sum = 0;
    const char *const *names;
    if (st_names(st, &names) != st_count(st))
        abort();
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        if (st_find(st, names[i]) != t)
            abort();
        st_willneed(st, t);
        for (size_t b = 0; b < t->bytes; b++)
            sum += ((const unsigned char *)t->data)[b];
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct st *st = NULL;
    struct err err = {""};
    volatile unsigned sum = 0; /* the reads must not be optimised away */
    if (st_open_file(&st, fuzz_file(bytes, n), &err) == 0)
        sum = touch(st);
    else if (!err.text[0] || st)
        abort();
    (void)sum;
    st_close(st);
    return 0;
}
