/* SPDX-License-Identifier: MIT
 *
 * Owns what a config says about stored weights that are quantized. Called by config_family.c; pure,
 * any thread. */
#include "file/config_impl.h"

#include <stdio.h>
#include <string.h>

#include "file/input.h"

enum { FP8_BLOCK = 128 };

enum quant_kind config_quant_kind(const char *mode)
{
    return mode && !strcmp(mode, "mxfp4") ? QUANT_MXFP4 : QUANT_AFFINE;
}

static void check_quant(struct config_reader *r, const char *of, size_t bits, size_t group)
{
    if (bits && group && !quant_is_known(bits, group))
        config_complain(r,
                        "quantization%s: %zu bits in groups of %zu are not read here (2, 3, 4, 5, 6 or 8 in "
                        "groups of 32, 64 or 128 are)",
                        of, bits, group);
}

/* What ringd has no kernels for, by its name. */
static void check_mode(struct config_reader *r, const char *of, const char *mode, size_t bits, size_t group)
{
    const bool is_fp4 = mode && !strcmp(mode, "mxfp4");
    if (mode && !is_fp4 && strcmp(mode, "affine") != 0)
        config_complain(r, "quantization%s: mode \"%s\" is not read here (affine and mxfp4 are)", of,
                        input_quote(mode).text);
    if (is_fp4 && bits && group && (bits != 4 || group != QUANT_FP4_GROUP))
        config_complain(r, "quantization%s: mxfp4 has 4 bits in groups of %d, not %zu in groups of %zu", of,
                        QUANT_FP4_GROUP, bits, group);
}

/* As mlx-lm writes it: {"group_size", "bits"}, and under a layer's name the same for that layer, or
 * false. */
static bool read_mlx(struct config_reader *r, struct config *c)
{
    const json_t *q = config_lookup(r->root, "quantization");
    const char *key;
    json_t *own;
    if (!q)
        return false;
    const char *mode = config_string(r, q, "mode", "affine");
    c->quant_bits = config_size(r, q, "bits", 0, 64);
    c->quant_group = config_size(r, q, "group_size", 0, 1 << 16);
    c->quant_kind = config_quant_kind(mode);
    check_quant(r, "", c->quant_bits, c->quant_group);
    check_mode(r, "", mode, c->quant_bits, c->quant_group);
    json_object_foreach ((json_t *)q, key, own) {
        char of[128];
        if (!json_is_object(own))
            continue;
        snprintf(of, sizeof of, " of %.100s", input_quote(key).text);
        const size_t bits = config_size(r, own, "bits", c->quant_bits, 64),
                     group = config_size(r, own, "group_size", c->quant_group, 1 << 16);
        check_quant(r, of, bits, group);
        check_mode(r, of, config_string(r, own, "mode", "affine"), bits, group);
    }
    return true;
}

/* FP8 as DeepSeek releases it: E4M3, one scale for a block of 128 × 128. MXFP4 as gpt-oss is
 * released: of the experts, and all else is BF16 also where no type is given. What gguf_config.c
 * makes of a GGUF file its tensors say. All else is refused. */
void config_read_quantization(struct config_reader *r, struct config *c)
{
    const json_t *q = config_lookup(r->root, "quantization_config");
    if (read_mlx(r, c) || !q) /* mlx-lm may write the same under both names */
        return;
    const char *method = config_string(r, q, "quant_method", NULL), *fmt = config_string(r, q, "fmt", "e4m3");
    const json_t *block = config_lookup(q, "weight_block_size");
    if (method && !strcmp(method, "gguf")) {
        c->mixed = true;
        c->mla.kv_b_parts = config_bool(r, q, "kv_b_parts", false);
        return;
    }
    if (method && !strcmp(method, "mxfp4")) {
        c->experts_fp4 = true;
        if (!config_lookup(r->root, "dtype") && !config_lookup(r->root, "torch_dtype"))
            c->dtype = DTYPE_BF16;
        return;
    }
    const bool is_e4m3 = fmt && (!strcmp(fmt, "e4m3") || !strcmp(fmt, "float8_e4m3fn")); /* MiniMax */
    if (!method || strcmp(method, "fp8") != 0 || !is_e4m3 || json_array_size(block) != 2 ||
        json_integer_value(json_array_get(block, 0)) != FP8_BLOCK ||
        json_integer_value(json_array_get(block, 1)) != FP8_BLOCK)
        config_complain(
            r,
            "quantization_config: weights as \"%s\" stores them are not read, only fp8 (e4m3 in "
            "blocks of 128 × 128) and mxfp4; take the model in bfloat16, or a GGUF or MLX file of it",
            method ? input_quote(method).text : "");
    c->fp8 = true;
}
