/* SPDX-License-Identifier: MIT
 *
 * Owns what a config says about rotary position embedding: its three spellings, and the frequencies
 * that follow. Called by config.c, and by whoever builds the tables of angles; pure, any thread. */
#include "file/config_impl.h"

#include <math.h>
#include <string.h>

#include "file/input.h"

static const double factor_max = 1e6, theta_max = 1e15;

static void read_linear(struct config_reader *r, const json_t *obj, struct config *c)
{
    c->rope_factor = config_real(r, obj, "factor", NAN, 1, factor_max);
}

static void read_llama3(struct config_reader *r, const json_t *obj, struct config *c)
{
    c->rope_factor = config_real(r, obj, "factor", NAN, 1, factor_max);
    c->rope_low = config_real(r, obj, "low_freq_factor", NAN, 1e-6, factor_max);
    c->rope_high = config_real(r, obj, "high_freq_factor", NAN, 1e-6, factor_max);
    c->rope_original = config_size(r, obj, "original_max_position_embeddings", 0, INT32_MAX);
    if (c->rope_high <= c->rope_low)
        config_complain(r, "high_freq_factor %g must be above low_freq_factor %g", c->rope_high, c->rope_low);
}

static void read_yarn(struct config_reader *r, const json_t *obj, struct config *c)
{
    c->rope_factor = config_real(r, obj, "factor", NAN, 1, factor_max);
    c->rope_low = config_real(r, obj, "beta_slow", 1, 1e-6, factor_max);
    c->rope_high = config_real(r, obj, "beta_fast", 32, 1e-6, factor_max);
    c->rope_mscale = config_real(r, obj, "mscale", 0, 0, factor_max);
    c->rope_mscale_all = config_real(r, obj, "mscale_all_dim", 0, 0, factor_max);
    c->rope_attention = config_real(r, obj, "attention_factor", 0, 0, factor_max);
    c->rope_original = config_size(r, obj, "original_max_position_embeddings", c->max_positions, INT32_MAX);
    if (c->rope_high <= c->rope_low)
        config_complain(r, "beta_fast %g must be above beta_slow %g", c->rope_high, c->rope_low);
    if (!config_bool(r, obj, "truncate", true))
        config_complain(r, "yarn with truncate = false is not supported");
}

static const struct {
    const char *name;
    enum rope_kind kind;
    void (*read)(struct config_reader *r, const json_t *obj, struct config *c);
} kinds[] = {
    {"default", ROPE_DEFAULT, NULL},
    {"linear", ROPE_LINEAR, read_linear},
    {"llama3", ROPE_LLAMA3, read_llama3},
    {"yarn", ROPE_YARN, read_yarn},
};

static void read_kind(struct config_reader *r, const json_t *obj, struct config *c)
{
    const char *name = config_string(r, obj, "rope_type", config_string(r, obj, "type", "default"));
    if (!name)
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(name, kinds[i].name) != 0)
            continue;
        c->rope = kinds[i].kind;
        if (kinds[i].read)
            kinds[i].read(r, obj, c);
        return;
    }
    config_complain(r, "rope type \"%s\" is not supported (default, linear, llama3 and yarn are)",
                    input_quote(name).text);
}

/* Newer models may give one object per kind of layer; taking the outer one for a default would be
 * silently wrong. */
static bool is_nested(const json_t *obj)
{
    const char *key;
    json_t *v;
    json_object_foreach ((json_t *)obj, key, v) {
        if (json_is_object(v))
            return true;
    }
    return false;
}

void config_read_rope(struct config_reader *r, struct config *c)
{
    const char *where = config_lookup(r->root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *obj = config_lookup(r->root, where);
    c->rope = ROPE_DEFAULT;
    c->rope_factor = 1;
    c->rope_theta = config_real(r, r->root, "rope_theta", 10000, 1, theta_max);
    if (config_real(r, r->root, "partial_rotary_factor", 1, 0, 1) < 1)
        config_complain(r, "partial_rotary_factor below 1 is not supported");
    if (!obj)
        return;
    if (!json_is_object(obj)) {
        config_complain(r, "%s must be an object", where);
    } else if (is_nested(obj)) {
        config_complain(r, "%s differ by kind of layer, which is not supported", where);
    } else {
        if (config_lookup(obj, "rope_theta"))
            c->rope_theta = config_real(r, obj, "rope_theta", 10000, 1, theta_max);
        if (config_real(r, obj, "partial_rotary_factor", 1, 0, 1) < 1)
            config_complain(r, "partial_rotary_factor below 1 is not supported");
        read_kind(r, obj, c);
    }
}

/* Llama 3.1: waves that fit the original context often enough stay, those that hardly fit it are
 * stretched by the factor, those between are blended linearly in original/wavelength. */
static double llama3_scale(const struct config *c, double freq)
{
    double wavelength = 2 * M_PI / freq, original = (double)c->rope_original;
    if (wavelength < original / c->rope_high)
        return freq;
    if (wavelength > original / c->rope_low)
        return freq / c->rope_factor;
    double keep = (original / wavelength - c->rope_low) / (c->rope_high - c->rope_low);
    return (1 - keep) * freq / c->rope_factor + keep * freq;
}

/* The pair that turns `turns` times within the original context, as a real number. */
static double yarn_pair(const struct config *c, double turns)
{
    return (double)config_rope_width(c) * log((double)c->rope_original / (turns * 2 * M_PI)) /
           (2 * log(c->rope_theta));
}

/* Pairs that turn often stay, those that hardly turn are stretched, a ramp between. */
static double yarn_scale(const struct config *c, size_t i, double freq)
{
    double low = fmax(floor(yarn_pair(c, c->rope_high)), 0);
    double high = fmin(ceil(yarn_pair(c, c->rope_low)), (double)config_rope_width(c) - 1);
    if (low == high)
        high += 0.001;
    double stretched = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return freq / c->rope_factor * stretched + freq * (1 - stretched);
}

size_t config_positions(const struct config *c)
{
    const double original = c->rope_original ? (double)c->rope_original : (double)c->max_positions,
                 scaled = c->rope == ROPE_DEFAULT ? 0 : c->rope_factor * original;
    return scaled > (double)c->max_positions ? (size_t)scaled : c->max_positions;
}

size_t config_rope_width(const struct config *c)
{
    return c->mla.kv_rank ? c->mla.rope : c->head;
}

void config_inv_freq(const struct config *c, double *inv_freq)
{
    const size_t width = config_rope_width(c);
    for (size_t i = 0; i < width / 2; i++) {
        double freq = 1 / pow(c->rope_theta, (double)(2 * i) / (double)width);
        switch (c->rope) {
        case ROPE_DEFAULT: break;
        case ROPE_LINEAR: freq /= c->rope_factor; break;
        case ROPE_LLAMA3: freq = llama3_scale(c, freq); break;
        case ROPE_YARN: freq = yarn_scale(c, i, freq); break;
        }
        inv_freq[i] = freq;
    }
}

static double yarn_mscale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

double config_rope_scale(const struct config *c)
{
    if (c->rope != ROPE_YARN)
        return 1;
    if (c->rope_attention > 0)
        return c->rope_attention;
    if (c->rope_mscale > 0 && c->rope_mscale_all > 0)
        return yarn_mscale(c->rope_factor, c->rope_mscale) / yarn_mscale(c->rope_factor, c->rope_mscale_all);
    return yarn_mscale(c->rope_factor, 1);
}

double config_attn_scale(const struct config *c)
{
    double scale = 1 / sqrt((double)c->head);
    if (c->mla.kv_rank && c->rope == ROPE_YARN && c->rope_mscale_all > 0) {
        double m = yarn_mscale(c->rope_factor, c->rope_mscale_all);
        scale *= m * m;
    }
    return scale;
}
