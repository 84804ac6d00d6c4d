/* SPDX-License-Identifier: MIT
 *
 * Both factors of a product, laid out in panels. Called by product.c, by every thread for itself.
 */
#include "num/tile/product_impl.h"

#include <string.h>

#include "num/convert.h"
#include "num/sizes.h"

enum {
    K_TOGETHER = 8, /* rows of k, of a factor by k, are packed together */
};

/* Of a factor, as they lie before they are packed. */
struct rows {
    const float *at;
    size_t apart;
};

/* The last panel, where fewer than `nr` rows are left: 0 beyond them. */
static void pack_trans_rest(const struct work *w, float *dst, size_t nr, struct rows src, size_t rest,
                            size_t k)
{
    memset(dst, 0, k * nr * sizeof *dst);
    num_kernels(w->num)->transpose(dst, nr, src.at, src.apart, rest, k);
}

/* Rows of A or B that are rows of the sum, n outputs of k of them; panels of dst are `apart`. */
static void pack_by_k(float *dst, size_t apart, const float *src, size_t lds, size_t n, size_t k, size_t nr,
                      void (*copy)(float *, const float *, size_t, size_t))
{
    for (size_t j = 0; j < n; j += nr, dst += apart)
        if (n - j >= nr)
            copy(dst, src + j, lds, k);
        else
            pack_copy_rest(dst, nr, src + j, lds, n - j, k);
}

/* n rows of k numbers, rounded into cells of bf16. */
static struct rows rounded(const struct product_block *b, float *to, struct rows from, size_t n, size_t k)
{
    const struct rows r = {to, round_up(k, LINE) + LINE};
    for (size_t i = 0; i < n; i++)
        b->kernels->round(to + i * r.apart, from.at + i * from.apart, k);
    return r;
}

/* Those after the next n of `left`, if they are turned where they lie: it pays to fetch them. */
static const float *next_rows(const struct room *room, struct rows src, size_t n, size_t left)
{
    return src.at != room->rows && left > n ? src.at + n * src.apart : NULL;
}

/* The cells beyond k of a packed panel of B. */
static void clear_rest(const struct product_block *b, float *panel, size_t cells)
{
    memset(panel + cells * b->kernels->nr, 0, (b->k - cells) * b->kernels->nr * sizeof *panel);
}

static const float *row_of_a(const struct segment *s, size_t row)
{
    return s->term->a + row * s->term->lda + s->from;
}

/* --- A ---------------------------------------------------------------------------------------- */

/* Rounded rows that stay rows. */
static void round_rows(float *dst, const struct product_block *b, const struct segment *s, size_t row,
                       size_t rows)
{
    const struct packed_kernels *k = b->kernels;
    const size_t cells = (s->k + k->per - 1) / k->per;
    for (size_t i = 0; i < round_up(rows, k->mr); i++) {
        float *to = dst + (i / k->mr * b->apart * k->mr) + i % k->mr * b->k;
        if (i < rows)
            k->round(to, row_of_a(s, row + i), s->k);
        memset(to + (i < rows ? cells : 0), 0, (b->k - (i < rows ? cells : 0)) * sizeof *to);
    }
}

/* All panels of rows that are steps of k. */
static void pack_a_by_k(float *dst, const struct product_block *b, const struct segment *s, size_t row,
                        size_t rows)
{
    const struct packed_kernels *k = b->kernels;
    const struct product_term *t = s->term;
    for (size_t p = 0; p < s->k; p += K_TOGETHER)
        pack_by_k(dst + p * k->mr, b->apart * k->mr, t->a + (s->from + p) * t->lda + row, t->lda, rows,
                  min_size(K_TOGETHER, s->k - p), k->mr, k->pack_copy_mr);
}

/* The panel that begins with `row`, of which `left` are left. */
static void pack_a_rows(const struct work *w, const struct room *room, float *dst,
                        const struct product_block *b, const struct segment *s, size_t row, size_t left)
{
    const struct packed_kernels *k = b->kernels;
    const size_t n = min_size(k->mr, left), cells = (s->k + k->per - 1) / k->per;
    struct rows src = {row_of_a(s, row), s->term->lda};
    if (b->form == PRODUCT_BF16)
        src = rounded(b, room->rows, src, n, s->k);
    if (n == k->mr)
        k->pack_trans_mr(dst, src.at, src.apart, cells, next_rows(room, src, n, left));
    else
        pack_trans_rest(w, dst, k->mr, src, n, cells);
}

static void pack_a(const struct work *w, const struct room *room, float *dst, const struct product_block *b,
                   const struct segment *s, size_t row, size_t rows)
{
    const struct packed_kernels *k = b->kernels;
    const struct product_term *t = s->term;
    if (k->in_rows) {
        round_rows(dst, b, s, row, rows);
        return;
    }
    dst += s->at * k->mr;
    if (t->a_by_k)
        pack_a_by_k(dst, b, s, row, rows);
    for (size_t i = 0; i < rows; i += k->mr, dst += b->apart * k->mr) {
        if (!t->a_by_k)
            pack_a_rows(w, room, dst, b, s, row + i, rows - i);
        if (t->factor != 1)
            num_kernels(w->num)->scale(dst, t->factor, s->k * k->mr);
    }
}

/* What a row of A becomes bytes with, or NULL. */
static const uint8_t *noise_of(const struct work *w, uint8_t noise[KC_BYTES], const struct segment *s,
                               size_t row)
{
    const uint32_t *key = w->p->noise;
    if (!key)
        return NULL;
    const size_t groups = (s->term->k + PRODUCT_NOISE - 1) / PRODUCT_NOISE;
    num_kernels(w->num)->noise(noise, (s->k + PRODUCT_NOISE - 1) / PRODUCT_NOISE,
                               row * groups + s->from / PRODUCT_NOISE, key);
    return noise;
}

static void bytes_a(const struct work *w, const struct room *room, float *dst, const struct product_block *b,
                    size_t row, size_t rows)
{
    const struct packed_kernels *k = b->kernels;
    const struct segment *s = b->segment;
    for (size_t i = 0; i < rows; i += k->mr, dst += b->apart * k->mr) {
        const size_t n = min_size(k->mr, rows - i);
        float *to = k->in_rows ? dst : room->rows;
        const struct rows r = {to, b->k};
        float scale[PACKED_MR_MOST] = {0};
        int32_t sum[PACKED_MR_MOST] = {0};
        uint8_t noise[KC_BYTES];
        for (size_t j = 0; j < n; j++)
            scale[j] =
                k->bytes->of_a(to + j * r.apart, row_of_a(s, row + i + j), s->k, row_of_a(s, row + i + j + 1),
                               noise_of(w, noise, s, row + i + j), &sum[j]);
        if (k->in_rows)
            memset(to + n * r.apart, 0, (k->mr - n) * r.apart * sizeof *to);
        else if (n == k->mr)
            k->pack_trans_mr(dst, r.at, r.apart, b->k, NULL);
        else
            pack_trans_rest(w, dst, k->mr, r, n, b->k);
        memcpy(dst + b->k * k->mr, scale, k->mr * sizeof *scale);
        memcpy(dst + (b->k + 1) * k->mr, sum, k->mr * sizeof *sum);
    }
}

void product_pack_a(const struct work *w, const struct room *room, float *dst, const struct product_block *b,
                    size_t row, size_t rows)
{
    if (b->form == PRODUCT_BYTES)
        bytes_a(w, room, dst, b, row, rows);
    for (size_t i = 0; b->form != PRODUCT_BYTES && i < b->segments; i++)
        pack_a(w, room, dst, b, &b->segment[i], row, rows);
}

/* --- B, weights by k -------------------------------------------------------------------------- */

/* k rows from s->from + p on, of columns col …, in f32. */
static struct rows rows_by_k(const struct work *w, float *to, size_t apart, const struct segment *s, size_t p,
                             size_t k, size_t col, size_t cols)
{
    const struct mat b = s->term->b;
    const size_t first = s->from + p;
    if (convert_is_plain(b))
        return (struct rows){(const float *)b.data + first * b.cols + col, b.cols};
    for (size_t r = 0, n; r < k; r += n) {
        n = min_size(K_TOGETHER, k - r);
        for (size_t i = 0; i < n; i++)
            convert_fetch(b, first + r + i + K_TOGETHER, col, cols);
        convert_rows(num_kernels(w->num), to + r * apart, apart, b, first + r, n, col, cols);
    }
    return (struct rows){to, apart};
}

/* Cells of bf16 of k rows from s->from + p on, in panels from dst on. */
static void round_by_k(const struct work *w, const struct room *room, float *dst,
                       const struct product_block *b, const struct segment *s, size_t p, size_t k, size_t col,
                       size_t cols)
{
    const struct packed_kernels *kernels = b->kernels;
    const struct mat m = s->term->b;
    const size_t nr = kernels->nr, cells = (k + kernels->per - 1) / kernels->per;
    const bool is_stored = kernels->pair_by_k && convert_is_in_place(m) && m.dtype == DTYPE_BF16;
    const struct rows src =
        is_stored ? (struct rows){NULL, m.cols} : rows_by_k(w, room->rows, NC_BY_K, s, p, k, col, cols);
    for (size_t j = 0; j < cols; j += nr, dst += b->apart * nr) {
        const size_t n = min_size(nr, cols - j);
        if (n < nr)
            memset(dst, 0, cells * nr * sizeof *dst);
        if (is_stored)
            kernels->pair_by_k(dst, nr, (const uint16_t *)convert_element(m, s->from + p, col + j), m.cols, k,
                               n);
        else
            kernels->round_by_k(dst, nr, src.at + j, src.apart, k, n);
    }
}

static void pack_b_by_k(const struct work *w, const struct room *room, const struct product_block *b,
                        const struct segment *s, size_t col, size_t cols)
{
    const size_t nr = b->kernels->nr;
    float *dst = room->b + s->at * nr;
    for (size_t p = 0; p < s->k; p += K_TOGETHER) {
        const size_t k = min_size(K_TOGETHER, s->k - p);
        if (b->form == PRODUCT_BF16) {
            round_by_k(w, room, dst + p / b->kernels->per * nr, b, s, p, k, col, cols);
            continue;
        }
        const struct rows src = rows_by_k(w, room->rows, NC_BY_K, s, p, k, col, cols);
        pack_by_k(dst + p * nr, b->apart * nr, src.at, src.apart, cols, k, nr, b->kernels->pack_copy_nr);
    }
    for (size_t j = 0; b->form == PRODUCT_BF16 && j < cols; j += nr)
        clear_rest(b, dst + j * b->apart, (s->k + b->kernels->per - 1) / b->kernels->per);
}

/* All of k at once, for the largest number of a column decides; few columns, so that they stay in
 * the second cache. */
static void bytes_b_by_k(const struct work *w, const struct room *room, const struct product_block *b,
                         size_t col, size_t cols)
{
    const struct segment *s = b->segment;
    const size_t nr = b->kernels->nr;
    float *dst = room->b;
    for (size_t at = 0, some; at < cols; at += some) {
        some = min_size(NC_STEP_BY_K, cols - at);
        const struct rows src = rows_by_k(w, room->rows, NC_STEP_BY_K, s, 0, s->k, col + at, some);
        for (size_t j = 0; j < some; j += nr, dst += b->apart * nr)
            b->kernels->bytes->by_k(dst, src.at + j, src.apart, s->k, min_size(nr, some - j));
    }
}

/* --- B, weights whose rows are its columns ---------------------------------------------------- */

/* Weights that are already pairs of bf16, each in the four bytes of a float. */
static bool is_paired(const struct product_block *block, struct mat b)
{
    return block->form == PRODUCT_BF16 && block->kernels->per == 2 && convert_is_in_place(b) &&
           b.dtype == DTYPE_BF16 && b.cols % 2 == 0 && (uintptr_t)b.data % sizeof(float) == 0;
}

/* n rows of weights from `row` on, as they are turned; of bytes in f32. */
static struct rows rows_of(const struct work *w, float *to, const struct product_block *block,
                           const struct segment *s, size_t row, size_t n)
{
    const struct mat b = s->term->b;
    const bool plain = convert_is_plain(b);
    const size_t from = row * b.cols + s->from;
    if (is_paired(block, b))
        return (struct rows){(const float *)b.data + from / 2, b.cols / 2};
    struct rows r = {to, round_up(s->k, LINE) + LINE};
    if (plain)
        r = (struct rows){(const float *)b.data + from, b.cols};
    for (size_t i = 0; !plain && i < n; i++)
        convert_fetch(b, row + i + n, s->from, s->k);
    if (!plain)
        convert_rows(num_kernels(w->num), to, r.apart, b, row, n, s->from, s->k);
    return block->form == PRODUCT_BF16 ? rounded(block, to, r, n, s->k) : r;
}

static void pack_b_rows(const struct work *w, const struct room *room, const struct product_block *b,
                        const struct segment *s, size_t col, size_t cols)
{
    const struct packed_kernels *k = b->kernels;
    const size_t cells = (s->k + k->per - 1) / k->per;
    float *dst = room->b + s->at * k->nr;
    for (size_t j = 0; j < cols; j += k->nr, dst += b->apart * k->nr) {
        const size_t n = min_size(k->nr, cols - j);
        const struct rows src = rows_of(w, room->rows, b, s, col + j, n);
        if (n == k->nr)
            k->pack_trans_nr(dst, src.at, src.apart, cells, next_rows(room, src, n, cols - j));
        else
            pack_trans_rest(w, dst, k->nr, src, n, cells);
        if (b->form == PRODUCT_BF16)
            clear_rest(b, dst, cells);
    }
}

static void bytes_b_rows(const struct work *w, const struct room *room, const struct product_block *b,
                         size_t col, size_t cols)
{
    const struct packed_kernels *k = b->kernels;
    const struct segment *s = b->segment;
    float *dst = room->b;
    for (size_t j = 0; j < cols; j += k->nr, dst += b->apart * k->nr) {
        const size_t n = min_size(k->nr, cols - j);
        const struct rows src = rows_of(w, room->rows, b, s, col + j, n), r = {room->rows, b->k};
        float scale[PACKED_NR_MOST] = {0};
        for (size_t i = 0; i < n; i++)
            scale[i] = k->bytes->of_b(room->rows + i * r.apart, src.at + i * src.apart, s->k,
                                      src.at + (i + 1) * src.apart);
        if (n == k->nr)
            k->pack_trans_nr(dst, r.at, r.apart, b->k, NULL);
        else
            pack_trans_rest(w, dst, k->nr, r, n, b->k);
        memcpy(dst + b->k * k->nr, scale, k->nr * sizeof *scale);
    }
}

void product_pack_b(const struct work *w, const struct room *room, const struct product_block *b, size_t col,
                    size_t cols)
{
    if (b->form == PRODUCT_BYTES) {
        (b->segment->term->b_by_k ? bytes_b_by_k : bytes_b_rows)(w, room, b, col, cols);
        return;
    }
    for (size_t i = 0; i < b->segments; i++)
        (b->segment[i].term->b_by_k ? pack_b_by_k : pack_b_rows)(w, room, b, &b->segment[i], col, cols);
}
