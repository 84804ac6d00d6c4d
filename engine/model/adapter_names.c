/* SPDX-License-Identifier: MIT
 *
 * Names of LoRA factors in files: see adapter_names.h. */
#include "model/adapter_names.h"

#include <stdio.h>
#include <string.h>

#include "model/stack_names.h"

#define EXPERTS ".experts."
#define SWITCH ".switch_mlp."

/* Length of a name up to its module: without ".lora_A.weight" or ".weight". */
static size_t module_length(const char *name)
{
    const char *end = strstr(name, ".lora_");
    if (!end)
        end = strrchr(name, '.');
    return end ? (size_t)(end - name) : strlen(name);
}

/* The module's name, with what the stack is called for an expert and its number. */
static void module_of(struct mlx_factor *f, const struct param_def *def)
{
    const char *name = def->name;
    const int n = (int)module_length(name);
    const char *experts = strstr(name, EXPERTS);
    int digits = 0;
    if (experts && sscanf(experts + strlen(EXPERTS), "%9zu.%n", &f->index, &digits) == 1 && digits) {
        const int head = (int)(experts - name), tail = head + (int)strlen(EXPERTS) + digits;
        char linear[TUNE_TARGET];
        f->expert = true;
        stack_tail(linear, sizeof linear, name + tail, (size_t)(n - tail));
        snprintf(f->name, sizeof f->name, "%.*s%s%s", head, name,
                 def->weave == WEAVE_TURNS ? EXPERTS : SWITCH, linear);
    } else {
        snprintf(f->name, sizeof f->name, "%.*s", n, name);
    }
}

struct mlx_factor mlx_factor_of(const struct param_def *def)
{
    struct mlx_factor f = {.expert = false};
    module_of(&f, def);
    const size_t n = strlen(f.name);
    const char *end = def->role == PARAM_A ? ".lora_a" : def->role == PARAM_B ? ".lora_b" : ".m";
    snprintf(f.name + n, sizeof f.name - n, "%s", end);
    return f;
}

void mlx_key_of(char ret[TUNE_TARGET], const struct param_def *def)
{
    struct mlx_factor f = {.expert = false};
    int skip = 0;
    module_of(&f, def);
    if (sscanf(f.name, "model.layers.%*u.%n", &skip) != 0)
        skip = 0;
    snprintf(ret, TUNE_TARGET, "%s", f.name + skip);
}

/* Where a word of a key begins, which is all between two dots; NULL: it has no such word. */
static const char *word_of(const char *key, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = key; (at = strstr(at, word)); at += n)
        if (at == key || at[-1] == '.')
            return at;
    return NULL;
}

/* What a stack is called: "switch_mlp.", or "experts." without a number behind it. */
void mlx_key_target(char ret[TUNE_TARGET], const char *key)
{
    const char *at = word_of(key, &SWITCH[1]), *woven = word_of(key, &EXPERTS[1]);
    const bool is_woven = !at && woven && !strchr("*0123456789", woven[strlen(&EXPERTS[1])]);
    const char *stack = is_woven ? woven : at;
    if (stack) {
        char linear[TUNE_TARGET];
        const size_t stem = stack > key ? (size_t)(stack - key) - 1 : 0;
        stack_expert_tail(linear, sizeof linear, key, stem, strchr(stack, '.') + 1);
        snprintf(ret, TUNE_TARGET, "%.*sexperts.*.%s", (int)(stack - key), key, linear);
    } else {
        snprintf(ret, TUNE_TARGET, "%s", key);
    }
}

void factor_transpose(float *y, const float *x, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            y[c * rows + r] = x[r * cols + c];
}
