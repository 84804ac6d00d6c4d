/* SPDX-License-Identifier: MIT
 *
 * Products in nested blocks, with the names of BLIS (Goto and van de Geijn 2008; Van Zee and van de
 * Geijn 2015). C is made of tiles of MR × NR sums, which stay in registers:
 *
 *               C, NC                  A, k             B, NC
 *            +---------+             +---------+    +---------+
 *         MC |    NR   |          MC | MR | KC |    |    NR   | KC
 *            | MR [ ]  |    +=       +---------+    |    |    |
 *            +---------+                            +---------+
 * A block is packed in panels of MR rows of A, or NR columns of B, in the order in which a tile
 * reads it. pack_trans turns a factor whose rows lie along k, pack_copy takes one whose rows are
 * steps of k ("by k"). A panel of A stays in the first cache, a block of B in the second.
 * Each thread has rows of C, packs A's and all of B, and helps the others when it is done; or,
 * where packing B again and again would take too long, they pack A together, or two of them each
 * for itself, and take columns of C for as long as there are some, ever fewer at a time. Either way
 * a thread that was interrupted, or whose core is slow, takes less. Called by gemm.c. */
#include "num/tile/product_impl.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

#include "num/convert.h"
#include "num/share.h"
#include "num/sizes.h"

enum {
    KC_STEP = 8,        /* blocks are multiples of this, or of what weights are converted by */
    MC = 2304,          /* rows of A packed at once, at most: a block of these whole tiles fits the scratch */
    ALONE = 2,          /* threads up to which each packs all of A: what another core wrote may be far away */
    ROWS_TOGETHER = 96, /* of A that a thread packs at once: whole tiles */
    TILES = 2,          /* of columns in the smallest share: each has all of A's rows read once more */
    NARROW = 64,        /* columns for each thread below which those of a C with more rows are not shared */
    OWNERS = 16,        /* threads, at most, that have rows of their own */
    OWN_ROWS = 192,     /* and how many of them each, at least: all of B is packed for them */
    OWN_WIDER = 2,      /* B's columns for each of A's rows, at most: otherwise packing A twice is less */
    SMALL_SHARE = 1 << 18, /* multiplications that are worth a share of their own */
};

bool product_is_ours(const struct num *num)
{
    return num_packed(num) != NULL;
}

/* --- blocks of k ------------------------------------------------------------------------------ */

/* Of a block, at most. Numbers rounded to bf16 have the same blocks in cells of one and of two, for
 * the same bits. AMX, whose sums go on in C from block to block, has blocks whose rows of both
 * factors stay in the first cache. */
static size_t kc_most(const struct packed_kernels *k, enum product_form form)
{
    return form == PRODUCT_BYTES ? KC_BYTES : form == PRODUCT_BF16 && !k->in_rows ? 2 * KC_F32 : KC_F32;
}

static size_t kc_of(const struct packed_kernels *k, enum product_form form, const struct product_term *t)
{
    const size_t own = form == PRODUCT_BYTES ? KC_BYTES_STEP : max_size(KC_STEP, k->deep * k->per),
                 step = max_size(own, convert_step(t->b)), most = kc_most(k, form),
                 blocks = (t->k + most - 1) / most;
    return round_up((t->k + blocks - 1) / blocks, step);
}

/* Steps to the next block; false after the last. Start with {0}. */
static bool next_block(const struct work *w, struct walk *walk, struct product_block *b)
{
    const struct product *p = w->p;
    const bool first = walk->term == 0 && walk->at == 0;
    while (walk->term < p->terms && walk->at == p->term[walk->term].k) {
        walk->term++;
        walk->at = 0;
    }
    if (walk->term == p->terms)
        return false;
    const struct product_term *t = &p->term[walk->term];
    const enum product_form form = walk->term ? PRODUCT_F32 : p->form;
    const struct packed_kernels *kernels = walk->term ? w->f32 : w->k;
    const size_t k = min_size(kc_of(kernels, form, t), t->k - walk->at),
                 cells = round_up((k + kernels->per - 1) / kernels->per, kernels->deep);
    *b = (struct product_block){.segment = {{t, walk->at, k, 0}},
                                .segments = 1,
                                .k = cells,
                                .apart = cells + kernels->tail,
                                .form = form,
                                .kernels = kernels,
                                .first = first};
    walk->at += k;
    if (walk->at == t->k && walk->term + 1 < p->terms && t[1].k <= JOINED && form == PRODUCT_F32) {
        b->segment[b->segments++] = (struct segment){t + 1, 0, t[1].k, k};
        b->k += t[1].k;
        b->apart += t[1].k;
        walk->term++;
        walk->at = t[1].k;
    }
    return true;
}

/* --- multiplying ------------------------------------------------------------------------------ */

/* A tile that reaches beyond C: what there is of it goes through one that does not. lda: A lies in
 * place; or 0. */
static void edge_tile(const struct packed_kernels *k, const struct packed_tile *t, size_t lda, size_t rows,
                      size_t cols)
{
    float whole[PACKED_MR_MOST * PACKED_NR_MOST] = {0};
    struct packed_tile inner = *t;
    inner.c = whole, inner.ldc = k->nr;
    inner.next_c = whole; /* C's next tile has rows further apart */
    for (size_t i = 0; t->accumulate && i < rows; i++)
        memcpy(whole + i * k->nr, t->c + i * t->ldc, cols * sizeof *whole);
    if (lda)
        k->tile_in_place(&inner, lda);
    else
        k->tile(&inner);
    for (size_t i = 0; i < rows; i++)
        memcpy(t->c + i * t->ldc, whole + i * k->nr, cols * sizeof *whole);
}

/* Packed rows of A with packed columns of B. c: their first element. */
static void multiply(const struct product_block *block, float *c, size_t ldc, const float *b, size_t rows,
                     size_t cols, bool accumulate)
{
    const struct packed_kernels *k = block->kernels;
    const float *a = block->a;
    const size_t mr = k->mr, nr = k->nr, depth = block->apart, panel = mr * depth,
                 tiles = (cols + nr - 1) / nr;
    if (k->begin)
        k->begin();
    for (size_t i = 0; i < rows; i += mr)
        for (size_t n = 0; n < tiles; n++) {
            const size_t j = n * nr, below = rows - i > mr ? i + mr : 0;
            const struct packed_tile t = {.c = c + i * ldc + j,
                                          .ldc = ldc,
                                          .a = a + i * depth,
                                          .b = b + j * depth,
                                          .k = block->k,
                                          .accumulate = accumulate,
                                          .next_a = a + below * depth + n * panel / tiles,
                                          .next_c = n + 1 < tiles ? c + i * ldc + j + nr : c + below * ldc};
            if (rows - i >= mr && cols - j >= nr)
                k->tile(&t);
            else
                edge_tile(k, &t, 0, min_size(mr, rows - i), min_size(nr, cols - j));
        }
    if (k->end)
        k->end();
}

/* One panel of B: A would be packed to be read once, so whole tiles are multiplied where they lie.
 * Returns the rows done. */
static size_t multiply_in_place(const struct work *w, const struct c_part *s, const struct room *room)
{
    const struct product *p = w->p;
    const struct product_term *t = p->term;
    const size_t mr = w->k->mr, whole = s->rows / mr * mr;
    if (s->cols > w->k->nr || p->terms > 1 || t->a_by_k || t->factor != 1 || p->form != PRODUCT_F32)
        return 0;
    struct product_block b;
    for (struct walk walk = {0, 0}; next_block(w, &walk, &b);) {
        const float *a = t->a + s->row * t->lda + b.segment->from;
        float *c = p->c + s->row * p->ldc + s->col;
        product_pack_b(w, room, &b, s->col, s->cols);
        for (size_t i = 0; i < whole; i += mr) {
            const struct packed_tile tile = {.c = c + i * p->ldc,
                                             .ldc = p->ldc,
                                             .a = a + i * t->lda,
                                             .b = room->b,
                                             .k = b.k,
                                             .accumulate = p->accumulate || !b.first};
            if (s->cols == w->k->nr)
                w->k->tile_in_place(&tile, t->lda);
            else
                edge_tile(w->k, &tile, t->lda, mr, s->cols);
        }
    }
    return whole;
}

/* `together`: A is packed by all threads for all. */
static struct room room_of(const struct num *num, bool together)
{
    const int thread = omp_get_thread_num();
    const struct scratch lane = num_lane(num, thread);
    const struct scratch a = together ? num_converted_all(num) : num_converted(num, thread);
    return (struct room){a.data, lane.data, lane.data + NC_BY_K * KC_MAX, a.floats};
}

/* How many of A's rows are packed at once: as few times as can be, for B is packed anew each time,
 * and evenly. */
static size_t mc_of(const struct work *w, size_t rows)
{
    const size_t deepest = kc_most(w->k, w->p->form) / w->k->per + w->k->tail,
                 most = MC * KC_F32 / max_size(deepest, JOINED), times = (rows + most - 1) / most;
    return round_up((rows + times - 1) / times, w->k->mr);
}

/* As many of the next blocks as A's rows fit the scratch in, at least one. */
static void next_run(const struct work *w, const struct room *room, size_t rows, struct run *run)
{
    run->blocks = 0;
    for (size_t floats = 0; run->blocks < BLOCKS; run->blocks++) {
        const struct walk before = run->walk;
        struct product_block *b = &run->block[run->blocks];
        if (!next_block(w, &run->walk, b))
            return;
        b->a = room->a + floats;
        floats += round_up(rows, b->kernels->mr) * b->apart;
        if (floats > room->a_floats) {
            assert(run->blocks);
            run->walk = before;
            return;
        }
    }
}

/* Rows `at` … of those that s has, of one block. */
static void pack_rows(const struct work *w, const struct room *room, const struct c_part *s,
                      const struct product_block *b, size_t at, size_t rows)
{
    product_pack_a(w, room, b->a + at * b->apart, b, s->row + at, rows);
}

/* Columns of B that are packed at once. Numbers of bf16 in cells of one have longer blocks. */
static size_t nc_most(const struct work *w)
{
    const bool is_long = w->p->form == PRODUCT_BF16 && w->k->per == 1;
    return !w->p->term->b_by_k ? w->k->nc : is_long ? NC_BY_K / 2 : NC_BY_K;
}

/* C's outputs that are `s`'s, with a run of blocks whose rows of A are packed. */
static void multiply_run(const struct work *w, const struct c_part *s, const struct room *room,
                         const struct run *run)
{
    const struct product *p = w->p;
    const size_t nc = nc_most(w);
    for (size_t j = 0; j < s->cols; j += nc)
        for (size_t n = 0; n < run->blocks; n++) {
            const struct product_block *b = &run->block[n];
            const size_t cols = min_size(nc, s->cols - j);
            product_pack_b(w, room, b, s->col + j, cols);
            for (size_t at = 0; at < cols; at += w->k->nc)
                multiply(b, p->c + s->row * p->ldc + s->col + j + at, p->ldc, room->b + at * b->apart,
                         s->rows, min_size(w->k->nc, cols - at), p->accumulate || !b->first);
        }
}

/* --- sharing: few columns, so that each thread has rows and packs all of B -------------------- */

static void run_rows(const struct work *w, const struct c_part *all)
{
    const struct room room = room_of(w->num, false);
    const size_t in_place = multiply_in_place(w, all, &room);
    if (in_place == all->rows)
        return;
    const size_t mc = mc_of(w, all->rows - in_place);
    for (size_t i = in_place; i < all->rows; i += mc) {
        const struct c_part s = {all->row + i, min_size(mc, all->rows - i), all->col, all->cols};
        struct run run = {.walk = {0, 0}};
        for (next_run(w, &room, s.rows, &run); run.blocks; next_run(w, &room, s.rows, &run)) {
            for (size_t n = 0; n < run.blocks; n++)
                pack_rows(w, &room, &s, &run.block[n], 0, s.rows);
            multiply_run(w, &s, &room, &run);
        }
    }
}

static void share_rows(const struct work *w, size_t threads)
{
#pragma omp parallel for schedule(static) num_threads((int)threads) if (threads > 1)
    for (size_t i = 0; i < threads; i++) {
        const struct share s = share_of(w->p->m, w->k->mr, threads, i);
        if (s.n)
            run_rows(w, &(struct c_part){s.from, s.n, 0, w->p->n});
    }
}

/* --- sharing: columns, as they come ----------------------------------------------------------- */

/* Columns of C, each share worth waking for. */
static struct cut cut_of(const struct work *w, size_t threads)
{
    const struct product *p = w->p;
    size_t k = 0;
    for (size_t t = 0; t < p->terms; t++)
        k += p->term[t].k;
    const size_t step = p->term->b_by_k ? NC_STEP_BY_K : TILES * w->k->nr;
    return (struct cut){p->n, round_up(SMALL_SHARE / (p->m * k) + 1, step), threads};
}

/* A's rows of a run: by all threads for all, or by each for itself. */
static void pack_run(const struct work *w, const struct c_part *all, const struct room *room,
                     const struct run *run, bool together)
{
    const size_t groups = (all->rows + ROWS_TOGETHER - 1) / ROWS_TOGETHER;
    if (!together) {
        for (size_t n = 0; n < run->blocks; n++)
            pack_rows(w, room, all, &run->block[n], 0, all->rows);
        return;
    }
#pragma omp for schedule(dynamic)
    for (size_t g = 0; g < groups * run->blocks; g++) {
        const size_t at = g % groups * ROWS_TOGETHER;
        pack_rows(w, room, all, &run->block[g / groups], at, min_size(ROWS_TOGETHER, all->rows - at));
    }
}

/* By every thread of a region; each loop ends when all are there. */
static void run_columns(const struct work *w, const struct cut *cut, size_t shares)
{
    const bool together = cut->threads > ALONE;
    const struct room room = room_of(w->num, together);
    const size_t rows = w->p->m, mc = mc_of(w, rows);
    for (size_t i = 0; i < rows; i += mc) {
        const struct c_part all = {i, min_size(mc, rows - i), 0, w->p->n};
        struct run run = {.walk = {0, 0}};
        for (next_run(w, &room, all.rows, &run); run.blocks; next_run(w, &room, all.rows, &run)) {
            pack_run(w, &all, &room, &run, together);
#pragma omp for schedule(dynamic)
            for (size_t j = 0; j < shares; j++) {
                const struct share s = share_cut(cut, j);
                multiply_run(w, &(struct c_part){all.row, all.rows, s.from, s.n}, &room, &run);
            }
        }
    }
}

static void share_columns(const struct work *w, size_t threads)
{
    const struct cut cut = cut_of(w, threads);
    const size_t shares = share_count(&cut);
#pragma omp parallel num_threads((int)threads) if (threads > 1)
    run_columns(w, &cut, shares);
}

/* --- sharing: rows, and what of others' is left when one's own are done ----------------------- */

/* Shares of columns that were taken of a thread's rows, in runs by turns: while one is counted the
 * other becomes 0. */
struct taken {
    _Alignas(LINE * sizeof(float)) size_t shares[2];
};

static size_t take_share(size_t *shares)
{
    size_t i;
#pragma omp atomic capture
    i = (*shares)++;
    return i;
}

/* Of `rows`, columns for as long as there are some that nobody has taken, nc at a time. */
static void run_taken(const struct work *w, const struct c_part *rows, size_t nc, const struct room *room,
                      const struct run *run, size_t *shares)
{
    bool packed = false;
    for (size_t col; (col = take_share(shares) * nc) < rows->cols; packed = true) {
        for (size_t n = 0; !packed && n < run->blocks; n++)
            pack_rows(w, room, rows, &run->block[n], 0, rows->rows);
        multiply_run(w, &(struct c_part){rows->row, rows->rows, col, min_size(nc, rows->cols - col)}, room,
                     run);
    }
}

/* Columns taken at a time: as many as are packed together, or evenly fewer. */
static size_t nc_taken(const struct work *w)
{
    const bool by_k = w->p->term->b_by_k;
    const size_t n = w->p->n, most = nc_most(w), times = (n + most - 1) / most;
    return round_up((n + times - 1) / times, by_k ? NC_STEP_BY_K : w->k->nr);
}

/* By every thread of a region. A run ends when all are there, for the next adds to the same
 * outputs, whoever takes them. */
static void run_owned(const struct work *w, struct taken *taken, size_t threads)
{
    const struct room room = room_of(w->num, false);
    const size_t me = (size_t)omp_get_thread_num(), nc = nc_taken(w);
    const size_t most = share_of(w->p->m, w->k->mr, threads, threads - 1).n, mc = mc_of(w, most);
    size_t turn = 0;
    for (size_t i = 0; i < most; i += mc) {
        struct run run = {.walk = {0, 0}};
        for (next_run(w, &room, mc, &run); run.blocks; next_run(w, &room, mc, &run), turn = !turn) {
            for (size_t t = 0; t < threads; t++) {
                const size_t whose = (me + t) % threads;
                const struct share s = share_of(w->p->m, w->k->mr, threads, whose);
                if (s.n > i)
                    run_taken(w, &(struct c_part){s.from + i, min_size(mc, s.n - i), 0, w->p->n}, nc, &room,
                              &run, &taken[whose].shares[turn]);
            }
#pragma omp barrier
            for (size_t t = 0; me == 0 && t < threads; t++)
                taken[t].shares[turn] = 0;
        }
    }
}

static void share_owned(const struct work *w, size_t threads)
{
    struct taken taken[OWNERS] = {0};
#pragma omp parallel num_threads((int)threads)
    run_owned(w, taken, threads);
}

/* --- sharing: which way ----------------------------------------------------------------------- */

static bool is_owned(const struct product *p, size_t threads)
{
    return threads > 1 && threads <= OWNERS && p->m >= threads * OWN_ROWS && p->n <= OWN_WIDER * p->m;
}

static const struct packed_kernels *tiles_of(const struct num *num, const struct product *p,
                                             enum product_form form)
{
    const struct packed_kernels *k = form == PRODUCT_BYTES  ? num_packed_bytes(num)
                                     : form == PRODUCT_BF16 ? num_packed_bf16(num)
                                                            : num_packed(num);
    const bool is_narrow =
        k && k->narrow && p->form != PRODUCT_BYTES && (p->m <= k->narrow->mr || p->n <= k->narrow->nr);
    return is_narrow ? k->narrow : k;
}

bool product_is_joined(const struct num *num, enum product_form form)
{
    const struct packed_kernels *f32 = num_packed(num), *bytes = num_packed_bytes(num);
    return f32 && (form != PRODUCT_BYTES || f32->nr == bytes->nr);
}

void product_run(struct num *num, const struct product *p)
{
    size_t work = 0;
    for (size_t t = 0; t < p->terms; t++)
        work += p->m * p->n * p->term[t].k;
    assert(work && (p->form == PRODUCT_F32 || (p->term->factor == 1 && !p->term->a_by_k)));
    const struct work w = {num, tiles_of(num, p, p->form), tiles_of(num, p, PRODUCT_F32), p};
    const size_t threads = share_threads((size_t)num_threads(num), work);
    const bool narrow = p->n < p->m && p->n < threads * NARROW;
    (narrow ? share_rows : is_owned(p, threads) ? share_owned : share_columns)(&w, threads);
}
