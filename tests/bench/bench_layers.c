/* SPDX-License-Identifier: MIT
 *
 * What the products and layers reach beside bare sgemm in the same run: `bench_layers [threads]`.
 * Medians of five. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer/mla.h"
#include "tests/bench/bench.h"

struct bench {
    struct num *num;
    size_t n, rows, cols;
    struct mat w;
    float *x, *y;
    struct seqs seqs;
    struct attn_dims dims;
    float *qkvo[8];
    struct mla_dims mla; /* of the last n of `len` positions */
    struct mla_room room;
    size_t len;
};

static double median_of(void (*run)(struct bench *), struct bench *b)
{
    double t[5];
    run(b);
    for (int i = 0; i < 5; i++) {
        int times = 0;
        const double start = bench_now();
        do {
            run(b);
            times++;
        } while (bench_now() - start < 0.04);
        t[i] = (bench_now() - start) / times;
    }
    return bench_median(t, 5);
}

static void run_bare(struct bench *b)
{
    cblas_sgemm(BENCH_ROW_MAJOR, BENCH_NO_TRANS, BENCH_TRANS, (int)b->n, (int)b->rows, (int)b->cols, 1, b->x,
                (int)b->cols, b->w.data, (int)b->cols, 0, b->y, (int)b->rows);
}

static void run_xwt(struct bench *b)
{
    gemm_xwt(b->num, b->y, b->x, b->w, b->n, false);
}

static void run_xw(struct bench *b)
{
    gemm_xw(b->num, b->x, b->y, b->w, b->n, false);
}

static void run_attn(struct bench *b)
{
    attn_forward(b->num, b->qkvo[3], b->qkvo[4], b->qkvo[0], b->qkvo[1], b->qkvo[2], b->seqs, b->dims);
}

static void run_attn_back(struct bench *b)
{
    attn_backward_x(b->num, b->qkvo[5], b->qkvo[6], b->qkvo[7], b->y, b->qkvo[3], b->qkvo[4], b->qkvo[0],
                    b->qkvo[1], b->qkvo[2], b->seqs, b->dims);
}

static void run_cached(struct bench *b)
{
    attn_cached(b->num, b->qkvo[3], b->qkvo[0], b->qkvo[1], b->qkvo[2], 1, b->n, b->dims);
}

static void run_expanded(struct bench *b)
{
    const struct linear kv_b = {.w = b->w};
    mla_expanded(b->num, b->y, b->x, b->qkvo[0], &kv_b, &b->room, b->mla, 0.07f, b->n, b->len);
}

static void run_absorbed(struct bench *b)
{
    const struct linear kv_b = {.w = b->w};
    mla_absorb_q(b->num, b->qkvo[1], b->x, &kv_b, NULL, b->mla, b->n);
    attn_cached(b->num, b->qkvo[2], b->qkvo[1], b->qkvo[0], b->qkvo[0], b->n, b->len, b->dims);
    mla_absorb_o(b->num, b->y, b->qkvo[2], &kv_b, NULL, b->mla, b->n);
}

static void run_norm(struct bench *b)
{
    rmsnorm_forward(b->num, b->y, b->qkvo[4], b->x, b->w.data,
                    (struct rmsnorm_dims){b->n, b->cols, 1e-5f, 0});
}

static void run_swiglu(struct bench *b)
{
    glu_forward(b->num, b->y, b->x, b->x, (struct glu){0}, b->n * b->cols);
}

static void run_dropout(struct bench *b)
{
    const struct lora lora = {
        .a = b->w.data, .b = b->w.data, .rank = 8, .scale = 1, .dropout = 0.1f, .drop = {{1, 2}, 0}};
    const struct linear lin = {.w = {.data = b->w.data, .dtype = DTYPE_F32, .rows = 1, .cols = b->cols},
                               .lora = &lora};
    linear_forward(b->num, b->y, b->qkvo[0], b->x, &lin, b->n);
}

static float *numbers(size_t n, const char *purpose)
{
    float *x = malloc(n * sizeof *x);
    if (!x)
        abort();
    struct rng rng = rng_for(1, purpose);
    rng_fill_uniform(&rng, x, n, -1, 1);
    return x;
}

static void products(struct num *num, size_t n, size_t rows, size_t cols)
{
    struct bench b = {.num = num, .n = n, .rows = rows, .cols = cols};
    float *w = numbers(rows * cols, "w");
    uint16_t *half = malloc(rows * cols * sizeof *half);
    if (!half)
        abort();
    for (size_t i = 0; i < rows * cols; i++)
        memcpy(&half[i], (const char *)&w[i] + 2, sizeof *half);
    b.x = numbers(n * cols, "x");
    b.y = numbers(n * rows, "y");
    const double flop = 2e-9 * (double)n * (double)rows * (double)cols,
                 bytes = 1e-9 * (double)rows * (double)cols;
    b.w = (struct mat){.data = w, .dtype = DTYPE_F32, .rows = rows, .cols = cols};
    const double bare = flop / median_of(run_bare, &b), f32 = flop / median_of(run_xwt, &b);
    const double xw32 = flop / median_of(run_xw, &b);
    b.w = (struct mat){.data = half, .dtype = DTYPE_BF16, .rows = rows, .cols = cols};
    const double bf16 = flop / median_of(run_xwt, &b), xw16 = flop / median_of(run_xw, &b);
    printf("%4zu x %5zu x %5zu  sgemm %6.1f  xwt f32 %6.1f (%3.0f %%)  bf16 %6.1f (%3.0f %%)  xw f32 %6.1f  "
           "bf16 %6.1f GFLOP/s",
           n, rows, cols, bare, f32, 100 * f32 / bare, bf16, 100 * bf16 / bare, xw32, xw16);
    if (n == 1)
        printf("  f32 %.1f  bf16 %.1f GB/s", 4 * bytes * f32 / flop, 2 * bytes * bf16 / flop);
    putchar('\n');
    free(w), free(half), free(b.x), free(b.y);
}

static void attention(struct num *num, size_t tokens, struct attn_dims dims)
{
    const uint32_t start[2] = {0, (uint32_t)tokens};
    struct bench b = {.num = num, .n = tokens, .seqs = {1, start}, .dims = dims};
    for (size_t i = 0; i < 8; i++)
        b.qkvo[i] = numbers(tokens * dims.heads * dims.head, "q");
    b.y = numbers(tokens * dims.heads * dims.head, "do");
    const double pairs = 0.5e-9 * (double)tokens * (double)tokens * (double)(dims.heads * dims.head);
    const double forward = median_of(run_attn, &b), back = median_of(run_attn_back, &b),
                 cached = median_of(run_cached, &b);
    printf("attention T %zu, %zu/%zu heads of %zu: forward %.1f, backward %.1f GFLOP/s of the causal half; "
           "one token %.1f µs, "
           "%.1f GB/s of cache\n",
           tokens, dims.heads, dims.kv_heads, dims.head, 4 * pairs / forward, 10 * pairs / back, 1e6 * cached,
           8e-9 * (double)(tokens * dims.kv_heads * dims.head) / cached);
    for (size_t i = 0; i < 8; i++)
        free(b.qkvo[i]);
    free(b.y);
}

/* DeepSeek-V2-Lite's: the newest n of len positions. Counted is what must be done: their own keys
 * and values expanded once, and the causal part of the square. */
static void latent(struct num *num, size_t n, size_t len)
{
    const struct mla_dims d = {16, 128, 64, 128, 512};
    const size_t out = d.nope + d.value, wide = d.rank + d.rope, heads = mla_room_heads(d, n, len);
    struct bench b = {.num = num, .n = n, .len = len, .mla = d};
    uint16_t *half = malloc(d.heads * out * d.rank * sizeof *half);
    float *w = numbers(d.heads * out * d.rank, "w");
    if (!half)
        abort();
    for (size_t i = 0; i < d.heads * out * d.rank; i++)
        memcpy(&half[i], (const char *)&w[i] + 2, sizeof *half);
    b.w = (struct mat){.data = half, .dtype = DTYPE_BF16, .rows = d.heads * out, .cols = d.rank};
    b.dims = (struct attn_dims){d.heads, 1, wide, 0.07f, d.rank, wide, 0, 0, 0, 0, NULL, NULL, 0};
    b.x = numbers(n * d.heads * (d.nope + d.rope), "q");
    b.y = numbers(n * d.heads * d.value, "o");
    b.qkvo[0] = numbers(len * wide, "c");
    b.qkvo[1] = numbers(n * d.heads * wide, "latent q");
    b.qkvo[2] = numbers(n * d.heads * d.rank, "latent o");
    const size_t all = heads ? len : 0;
    b.room = (struct mla_room){heads,
                               numbers(heads * out * d.rank, "room w"),
                               numbers(MLA_BLOCK * d.rank, "room c"),
                               numbers(MLA_BLOCK * heads * out, "room kv"),
                               numbers(all * heads * (d.nope + d.rope), "room k"),
                               numbers(all * heads * d.value, "room v")};
    const double pairs = (double)n * (double)len - 0.5 * (double)n * (double)(n - 1);
    const double flop =
        2e-9 * (double)d.heads * (pairs * (double)(d.nope + d.rope + d.value) + (double)(n * d.rank * out));
    const double absorbed = median_of(run_absorbed, &b), expanded = heads ? median_of(run_expanded, &b) : 0;
    printf("latent attention, %zu of %zu: absorbed %.1f, expanded %.1f GFLOP/s%s\n", n, len, flop / absorbed,
           heads ? flop / expanded : 0, mla_is_expanded(d, n, len) ? ", taken: expanded" : "");
    free(b.x), free(b.y), free(w), free(half);
    for (int i = 0; i < 3; i++)
        free(b.qkvo[i]);
    free(b.room.w), free(b.room.c), free(b.room.kv), free(b.room.k), free(b.room.v);
}

static void elementwise(struct num *num)
{
    struct bench b = {.num = num, .n = 512, .cols = 2048};
    b.x = numbers(b.n * b.cols, "x");
    b.y = numbers(b.n * b.cols, "y");
    float *w = numbers(8 * b.cols, "w");
    b.w = (struct mat){.data = w, .dtype = DTYPE_F32, .rows = 1, .cols = b.cols};
    b.qkvo[0] = numbers(b.n * 8, "xa");
    b.qkvo[4] = numbers(b.n, "rstd");
    const double n = 1e-9 * (double)(b.n * b.cols);
    printf("512 x 2048 elements, ns each: rmsnorm %.3f  swiglu %.3f  dropped LoRA input %.3f\n",
           median_of(run_norm, &b) / n, median_of(run_swiglu, &b) / n, median_of(run_dropout, &b) / n);
    free(b.x), free(b.y), free(w), free(b.qkvo[0]), free(b.qkvo[4]);
}

static int measure(int threads)
{
    struct num *num = NULL;
    struct err err;
    bench_must(num_new(&num, threads, &err), &err);
    printf("%d threads, kernels %s\n", num_threads(num), num_isa(num));
    static const size_t shapes[][3] = {
        {512, 768, 768}, {512, 2048, 768}, {512, 768, 2048}, {512, 2048, 2048}, {128, 2048, 2048},
        {512, 8, 2048},  {32, 2048, 2048}, {16, 2048, 2048}, {9, 2048, 2048},   {8, 2048, 2048},
        {4, 2048, 2048}, {1, 8192, 2048},  {1, 768, 768}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        products(num, shapes[i][0], shapes[i][1], shapes[i][2]);
    attention(num, 512, (struct attn_dims){12, 12, 64, 0.125f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0});
    attention(num, 512, (struct attn_dims){32, 8, 64, 0.125f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0});
    attention(num, 2048, (struct attn_dims){16, 8, 128, 0.088f, 0, 0, 0, 0, 0, 0, NULL, NULL, 0});
    static const size_t chunks[][2] = {{16, 16},   {64, 64},    {64, 2048},  {128, 2048}, {256, 2048},
                                       {512, 512}, {512, 1024}, {512, 2048}, {512, 8192}};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        latent(num, chunks[i][0], chunks[i][1]);
    elementwise(num);
    num_free(num);
    return 0;
}

/* A third argument: in the stage's environment. */
int main(int argc, char **argv)
{
    char *args[] = {argv[0], argc > 1 ? argv[1] : "1", "again", NULL};
    return argc > 2 ? measure(atoi(argv[1])) : bench_again(atoi(args[1]), args);
}
