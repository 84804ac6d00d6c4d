/* SPDX-License-Identifier: MIT */
#include "tests/lib/examples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

void examples_open(struct examples *e, const struct golden *g)
{
    const json_t *list = golden_json(g, "microbatches", NULL);
    assert_int_equal(json_array_size(list), EXAMPLES);
    *e = (struct examples){0};
    for (size_t i = 0, at = 0; i < EXAMPLES; i++) {
        const json_t *row = json_array_get(list, i);
        size_t n = golden_ids(json_object_get(row, "ids"), e->ids + at, EXAMPLES_TOKENS - at);
        size_t prompt = (size_t)json_integer_value(json_object_get(row, "prompt_len"));
        for (size_t t = 0; t < n; t++) {
            bool supervised = t + 1 >= prompt && t + 1 < n;
            e->labels[at + t] = supervised ? (int32_t)e->ids[at + t + 1] : -100;
            e->supervised += supervised;
        }
        e->start[i][1] = (uint32_t)n;
        e->mb[i] = (struct microbatch){
            .seqs = {1, e->start[i]}, .ids = e->ids + at, .labels = e->labels + at, .drop = i + 1};
        at += n;
        e->starts[i + 1] = (uint32_t)at;
    }
    e->packed =
        (struct microbatch){.seqs = {EXAMPLES, e->starts}, .ids = e->ids, .labels = e->labels, .drop = 1};
}
