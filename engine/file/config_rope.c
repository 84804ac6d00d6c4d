/* SPDX-License-Identifier: MIT
 *
 * Owns what a config says about rotary position embedding: its three spellings, and the frequencies that
 * follow. Called by config.c, and by whoever builds the tables of angles; pure, any thread. */
#include "file/config_reader.h"

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

static const struct {
    const char *name;
    enum rope_kind kind;
    void (*read)(struct config_reader *r, const json_t *obj, struct config *c);
} kinds[] = {
    {"default", ROPE_DEFAULT, NULL},
    {"linear", ROPE_LINEAR, read_linear},
    {"llama3", ROPE_LLAMA3, read_llama3},
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
    config_complain(r, "rope type \"%s\" is not computed here (default, linear and llama3 are)",
                    input_quote(name).text);
}

/* Newer models may give one object per kind of layer; taking the outer one for a default would be silently
 * wrong. */
static bool is_nested(const json_t *obj)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)obj, key, v)
    {
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
        config_complain(r, "partial_rotary_factor below 1 is not computed here");
    if (!obj)
        return;
    if (!json_is_object(obj)) {
        config_complain(r, "%s must be an object", where);
    } else if (is_nested(obj)) {
        config_complain(r, "%s differ by kind of layer, which is not computed here", where);
    } else {
        if (config_lookup(obj, "rope_theta"))
            c->rope_theta = config_real(r, obj, "rope_theta", 10000, 1, theta_max);
        if (config_real(r, obj, "partial_rotary_factor", 1, 0, 1) < 1)
            config_complain(r, "partial_rotary_factor below 1 is not computed here");
        read_kind(r, obj, c);
    }
}

/* Llama 3.1: waves that fit the original context often enough stay, those that hardly fit it are stretched by
 * the factor, those between are blended linearly in original/wavelength. */
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

void config_inv_freq(const struct config *c, double *inv_freq)
{
    for (size_t i = 0; i < c->head / 2; i++) {
        double freq = 1 / pow(c->rope_theta, (double)(2 * i) / (double)c->head);
        switch (c->rope) {
        case ROPE_DEFAULT: break;
        case ROPE_LINEAR: freq /= c->rope_factor; break;
        case ROPE_LLAMA3: freq = llama3_scale(c, freq); break;
        }
        inv_freq[i] = freq;
    }
}
