/* SPDX-License-Identifier: MIT
 *
 * Owns what a config says about stored weights that are quantized. Called by config_family.c; pure,
 * any thread. */
#include "file/config_impl.h"

#include <stdio.h>
#include <string.h>

#include "file/input.h"
#include "num/mat.h"

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

/* --- compressed-tensors ------------------------------------------------------------------------
 */

static bool is_text(const json_t *of, const char *key, const char *value)
{
    const char *text = json_string_value(json_object_get(of, key));
    return text && !strcmp(text, value);
}

static size_t number(const json_t *of, const char *key)
{
    const json_int_t n = json_integer_value(json_object_get(of, key));
    return n > 0 ? (size_t)n : 0;
}

/* One scale for a row, or for group_size columns. */
static const char *read_wide(struct config_packing *p, const json_t *weights)
{
    enum { MOST = 1 << 16 };
    const bool is_group = is_text(weights, "strategy", "group");
    const json_t *order = json_object_get(weights, "actorder");
    p->wide = is_group ? number(weights, "group_size") : 0;
    if (!is_group && !is_text(weights, "strategy", "channel"))
        return "whole numbers have a \"strategy\" of \"group\" or \"channel\" here";
    if (is_group && (p->wide > MOST || !quant_centred_group(p->wide)))
        return "\"group_size\" is 32, 64 or a multiple of 128 here";
    return json_is_true(order) || is_text(weights, "actorder", "group") ||
                   is_text(weights, "actorder", "dynamic")
               ? "columns in another order (\"actorder\") are not read here"
               : NULL;
}

static const char *read_whole(struct config_packing *p, const json_t *weights, const char *format)
{
    const bool packed = !strcmp(format, "pack-quantized");
    const json_t *symmetric = json_object_get(weights, "symmetric");
    p->kind = QUANT_CENTRED;
    p->bits = number(weights, "num_bits");
    p->has_zeros = json_is_false(symmetric);
    if (p->bits != 8 && !(packed && p->bits == 4))
        return "whole numbers of 8 bits are read here, and packed ones of 4";
    if (p->has_zeros && !packed)
        return "zeros (\"symmetric\": false) are read of pack-quantized here";
    return read_wide(p, weights);
}

/* Extents of the blocks of FP8 that are read. */
static bool is_block(const json_t *extents)
{
    return json_array_size(extents) == 2 && json_integer_value(json_array_get(extents, 0)) == MAT_BLOCK &&
           json_integer_value(json_array_get(extents, 1)) == MAT_BLOCK;
}

static const char *read_fp8(struct config_packing *p, const json_t *weights)
{
    p->is_blocks = is_text(weights, "strategy", "block");
    if (number(weights, "num_bits") != 8)
        return "floats have 8 bits here";
    if (p->is_blocks)
        return is_block(json_object_get(weights, "block_structure")) ? NULL : "blocks are of 128 × 128 here";
    return is_text(weights, "strategy", "channel") || is_text(weights, "strategy", "tensor")
               ? NULL
               : "floats have a \"strategy\" of \"channel\", \"tensor\" or \"block\" here";
}

static const char *read_fp4(struct config_packing *p, const json_t *weights)
{
    p->kind = QUANT_MXFP4;
    p->bits = number(weights, "num_bits");
    p->wide = number(weights, "group_size");
    return p->bits == 4 && p->wide == QUANT_FP4_GROUP ? NULL : "mxfp4 has 4 bits in groups of 32";
}

const char *config_packing(struct config_packing *ret, const json_t *group, const char *format)
{
    const json_t *weights = json_object_get(group, "weights"), *own = json_object_get(group, "format");
    format = json_is_string(own) ? json_string_value(own) : format;
    *ret = (struct config_packing){.bits = 0};
    const bool is_plain = !strcmp(format, "naive-quantized"), is_float = is_text(weights, "type", "float");
    if (json_is_true(json_object_get(weights, "dynamic")))
        return "weights are not \"dynamic\"";
    if (!strcmp(format, "mxfp4-pack-quantized") && is_float)
        return read_fp4(ret, weights);
    if ((!strcmp(format, "float-quantized") || is_plain) && is_float)
        return read_fp8(ret, weights);
    if ((!strcmp(format, "pack-quantized") || !strcmp(format, "int-quantized") || is_plain) && !is_float)
        return read_whole(ret, weights, format);
    return "the formats pack-quantized, int-quantized, float-quantized and mxfp4-pack-quantized are read "
           "here";
}

/* What changes numbers beside their quantization. */
static const char *read_around(const json_t *q)
{
    const json_t *sparse = json_object_get(json_object_get(q, "sparsity_config"), "format"),
                 *turned = json_object_get(json_object_get(q, "transform_config"), "config_groups");
    if (json_is_string(sparse) && strcmp(json_string_value(sparse), "dense") != 0)
        return "sparse weights (\"sparsity_config\") are not read here";
    if (json_object_size(turned))
        return "rotated weights (\"transform_config\") are not read here";
    return json_object_get(q, "quantization_status") && !is_text(q, "quantization_status", "compressed")
               ? "weights are read where \"quantization_status\" is \"compressed\""
               : NULL;
}

/* Of several groups the first with whole numbers is what most matrices are taken for. */
static const char *read_groups(struct config *c, const json_t *q)
{
    const json_t *groups = json_object_get(q, "config_groups");
    const char *format = json_string_value(json_object_get(q, "format")), *why = read_around(q), *key;
    json_t *group;
    bool blocks = false;
    json_object_foreach ((json_t *)groups, key, group) {
        struct config_packing p;
        why = why ? why : config_packing(&p, group, format ? format : "");
        if (why)
            return why;
        if (!p.bits && c->fp8 && p.is_blocks != blocks)
            return "FP8 has scales of one kind here";
        c->fp8 |= !p.bits;
        blocks = p.bits ? blocks : p.is_blocks;
        if (p.bits && !c->quant_bits) {
            c->quant_bits = p.bits;
            c->quant_group = p.wide ? quant_centred_group(p.wide) : quant_row_group(0);
            c->quant_kind = p.kind;
        }
    }
    c->fp8_rows = c->fp8 && !blocks;
    return why ? why : json_object_size(groups) ? NULL : "\"config_groups\" are missing";
}

static void read_compressed(struct config_reader *r, struct config *c, const json_t *q)
{
    const char *why = read_groups(c, q);
    c->compressed = true;
    if (why)
        config_complain(r, "quantization_config: of compressed-tensors %s", why);
}

/* --- what config.json says ---------------------------------------------------------------------
 */

/* FP8 as DeepSeek releases it: E4M3, one scale for a block of 128 × 128. MXFP4 as gpt-oss is
 * released: of the experts, and all else is BF16 also where no type is given. What gguf_config.c
 * makes of a GGUF file its tensors say. All else is refused. */
void config_read_quantization(struct config_reader *r, struct config *c)
{
    const json_t *q = config_lookup(r->root, "quantization_config");
    if (read_mlx(r, c) || !q) /* mlx-lm may write the same under both names */
        return;
    const char *method = config_string(r, q, "quant_method", NULL), *fmt = config_string(r, q, "fmt", "e4m3");
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
    if (method && !strcmp(method, "compressed-tensors")) {
        read_compressed(r, c, q);
        return;
    }
    const bool is_e4m3 = fmt && (!strcmp(fmt, "e4m3") || !strcmp(fmt, "float8_e4m3fn")); /* MiniMax */
    if (!method || strcmp(method, "fp8") != 0 || !is_e4m3 || !is_block(config_lookup(q, "weight_block_size")))
        config_complain(r,
                        "quantization_config: weights as \"%s\" stores them are not read, only fp8 (e4m3 in "
                        "blocks of 128 × 128), mxfp4 and compressed-tensors; take the model in bfloat16, or "
                        "a GGUF or MLX file of it",
                        method ? input_quote(method).text : "");
    c->fp8 = true;
}
