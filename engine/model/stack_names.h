/* SPDX-License-Identifier: MIT
 *
 * What mlx-lm calls the linears of experts that lie in one tensor: gate_proj, up_proj and down_proj
 * in every family. Files of MiniMax, with each expert by itself, call them w1, w3 and w2. Called by
 * what reads and writes models and adapters; pure. */
#ifndef MODEL_STACK_NAMES_H
#define MODEL_STACK_NAMES_H

#include <stddef.h>

/* The end of a name: "w1.weight" of an expert → "gate_proj.weight" of the stack; others stay. The
 * first n bytes of `tail` are all of it. */
void stack_tail(char *ret, size_t size, const char *tail, size_t n);
/* The way back, behind the first n bytes of `name`: "model.layers.0.block_sparse_moe". */
void stack_expert_tail(char *ret, size_t size, const char *name, size_t n, const char *tail);

#endif
