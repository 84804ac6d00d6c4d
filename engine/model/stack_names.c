/* SPDX-License-Identifier: MIT */
#include "model/stack_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MINIMAX "block_sparse_moe"

static const struct {
    const char *expert, *stack;
} linears[] = {{"w1", "gate_proj"}, {"w3", "up_proj"}, {"w2", "down_proj"}};
enum { LINEARS = sizeof linears / sizeof *linears };

static bool begins_with(const char *tail, size_t n, const char *word)
{
    const size_t w = strlen(word);
    return n >= w && !strncmp(tail, word, w) && (n == w || tail[w] == '.');
}

static void replace(char *ret, size_t size, const char *tail, size_t n, const char *word, const char *by)
{
    const size_t skip = strlen(word);
    snprintf(ret, size, "%s%.*s", by, (int)(n - skip), tail + skip);
}

void stack_tail(char *ret, size_t size, const char *tail, size_t n)
{
    for (size_t i = 0; i < LINEARS; i++)
        if (begins_with(tail, n, linears[i].expert)) {
            replace(ret, size, tail, n, linears[i].expert, linears[i].stack);
            return;
        }
    snprintf(ret, size, "%.*s", (int)n, tail);
}

void stack_expert_tail(char *ret, size_t size, const char *name, size_t n, const char *tail)
{
    const size_t m = strlen(MINIMAX), all = strlen(tail);
    const bool is_minimax = n >= m && !strncmp(name + n - m, MINIMAX, m);
    for (size_t i = 0; is_minimax && i < LINEARS; i++)
        if (begins_with(tail, all, linears[i].stack)) {
            replace(ret, size, tail, all, linears[i].stack, linears[i].expert);
            return;
        }
    snprintf(ret, size, "%s", tail);
}
