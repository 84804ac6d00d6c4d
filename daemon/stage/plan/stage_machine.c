/* SPDX-License-Identifier: MIT
 *
 * Owns one block of memory, written once, that is read as numbers or as weights of any type: every
 * byte is 0x11, which none of them takes for something slow. Each figure is the middle one of
 * three. */
#include "daemon/stage/plan/stage_machine.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/num/gemm.h"

enum { SIDE = 2048, ROWS = 512, TURNS = 3, BYTE = 0x11, LINE = 64 };
static const double TURN_S = 0.15;

struct machine {
    struct num *num; /* borrowed */
    uint8_t *block;  /* owned: MACHINE_BYTES, what products are of */
    float *x, *y;    /* owned: [ROWS, SIDE] */
    float *scale;    /* owned: of FP8's blocks */
};

struct weight_form {
    const char *name;
    enum dtype dtype;
    size_t bits; /* 0: elements of dtype */
};
static const struct weight_form types[] = {{"f32", DTYPE_F32, 0},   {"f16", DTYPE_F16, 0},
                                           {"bf16", DTYPE_BF16, 0}, {"fp8", DTYPE_F8_E4M3, 0},
                                           {"int8", DTYPE_F32, 8},  {"int4", DTYPE_F32, 4}};

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(double turn[TURNS])
{
    qsort(turn, TURNS, sizeof *turn, ascending);
    return turn[TURNS / 2];
}

/* By the threads that will read it, each its own part. */
static void fill(const struct machine *m)
{
#pragma omp parallel for schedule(static) num_threads(num_threads(m->num))
    for (size_t at = 0; at < MACHINE_BYTES; at += MACHINE_CHUNK)
        memset(m->block + at, BYTE, MACHINE_CHUNK);
}

int machine_new(struct machine **ret, struct num *num, struct err *err)
{
    enum { BLOCKS = SIDE / MAT_BLOCK };
    struct machine *m = calloc(1, sizeof *m);
    if (m)
        *m = (struct machine){.num = num,
                              .block = aligned_alloc(MACHINE_CHUNK, MACHINE_BYTES),
                              .x = aligned_alloc(LINE, sizeof(float) * ROWS * SIDE),
                              .y = aligned_alloc(LINE, sizeof(float) * ROWS * SIDE),
                              .scale = aligned_alloc(LINE, sizeof(float) * BLOCKS * BLOCKS)};
    if (!m || !m->block || !m->x || !m->y || !m->scale) {
        machine_free(m);
        return err_set(err, -ENOMEM, "measuring this machine takes %d MiB of memory: free some first",
                       MACHINE_BYTES >> 20);
    }
    fill(m);
    for (size_t i = 0; i < ROWS * SIDE; i++)
        m->x[i] = m->y[i] = (float)(i % 17) / 17;
    for (size_t i = 0; i < BLOCKS * BLOCKS; i++)
        m->scale[i] = 1;
    *ret = m;
    return 0;
}

void machine_free(struct machine *m)
{
    if (!m)
        return;
    free(m->block);
    free(m->x);
    free(m->y);
    free(m->scale);
    free(m);
}

/* --- memory ----------------------------------------------------------------------------------- */

typedef uint64_t words __attribute__((vector_size(32)));

/* Read as four streams: one alone does not keep the memory busy. */
uint64_t machine_add_up(const void *at)
{
    const words *chunk = at;
    const size_t quarter = MACHINE_CHUNK / sizeof *chunk / 4;
    words a = {0}, b = a, c = a, d = a;
    for (size_t i = 0; i < quarter; i++) {
        a += chunk[i];
        b += chunk[i + quarter];
        c += chunk[i + 2 * quarter];
        d += chunk[i + 3 * quarter];
    }
    a += b + c + d;
    return a[0] + a[1] + a[2] + a[3];
}

static double read_once(const struct machine *m)
{
    uint64_t sum = 0;
    const double begin = seconds_now();
#pragma omp parallel for schedule(static) reduction(+ : sum) num_threads(num_threads(m->num))
    for (size_t at = 0; at < MACHINE_BYTES; at += MACHINE_CHUNK)
        sum += machine_add_up(m->block + at);
    const double took = seconds_now() - begin;
    const uint64_t all = (uint64_t)(MACHINE_BYTES / sizeof sum) * (UINT64_MAX / 0xff * BYTE);
    return sum == all ? 1e-9 * MACHINE_BYTES / took : 0; /* asked, so that all of it has to be read */
}

double machine_read(const struct machine *m)
{
    double turn[TURNS];
    for (size_t i = 0; i < TURNS; i++)
        turn[i] = read_once(m);
    return middle(turn);
}

/* --- products --------------------------------------------------------------------------------- */

static size_t weight_bytes(const struct weight_form *w)
{
    return w->bits ? SIDE * SIDE * w->bits / 8 : SIDE * SIDE * dtype_size(w->dtype);
}

/* What scales and biases take beside them. */
static size_t side_bytes(const struct weight_form *w)
{
    return w->bits ? 2 * SIDE * quant_groups(QUANT_GROUP, SIDE) * dtype_size(DTYPE_BF16) : 0;
}

/* A matrix of that type, the next of the block each time, so that none is in a cache still. */
static struct mat take_mat(const struct machine *m, const struct weight_form *w, struct quant *quant,
                           size_t number)
{
    const size_t bytes = weight_bytes(w), sides = side_bytes(w), each = bytes + sides;
    const uint8_t *at = m->block + number % (MACHINE_BYTES / each) * each;
    struct mat mat = {.data = at, .dtype = w->dtype, .rows = SIDE, .cols = SIDE};
    if (w->dtype == DTYPE_F8_E4M3)
        mat.scale = m->scale;
    if (w->bits) {
        *quant = (struct quant){at + bytes,  at + bytes + sides / 2, DTYPE_BF16, w->bits,
                                QUANT_GROUP, QUANT_AFFINE,           {0}};
        mat.quant = quant;
    }
    return mat;
}

/* Products a second, of so many rows with one matrix after the other. */
static double run(const struct machine *m, const struct weight_form *w, size_t rows, size_t *number)
{
    struct quant quant;
    size_t n = 0;
    const double begin = seconds_now();
    double now;
    do {
        gemm_xwt(m->num, m->y, m->x, take_mat(m, w, &quant, (*number)++), rows, false);
        n++;
        now = seconds_now();
    } while (now - begin < TURN_S);
    return (double)n / (now - begin);
}

bool machine_product(struct machine_product *ret, const struct machine *m, size_t number)
{
    if (number >= sizeof types / sizeof *types)
        return false;
    const struct weight_form *w = &types[number];
    double many[TURNS], one[TURNS];
    size_t at = 0;
    for (size_t i = 0; i < TURNS; i++) {
        many[i] = 2e-9 * ROWS * SIDE * SIDE * run(m, w, ROWS, &at);
        one[i] = 1e-9 * (double)(weight_bytes(w) + side_bytes(w)) * run(m, w, 1, &at);
    }
    *ret = (struct machine_product){w->name, middle(many), middle(one)};
    return true;
}
