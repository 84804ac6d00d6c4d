/* SPDX-License-Identifier: MIT
 *
 * How trained values travel between the stage that owns them and the head of the job: unit by unit,
 * the values (w) of a unit's parameters in canonical order, then their first moments (m), then the
 * second (v), cut into pieces of bounded size, so that saving needs little memory beside the
 * training's own. PURE. */
#ifndef MODEL_PARAM_PIECE_H
#define MODEL_PARAM_PIECE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/slice.h"
#include "model/tune.h"

enum {
    PARAM_PIECE_VALUES = 1 << 20, /* 4 MiB of f32 */
    PARAM_PIECES = 4096
}; /* about: of a model for which that would be more, they are larger */

struct param_piece {
    size_t unit, at, n; /* values [at, at + n) of that unit's w, m, v */
};

struct param_pieces {
    size_t n, *first;          /* owned: those of unit u are [first[u], first[u + 1]) */
    struct param_piece *piece; /* owned, [n] */
};

/* A factor of LoRA is never cut, since some files hold it transposed; the parameter of a full
 * fine-tune that is larger than a piece is. state: m and v travel too. −ENOMEM. */
int param_pieces_make(struct param_pieces *ret, const struct tune *tune, const struct family *f,
                      const struct config *c, bool state, struct err *err);
void param_pieces_done(struct param_pieces *pieces);
/* Most values one piece has. */
size_t param_pieces_largest(const struct param_pieces *pieces);

/* Several replicas may share out what updates values: of a parameter with n values each takes a
 * slice, of chunks of the norm's sum (num/vec.h), as equal as can be. Empty where there are fewer
 * chunks than slices. */
struct param_slice {
    size_t at, n;
};
struct param_slice param_slice(size_t n, size_t slice, size_t slices);
/* Of a matrix [rows, cols] whose rows several ranks share, values whose gradients one of them
 * makes; grain as of struct param_def. Others are not worth sending before the ranks gather. */
struct param_slice param_made(struct slice s, size_t rows, size_t cols, size_t grain);
/* Values that are in both; n = 0: none. */
struct param_slice param_slice_both(struct param_slice a, struct param_slice b);
/* What goes from replica to replica: gradients, among them that of a tied embedding which the head
 * makes, or values; without what is never updated. */
enum unit_shared { UNIT_GRADS, UNIT_VALUES };
/* Of one of them values [at, at + n) of those in a slice. */
struct param_share {
    size_t slice, at, n;
};

/* What a piece has of a run of `n` values that begins at `pos` of its unit. */
struct param_piece_part {
    size_t first, n; /* of the run; n = 0: nothing */
    size_t at;       /* of the piece: where that begins */
};
struct param_piece_part param_piece_overlap(const struct param_piece *piece, size_t pos, size_t n);

#endif
