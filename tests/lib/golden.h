/* SPDX-License-Identifier: MIT
 *
 * The golden cases and small models of tests/data. Tests run in the repository's root. */
#ifndef TESTS_LIB_GOLDEN_H
#define TESTS_LIB_GOLDEN_H

#include <jansson.h>
#include <stdint.h>

#include "file/config.h"
#include "file/st.h"

struct data_path {
    char text[1024];
};

/* The path of a file or directory of tests/data; the test fails where it cannot be read. */
struct data_path data_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A golden case: a small model and what a reference implementation makes of it. */
struct golden {
    const char *name; /* borrowed */
    struct data_path model_dir;
    struct config config;
    json_t *expected;   /* owned */
    struct st *tensors; /* owned */
};

void golden_open(struct golden *g, const char *name);
void golden_close(struct golden *g);

/* A tensor of expected.safetensors, f32 and of `elements`; the test fails if there is no such
 * thing. */
const float *golden_floats(const struct golden *g, size_t elements, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of I32 or I64. */
void golden_longs(const struct golden *g, int64_t *ret, size_t elements, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* expected.json: the value at keys given one after the other, ended by NULL; fails the test if it
 * is not there. */
const json_t *golden_json(const struct golden *g, const char *key, ...) __attribute__((sentinel));
/* A list of token ids into ids[cap]; returns how many. */
size_t golden_ids(const json_t *list, uint32_t *ids, size_t cap);

#endif
