/* SPDX-License-Identifier: MIT
 *
 * A tiny model with a directory beside it for results, and results made of random numbers: what the
 * tests of written files share. */
#ifndef TESTS_LIB_PLACE_H
#define TESTS_LIB_PLACE_H

#include "model/adapter.h"
#include "tests/lib/tiny.h"

enum { PLACE_LAYERS = 4 };

struct place {
    struct temp_dir dir;
    char model[128], out[128]; /* DIR/model, and DIR/out that does not exist yet */
    struct config config;
    const struct family *family;
};
void place_make(struct place *p, enum dtype dtype); /* tied, without biases */
void place_free(struct place *p);

struct tune place_lora(const struct place *p, const char *targets, size_t first, size_t end);
struct adapter_out_request place_request(const struct place *p, const struct tune *tune, uint64_t step);
size_t place_elements(const struct place *p, const struct tune *tune, size_t unit);

/* w, m, v of every unit, one unit after the other. The caller frees. */
float *place_random(const struct place *p, const struct tune *tune, size_t *ret_n);
/* What was read back is what was written: w, and of a state also m and v. */
void place_check(const struct adapter_in *in, const struct place *p, const struct tune *tune,
                 const float *state);
/* Opens, gives all units and finishes. */
int place_write(const struct adapter_out_request *req, const float *state, struct err *err);

#endif
