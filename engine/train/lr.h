/* SPDX-License-Identifier: MIT
 *
 * The learning rate of a step. PURE: called by the head of a training job, before each step. */
#ifndef TRAIN_LR_H
#define TRAIN_LR_H

#include <stddef.h>

enum lr_kind { LR_CONSTANT, LR_LINEAR, LR_COSINE };

/* Rate of step 1 … total (as in transformers' get_*_schedule_with_warmup, which counts from 0):
 * linear warm-up over the first `warmup` steps from base/warmup, then constant, linear to 0 or half
 * a cosine to 0 over the rest. */
double lr_at(enum lr_kind kind, double base, size_t warmup, size_t total, size_t step);

#endif
