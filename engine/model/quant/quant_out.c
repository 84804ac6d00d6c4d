/* SPDX-License-Identifier: MIT */
#include "model/quant/quant_out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 4 << 20 /* bytes of levels that are written at once */ };
static const char *const sides[] = {"scales", "biases"};

void quant_out_list(struct st_out_tensor ret[QUANT_OUT_TENSORS], char names[2][STORED_NAME],
                    const struct quant_out *q, const struct tensor_def *def)
{
    const size_t across[] = {quant_words(q->bits, def->cols), quant_groups(q->group, def->cols),
                             quant_groups(q->group, def->cols)};
    const size_t at = q->experts ? 1 : 0;
    for (size_t i = 0; i < QUANT_OUT_TENSORS; i++) {
        if (i)
            stored_side_name(names[i - 1], q->name, sides[i - 1]);
        ret[i] = (struct st_out_tensor){
            .name = i ? names[i - 1] : q->name, .dtype = DTYPE_BF16, .words = !i, .ndim = 2 + at};
        ret[i].shape[0] = q->experts;
        ret[i].shape[at] = def->rows;
        ret[i].shape[at + 1] = across[i];
    }
}

/* Some rows of a matrix. */
struct quant_piece {
    uint32_t *words;     /* owned */
    float *scale, *bias; /* owned */
    size_t rows;         /* how many it has room for */
};

static void piece_done(struct quant_piece *p)
{
    free(p->words);
    free(p->scale);
    free(p->bias);
}

static int piece_init(struct quant_piece *p, const struct quant_out *q, struct mat w, struct err *err)
{
    const size_t words = quant_words(q->bits, w.cols), groups = quant_groups(q->group, w.cols);
    const size_t fit = PIECE / sizeof *p->words / words + 1;
    p->rows = fit < w.rows ? fit : w.rows;
    p->words = calloc(p->rows * words + 1, sizeof *p->words);
    p->scale = calloc(p->rows * groups + 1, sizeof *p->scale);
    p->bias = calloc(p->rows * groups + 1, sizeof *p->bias);
    return p->words && p->scale && p->bias ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int put_piece(const struct quant_out *q, struct st_writer *out, const struct quant_piece *p,
                     struct mat w, size_t rows, struct err *err)
{
    const float *const values[] = {p->scale, p->bias};
    int r = st_writer_words(out, q->name, p->words, rows * quant_words(q->bits, w.cols), err);
    for (size_t i = 0; i < 2 && !r; i++) {
        char side[STORED_NAME];
        stored_side_name(side, q->name, sides[i]);
        r = st_writer_append(out, side, values[i], rows * quant_groups(q->group, w.cols), err);
    }
    return r;
}

int quant_out_put(const struct quant_out *q, struct st_writer *out, struct num *num, struct mat w,
                  struct err *err)
{
    struct quant_piece p = {.words = NULL};
    int r = piece_init(&p, q, w, err);
    for (size_t row = 0, now; row < w.rows && !r; row += now) {
        now = w.rows - row < p.rows ? w.rows - row : p.rows;
        r = gemm_quantize(num, p.words, p.scale, p.bias, w, row, now, q->bits, q->group);
        r = r ? err_set(err, r, "%s holds a weight that is not finite or too large: it cannot be quantized",
                        q->name)
              : put_piece(q, out, &p, w, now, err);
    }
    piece_done(&p);
    return r;
}
