/* SPDX-License-Identifier: MIT
 *
 * What this machine can do before any model is asked about: how fast it reads memory, and products
 * with weights of every type they are stored in. Called by stage_bench.c and by the benches; the
 * thread that owns `num`, alone. */
#ifndef DAEMON_STAGE_MACHINE_H
#define DAEMON_STAGE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/num/num.h"

struct machine;

/* Takes memory far beyond any cache: MACHINE_BYTES. num: borrowed. */
enum { MACHINE_BYTES = 512 << 20 };
int machine_new(struct machine **ret, struct num *num, struct err *err);
void machine_free(struct machine *m);

/* What the words of MACHINE_CHUNK bytes, 64-byte aligned, add up to: reading as fast as one thread
 * can. */
enum { MACHINE_CHUNK = 1 << 20 };
uint64_t machine_add_up(const void *chunk);

/* GB/s of all threads that read different memory and do nothing else. */
double machine_read(const struct machine *m);

struct machine_product {
    const char *type; /* of the weights: "f32", …, "int4" */
    double gflops;    /* of 512 rows at once, as in training and for a prompt */
    double gbs;       /* of weights, a row at a time, as in generation */
};
/* By number; false: there is none of that number. */
bool machine_product(struct machine_product *ret, const struct machine *m, size_t number);

#endif
