/* SPDX-License-Identifier: MIT
 *
 * Temporary directories, and in them random Llamas small enough to differentiate numerically:
 * grouped-query attention whose heads are wider than dim / heads, biases that are not zero, norms
 * that are not one. */
#ifndef TESTS_LIB_TINY_H
#define TESTS_LIB_TINY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file/config.h"
#include "model/family.h"
#include "tests/lib/chain.h"

struct temp_dir {
    char path[64];
};
struct temp_dir temp_dir_new(void);
void temp_dir_free(const struct temp_dir *dir); /* and all that is in it */
void write_file(const char *dir, const char *name, const char *text);
char *read_file(const char *dir, const char *name,
                size_t *ret_n); /* the caller frees; NULL where there is none */

bool has_file(const char *dir, const char *name);

struct tiny_spec {
    size_t layers;
    bool tied, biases;
    enum dtype dtype;
};
/* A model directory; the config is read back from it. */
struct config tiny_write(const char *dir, const struct tiny_spec *spec);

/* DIR/model.safetensors: random weights for any config. */
void model_write(const char *dir, const struct config *c);
/* The same with the layer behind the last that predicts a token more, where the config has one. */
void model_write_ahead(const char *dir, const struct config *c);

/* One stage with all of a model, for one slot of so many tokens. */
struct stage_spec tiny_whole(const char *dir, const struct config *c, size_t tokens);

/* Index of `name` among the tensors of a unit, or −1. */
int tiny_tensor_index(const struct family *f, const struct config *c, size_t unit, const char *name);

/* A microbatch of three sequences, partly supervised. */
enum { TINY_TOKENS = 19, TINY_SEQS = 3 };
struct tiny_batch {
    uint32_t ids[TINY_TOKENS], start[TINY_SEQS + 1];
    int32_t labels[TINY_TOKENS];
    struct microbatch mb;
};
void tiny_batch_init(struct tiny_batch *b, const struct config *c, uint64_t seed);

/* A training chain over the model in `dir` with room for two such microbatches. */
struct chain_spec tiny_chain(const char *dir, const struct config *c, const struct tune *tune,
                             struct chain_cut cut);

/* What some steps of it on one microbatch give. */
struct tiny_trained {
    float *values; /* [n] owned: all parameters, with `state` also moments */
    size_t n;
    double loss; /* of the last step */
};
struct tiny_trained tiny_train(const struct chain_spec *spec, const struct adamw *opt, size_t steps,
                               bool state);

#endif
