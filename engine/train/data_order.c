/* SPDX-License-Identifier: MIT
 *
 * Owns the order of rows. Called for every microbatch by the stage that feeds it; one thread per order. Only
 * the permutation of the epoch asked for last is kept: another is drawn anew from its own stream of random
 * numbers, so the answer does not depend on what was asked before. */
#include "train/data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "num/rng.h"

struct data_order {
    size_t rows;
    uint64_t seed;
    uint32_t *perm; /* owned; NULL = file order */
    uint64_t epoch; /* that perm belongs to */
};

static void draw(struct data_order *order, uint64_t epoch)
{
    char purpose[32];
    snprintf(purpose, sizeof purpose, "shuffle/%" PRIu64, epoch);
    struct rng rng = rng_for(order->seed, purpose);
    rng_permutation(&rng, order->perm, order->rows);
    order->epoch = epoch;
}

int data_order_new(struct data_order **ret, size_t rows, bool shuffle, uint64_t seed, struct err *err)
{
    if (rows < 1 || rows > UINT32_MAX)
        return err_set(err, -EINVAL, "%zu rows cannot be ordered, possible are 1 to %" PRIu32, rows,
                       UINT32_MAX);
    struct data_order *order = calloc(1, sizeof *order);
    uint32_t *perm = order && shuffle ? malloc(rows * sizeof *perm) : NULL;
    if (!order || (shuffle && !perm)) {
        free(order);
        return err_set(err, -ENOMEM, "no memory for the order of %zu rows", rows);
    }
    order->rows = rows;
    order->seed = seed;
    order->perm = perm;
    if (perm)
        draw(order, 0);
    *ret = order;
    return 0;
}

size_t data_order_at(struct data_order *order, uint64_t k)
{
    uint64_t epoch = k / order->rows;
    size_t i = (size_t)(k % order->rows);
    if (!order->perm)
        return i;
    if (order->epoch != epoch)
        draw(order, epoch);
    return order->perm[i];
}

void data_order_free(struct data_order *order)
{
    if (!order)
        return;
    free(order->perm);
    free(order);
}
