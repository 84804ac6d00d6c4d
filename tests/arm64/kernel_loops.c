/* SPDX-License-Identifier: MIT
 *
 * Calls one kernel of the chosen tables so many times, for tests/arm64/instructions to count. The
 * data are drawn from a seed, so the way through a kernel is always the same. Without arguments it
 * prints the names. usage: kernel_loops [NAME TIMES] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/integer.h"
#include "num/kernels.h"
#include "num/packed.h"

enum { COLS = 1024, ROWS = 8, GROUP = 64, GROUPS = COLS / GROUP, CELLS = 64, ROOM = 8 * COLS };

/* Bytes of weights, numbers around 1, and where results go. */
struct data {
    uint8_t bytes[4 * ROOM];
    float x[ROOM], y[ROOM], scale[ROOM], to[ROOM];
    int16_t halves[4 * COLS];
    int8_t whole[8 * COLS];
};

static void fill(struct data *d)
{
    uint32_t draw = 1;
    for (size_t i = 0; i < ROOM; i++) {
        draw = draw * 1664525u + 1013904223u;    /* Numerical Recipes */
        const uint32_t four = draw & 0x3f3f3f3f; /* no exponent of a half or of an E4M3 is a NaN's */
        memcpy(d->bytes + 4 * i, &four, sizeof four);
        d->x[i] = (float)(int32_t)draw * 0x1p-31f;
        d->scale[i] = 0.5f + 0x1p-33f * (float)draw;
    }
}

struct call {
    const char *name;
    void (*run)(struct data *d, int what);
    int what;
};

/* --- kernels.h -------------------------------------------------------------------------------- */

static void dots_one(struct data *d, int dtype)
{
    isa_pick()->dots[dtype](d->y, ROWS, d->x, COLS, 1, d->bytes, COLS, ROWS, COLS, false);
}

static void dots_six(struct data *d, int dtype)
{
    isa_pick()->dots[dtype](d->y, ROWS, d->x, COLS, 6, d->bytes, COLS, ROWS, COLS, false);
}

static void widen(struct data *d, int dtype)
{
    isa_pick()->to_f32[dtype](d->y, d->bytes, COLS);
}

static void quant(struct data *d, int bits)
{
    isa_pick()->quant_to_f32[bits](d->y, d->bytes, d->scale, d->x, GROUP, COLS);
}

static void block(struct data *d, int type)
{
    isa_pick()->block_to_f32(d->y, d->bytes, (enum block_type)type, 0, COLS);
}

static void tile(struct data *d, int unused)
{
    (void)unused;
    isa_pick()->tile(&(struct tile){.c = d->y,
                                    .ldc = CELLS,
                                    .a = d->x,
                                    .ai = CELLS,
                                    .ak = 1,
                                    .b = d->scale,
                                    .ldb = CELLS,
                                    .m = ROWS,
                                    .n = CELLS,
                                    .k = CELLS});
}

static void dot(struct data *d, int unused)
{
    (void)unused;
    d->y[0] = isa_pick()->dot(d->x, d->scale, COLS);
}

static void rmsnorm(struct data *d, int unused)
{
    (void)unused;
    d->y[COLS] = isa_pick()->rmsnorm(d->y, d->x, d->scale, COLS, 1e-5f);
}

static void rmsnorm_back(struct data *d, int unused)
{
    (void)unused;
    isa_pick()->rmsnorm_back(d->y, d->x, d->x + COLS, d->scale, COLS, 0.5f);
}

static void softmax(struct data *d, int unused)
{
    float max = 0, sum = 0;
    (void)unused;
    memcpy(d->y, d->x, COLS * sizeof *d->y);
    d->y[COLS] = isa_pick()->softmax_online(d->y, COLS, &max, &sum);
}

static void rope(struct data *d, int unused)
{
    (void)unused;
    isa_pick()->rope(d->x, d->scale, d->scale + COLS, COLS / 2, false);
}

static void glu(struct data *d, int kind)
{
    isa_pick()->glu[kind](d->y, d->x, d->x + COLS, COLS, 7);
}

static void glu_back(struct data *d, int kind)
{
    isa_pick()->glu_back[kind](d->y, d->y + COLS, d->x, d->x + COLS, d->scale, COLS, 7);
}

static void delta(struct data *d, int unused)
{
    (void)unused;
    isa_pick()->delta(&(struct delta_step){.o = d->y,
                                           .s = d->to,
                                           .q = d->x,
                                           .k = d->x + CELLS,
                                           .v = d->scale,
                                           .decay = 0.5f,
                                           .beta = 0.5f,
                                           .qk = 0.5f,
                                           .keys = CELLS,
                                           .n = CELLS});
}

static void adamw(struct data *d, int unused)
{
    (void)unused;
    const struct adamw_consts c = {1, 0.999f, 0.9f, 0.1f, 0.999f, 0.001f, 1e-3f, 0.5f, 1e-8f};
    isa_pick()->adamw(d->y, d->to, d->scale, d->x, COLS, &c);
}

static void dropout(struct data *d, int unused)
{
    (void)unused;
    const struct dropout_consts c = {.key = {1, 2}, .threshold = 1u << 30, .keep = 1.25f};
    isa_pick()->dropout(d->y, d->x, COLS / DROPOUT_GROUP, 3, &c);
}

/* --- integer.h -------------------------------------------------------------------------------- */

static struct int_row row_of(struct data *d)
{
    return (struct int_row){d->halves, d->whole, d->scale, d->scale + COLS};
}

static void quantize(struct data *d, int form)
{
    const struct int_row to = {d->halves, d->whole, d->y, d->y + COLS};
    isa_pick_int()->quantize(&to, d->x, COLS, form == INT_HALVES ? 8 : 4, GROUP, (enum int_form)form);
}

static void few(struct data *d, int bits, enum int_form form)
{
    isa_pick_int()->dots(&(struct int_dots){.y = d->y,
                                            .ldy = ROWS,
                                            .apart = 1,
                                            .n = 1,
                                            .rows = INT_ROWS,
                                            .x = row_of(d),
                                            .form = form,
                                            .w = d->bytes,
                                            .w_apart = COLS,
                                            .scale = d->scale,
                                            .bias = d->x,
                                            .side_apart = GROUPS * sizeof(float),
                                            .side = DTYPE_F32,
                                            .cols = COLS,
                                            .group = GROUP,
                                            .bits = (size_t)bits});
}

static void few_halves(struct data *d, int bits)
{
    few(d, bits, INT_HALVES);
}

static void few_bytes(struct data *d, int bits)
{
    few(d, bits, INT_BYTES);
}

static void few_blocks(struct data *d, int type)
{
    struct int_block_dots dots = {.y = d->y,
                                  .ldy = ROWS,
                                  .n = 1,
                                  .rows = INT_ROWS,
                                  .to = {0, 1, 2, 3},
                                  .x = row_of(d),
                                  .cols = COLS,
                                  .type = (enum block_type)type};
    for (size_t r = 0; r < INT_ROWS; r++)
        dots.w[r] = d->bytes + r * block_row_bytes(dots.type, COLS);
    isa_pick_int()->block_dots(&dots);
}

static void many(struct data *d, int unused)
{
    (void)unused;
    const struct int_tiles *k = isa_pick_int_tiles();
    k->begin(GROUP);
    k->tile(&(struct int_tile){.y = d->y,
                               .ldy = k->tall,
                               .n = k->many,
                               .rows = k->tall,
                               .x = row_of(d),
                               .x_bytes = COLS,
                               .panel = {(uint32_t *)(void *)d->to, d->scale, d->x},
                               .group = GROUP,
                               .groups = 4});
    k->end();
}

/* --- packed.h --------------------------------------------------------------------------------- */

static void bytes_tile(struct data *d, int unused)
{
    (void)unused;
    const struct packed_kernels *k = isa_pick_packed_bytes();
    k->tile(&(struct packed_tile){
        .c = d->y, .ldc = k->nr, .a = d->scale, .b = d->scale, .k = CELLS, .next_a = d->x, .next_c = d->x});
}

static void bytes_of_a(struct data *d, int unused)
{
    int32_t sum;
    (void)unused;
    d->y[COLS] = isa_pick_packed_bytes()->bytes->of_a(d->y, d->x, COLS, d->x, NULL, &sum);
}

static void bytes_by_k(struct data *d, int unused)
{
    const struct packed_kernels *k = isa_pick_packed_bytes();
    (void)unused;
    k->bytes->by_k(d->y, d->x, k->nr, COLS / k->nr, k->nr);
}

static const struct call calls[] = {
    {"dots-1-f32", dots_one, DTYPE_F32},
    {"dots-1-f16", dots_one, DTYPE_F16},
    {"dots-1-bf16", dots_one, DTYPE_BF16},
    {"dots-1-f8", dots_one, DTYPE_F8_E4M3},
    {"dots-6-f32", dots_six, DTYPE_F32},
    {"dots-6-bf16", dots_six, DTYPE_BF16},
    {"f32-of-f16", widen, DTYPE_F16},
    {"f32-of-bf16", widen, DTYPE_BF16},
    {"f32-of-4-bits", quant, 4},
    {"f32-of-8-bits", quant, 8},
    {"f32-of-q4_k", block, BLOCK_Q4_K},
    {"f32-of-q8_0", block, BLOCK_Q8_0},
    {"tile", tile, 0},
    {"dot", dot, 0},
    {"rmsnorm", rmsnorm, 0},
    {"rmsnorm-back", rmsnorm_back, 0},
    {"softmax", softmax, 0},
    {"rope", rope, 0},
    {"silu", glu, GLU_SILU},
    {"silu-back", glu_back, GLU_SILU},
    {"delta", delta, 0},
    {"adamw", adamw, 0},
    {"dropout", dropout, 0},
    {"halves-of-f32", quantize, INT_HALVES},
    {"bytes-of-f32", quantize, INT_BYTES},
    {"tiles-of-f32", quantize, INT_TILES},
    {"few-4-bits", few_halves, 4},
    {"few-8-bits", few_halves, 8},
    {"few-4-bits-bytes", few_bytes, 4},
    {"few-q4_0", few_blocks, BLOCK_Q4_0},
    {"few-q8_0", few_blocks, BLOCK_Q8_0},
    {"few-q2_k", few_blocks, BLOCK_Q2_K},
    {"few-q4_k", few_blocks, BLOCK_Q4_K},
    {"few-q6_k", few_blocks, BLOCK_Q6_K},
    {"many", many, 0},
    {"bytes-tile", bytes_tile, 0},
    {"bytes-of-a", bytes_of_a, 0},
    {"bytes-by-k", bytes_by_k, 0},
};
enum { CALLS = sizeof calls / sizeof *calls };

int main(int argc, char **argv)
{
    static struct data d;
    for (size_t i = 0; i < CALLS && argc < 3; i++)
        puts(calls[i].name);
    if (argc < 3)
        return 0;
    fill(&d);
    for (size_t i = 0; i < CALLS; i++)
        if (!strcmp(calls[i].name, argv[1])) {
            for (int left = atoi(argv[2]); left > 0; left--)
                calls[i].run(&d, calls[i].what);
            return 0;
        }
    fprintf(stderr, "%s is no kernel: without arguments the names are printed\n", argv[1]);
    return 1;
}
