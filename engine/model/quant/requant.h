/* SPDX-License-Identifier: MIT
 *
 * Weights quantized when a stage opens, kept on disk for the next time: a file for each unit of the
 * model, named by a hash over the layout and over which files it was made from. */
#ifndef MODEL_REQUANT_H
#define MODEL_REQUANT_H

#include "model/unit.h"

struct requant {
    const char *dir;   /* where the files go; made if it is not there */
    size_t bits;       /* 4 or 8 */
    struct maps *maps; /* borrowed, or NULL */
};
struct requant_told {
    size_t made, found,
        removed; /* bytes written now, found as they had been written before, and of other files deleted for room */
};

/* Puts quantized matrices in the place of a bound unit's. What is trained, small or oddly shaped
 * stays. Adds to `told`. */
int unit_requant(struct unit *u, struct num *num, const struct st *st, const struct requant *how,
                 struct requant_told *told, struct err *err);

#endif
