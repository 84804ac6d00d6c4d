/* SPDX-License-Identifier: MIT
 *
 * Names of LoRA factors in files: see adapter_names.h. */
#include "model/adapter_names.h"

#include <stdio.h>
#include <string.h>

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

/* The module's name with switch_mlp for an expert and its number. */
static void module_of(struct mlx_factor *f, const char *name)
{
    const int n = (int)module_length(name);
    const char *experts = strstr(name, EXPERTS);
    int digits = 0;
    if (experts && sscanf(experts + strlen(EXPERTS), "%9zu.%n", &f->index, &digits) == 1 && digits) {
        const int head = (int)(experts - name), tail = head + (int)strlen(EXPERTS) + digits;
        f->expert = true;
        snprintf(f->name, sizeof f->name, "%.*s" SWITCH "%.*s", head, name, n - tail, name + tail);
    } else {
        snprintf(f->name, sizeof f->name, "%.*s", n, name);
    }
}

struct mlx_factor mlx_factor_of(const struct param_def *def)
{
    struct mlx_factor f = {.expert = false};
    module_of(&f, def->name);
    const size_t n = strlen(f.name);
    snprintf(f.name + n, sizeof f.name - n, "%s", def->role == PARAM_A ? ".lora_a" : ".lora_b");
    return f;
}

void mlx_key_of(char ret[TUNE_TARGET], const char *tensor)
{
    struct mlx_factor f = {.expert = false};
    int skip = 0;
    module_of(&f, tensor);
    if (sscanf(f.name, "model.layers.%*u.%n", &skip) != 0)
        skip = 0;
    snprintf(ret, TUNE_TARGET, "%s", f.name + skip);
}

void mlx_key_target(char ret[TUNE_TARGET], const char *key)
{
    const char *at = strstr(key, "switch_mlp.");
    if (at)
        snprintf(ret, TUNE_TARGET, "%.*sexperts.*.%s", (int)(at - key), key, at + strlen("switch_mlp."));
    else
        snprintf(ret, TUNE_TARGET, "%s", key);
}

void factor_transpose(float *y, const float *x, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            y[c * rows + r] = x[r * cols + c];
}
