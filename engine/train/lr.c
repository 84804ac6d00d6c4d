/* SPDX-License-Identifier: MIT
 *
 * Owns the learning-rate schedules: pure functions of the step, called by the head of a job before
 * each step. The decay is transformers' lambda of (step − 1): step warmup+1 still has the full rate
 * and step `total` the last one above 0. Only warm-up differs: it starts at base/warmup, for a
 * first step of rate 0 would be a step for nothing. */
#include "train/lr.h"

#include <assert.h>
#include <math.h>

double lr_at(enum lr_kind kind, double base, size_t warmup, size_t total, size_t step)
{
    assert(step >= 1);
    if (step <= warmup)
        return base * (double)step / (double)warmup;
    size_t span = total > warmup ? total - warmup : 1;
    size_t into = step - 1 - warmup;
    double progress = into < span ? (double)into / (double)span : 1;
    switch (kind) {
    case LR_CONSTANT: break;
    case LR_LINEAR: return base * (1 - progress);
    case LR_COSINE: return base * 0.5 * (1 + cos(M_PI * progress));
    }
    return base;
}
