/* SPDX-License-Identifier: MIT
 *
 * `bench_kernels NAME TIMES`: runs one of the kernels that products spend their time in, so many
 * times on the same few rows, and prints how many products of two numbers one time is.
 * tests/bench/callgrind.sh counts its instructions. */
#include "tests/bench/bench.h"

#include "num/integer.h"
#include "num/kernels.h"

enum { ROWS = 16, COLS = 2048, GROUP = 64, GROUPS = COLS / GROUP };

/* What the kernels read and write: all 1, for no kernel's way depends on the numbers. */
struct bed {
    const struct kernels *plain; /* asked for once: CPUID is not what is counted */
    const struct int_kernels *whole;
    const struct int_tiles *tiles;
    uint8_t w[ROWS * COLS * 4];
    float x[INT_MANY][COLS], y[INT_MANY][INT_TALL];
    struct {
        _Alignas(64) int16_t q[COLS]; /* as scratch lies */
        float scale[GROUPS], sum[GROUPS];
    } row[INT_MANY];
    _Alignas(64) uint32_t panel[INT_TALL * COLS / 4];
    float scale[INT_TALL * GROUPS], bias[INT_TALL * GROUPS];
};

static struct int_row row_of(struct bed *b)
{
    return (struct int_row){b->row[0].q, (int8_t *)b->row[0].q, b->row[0].scale, b->row[0].sum};
}

static size_t dots(struct bed *b, enum dtype t)
{
    b->plain->dots[t](b->y[0], ROWS, b->x[0], COLS, 1, b->w, COLS, ROWS, COLS, false);
    return (size_t)ROWS * COLS;
}

static size_t dots_f32(struct bed *b)
{
    return dots(b, DTYPE_F32);
}

static size_t dots_bf16(struct bed *b)
{
    return dots(b, DTYPE_BF16);
}

static size_t integers(struct bed *b, size_t bits, enum int_form form)
{
    b->whole->dots(&(struct int_dots){.y = b->y[0],
                                      .ldy = INT_ROWS,
                                      .apart = 1,
                                      .n = 1,
                                      .rows = INT_ROWS,
                                      .x = row_of(b),
                                      .form = form,
                                      .x_bytes = sizeof b->row[0],
                                      .w = b->w,
                                      .w_apart = COLS * bits / 8,
                                      .scale = b->scale,
                                      .bias = b->bias,
                                      .side_apart = GROUPS * sizeof(uint16_t),
                                      .side = DTYPE_BF16,
                                      .cols = COLS,
                                      .group = GROUP,
                                      .bits = bits});
    return (size_t)INT_ROWS * COLS;
}

static size_t dots_int8(struct bed *b)
{
    return integers(b, 8, INT_HALVES);
}

static size_t dots_int4(struct bed *b)
{
    return integers(b, 4, INT_HALVES);
}

static size_t dots_int4_bytes(struct bed *b)
{
    return integers(b, 4, INT_BYTES);
}

static size_t tile_bytes(struct bed *b)
{
    const size_t tall = b->tiles->tall, n = b->tiles->many;
    if (b->tiles->begin)
        b->tiles->begin(GROUP);
    b->tiles->tile(&(struct int_tile){.y = b->y[0],
                                      .ldy = INT_TALL,
                                      .n = n,
                                      .rows = tall,
                                      .x = row_of(b),
                                      .x_bytes = sizeof b->row[0],
                                      .panel = {b->panel, b->scale, b->bias},
                                      .group = GROUP,
                                      .groups = GROUPS});
    if (b->tiles->end)
        b->tiles->end();
    return n * tall * COLS;
}

static size_t quantize_x(struct bed *b)
{
    const struct int_row to = row_of(b);
    b->whole->quantize(&to, b->x[0], COLS, 4, GROUP, INT_HALVES);
    return COLS;
}

static size_t bf16_to_f32(struct bed *b)
{
    b->plain->to_f32[DTYPE_BF16](b->x[0], b->w, COLS);
    return COLS;
}

static size_t int4_to_f32(struct bed *b)
{
    b->plain->quant_to_f32[4](b->x[0], b->w, b->scale, b->bias, GROUP, COLS);
    return COLS;
}

static const struct {
    const char *name;
    size_t (*run)(struct bed *b);
} kernels[] = {
    {"dots-f32", dots_f32},     {"dots-bf16", dots_bf16},         {"dots-int8", dots_int8},
    {"dots-int4", dots_int4},   {"dots-int4x8", dots_int4_bytes}, {"tile-int8", tile_bytes},
    {"quantize-x", quantize_x}, {"bf16-to-f32", bf16_to_f32},     {"int4-to-f32", int4_to_f32},
};

int main(int argc, char **argv)
{
    for (size_t k = 0; argc == 3 && k < sizeof kernels / sizeof *kernels; k++) {
        if (strcmp(kernels[k].name, argv[1]) != 0)
            continue;
        struct bed *b = bench_alloc(sizeof *b);
        memset(b, 1, sizeof *b);
        b->plain = isa_pick();
        b->whole = isa_pick_int();
        b->tiles = isa_pick_int_tiles();
        size_t each = 0;
        for (int i = atoi(argv[2]); i > 0; i--)
            each = kernels[k].run(b);
        printf("%zu\n", each);
        free(b);
        return 0;
    }
    fputs("usage: bench_kernels NAME TIMES, NAME one of", stderr);
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        fprintf(stderr, " %s", kernels[k].name);
    fputs("\n", stderr);
    return 2;
}
