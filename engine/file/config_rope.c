/* SPDX-License-Identifier: MIT
 *
 * Owns what a config says about rotary position embedding: its three spellings, and the frequencies
 * that follow. Called by config.c, and by whoever builds the tables of angles; pure, any thread. */
#include "file/config_impl.h"

#include <math.h>
#include <string.h>

#include "file/input.h"

static const double factor_max = 1e6, theta_max = 1e15, beta_max = 1e3;

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
    if (c->rope_high < c->rope_low)
        config_complain(r, "beta_fast %g must not be below beta_slow %g", c->rope_high, c->rope_low);
    c->rope_untruncated = !config_bool(r, obj, "truncate", true);
    c->rope_query_beta = config_real(r, obj, "llama_4_scaling_beta", 0, 0, beta_max);
}

static void read_factors(struct config_reader *r, const json_t *obj, const char *key, double *ret, size_t n)
{
    const json_t *list = config_lookup(obj, key);
    bool sound = json_array_size(list) == n && n <= CONFIG_MAX_LONG;
    for (size_t i = 0; sound && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        ret[i] = json_number_value(v);
        sound = json_is_number(v) && ret[i] > 0 && ret[i] <= factor_max;
    }
    if (!sound)
        config_complain(r, "%s must be a list of %zu factors, one for each pair that is rotated", key, n);
}

/* What the model was first made for stands outside of the object. */
static void read_long(struct config_reader *r, const json_t *obj, struct config *c)
{
    static const char key[] = "original_max_position_embeddings";
    c->rope_original =
        config_size(r, config_lookup(r->root, key) ? r->root : obj, key, c->max_positions, INT32_MAX);
    c->rope_attention = config_real(r, obj, "attention_factor", 0, 0, factor_max);
    if (c->rope_original == 1)
        config_complain(r, "%s is 1, and longrope divides by its logarithm", key);
    read_factors(r, obj, "short_factor", c->rope_factors[0], config_rope_width(c) / 2);
    read_factors(r, obj, "long_factor", c->rope_factors[1], config_rope_width(c) / 2);
}

static const struct {
    const char *name;
    enum rope_kind kind;
    void (*read)(struct config_reader *r, const json_t *obj, struct config *c);
} kinds[] = {
    {"default", ROPE_DEFAULT, NULL},      {"linear", ROPE_LINEAR, read_linear},
    {"llama3", ROPE_LLAMA3, read_llama3}, {"yarn", ROPE_YARN, read_yarn},
    {"longrope", ROPE_LONG, read_long},   {"su", ROPE_LONG, read_long}, /* longrope, as it was called first */
};

static void read_kind(struct config_reader *r, const json_t *obj, struct config *c)
{
    const char *name = config_string(r, obj, "rope_type", config_string(r, obj, "type", "default"));
    if (!name)
        return;
    if (!strcmp(name, "yarn") && config_lookup(obj, "long_factor")) /* some Phi-3 say so */
        name = "longrope";
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(name, kinds[i].name) != 0)
            continue;
        c->rope = kinds[i].kind;
        if (kinds[i].read)
            kinds[i].read(r, obj, c);
        return;
    }
    config_complain(r, "rope type \"%s\" is not supported (default, linear, llama3, yarn and longrope are)",
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

static void read_width(struct config_reader *r, const json_t *obj, struct config *c,
                       const struct config_usual *usual)
{
    if (!config_lookup(obj, "partial_rotary_factor"))
        return;
    const double part = config_real(r, obj, "partial_rotary_factor", 1, 0, 1);
    c->rope_width = part < 1 ? (size_t)((double)c->head * part) : 0;
    if (part < 1 && !usual->rotated)
        config_complain(r, "partial_rotary_factor below 1 is not supported for this family");
    else if (part < 1 && (c->rope_width == 0 || c->rope_width % 2 != 0))
        config_complain(r,
                        "partial_rotary_factor %g rotates %zu elements of a head of %zu, and it takes pairs",
                        part, c->rope_width, c->head);
}

static void read_object(struct config_reader *r, const json_t *obj, struct config *c,
                        const struct config_usual *usual)
{
    if (config_lookup(obj, "rope_theta"))
        c->rope_theta = config_real(r, obj, "rope_theta", 10000, 1, theta_max);
    read_width(r, obj, c, usual);
    read_kind(r, obj, c);
}

/* {"full_attention": {…}, "sliding_attention": {…}}: the latter may have a base of its own, and no
 * scaling. */
static void read_kinds(struct config_reader *r, const json_t *obj, const char *where, struct config *c,
                       const struct config_usual *usual)
{
    const json_t *full = config_lookup(obj, "full_attention"), *own = config_lookup(obj, "sliding_attention");
    const char *name = config_string(r, own, "rope_type", config_string(r, own, "type", "default"));
    if (!full || !own || json_object_size(obj) != 2 || !name || strcmp(name, "default") != 0 ||
        config_lookup(own, "partial_rotary_factor")) {
        config_complain(r, "%s differ by kind of layer, which is not supported here", where);
        return;
    }
    read_object(r, full, c, usual);
    c->rope_window_theta = config_real(r, own, "rope_theta", 10000, 1, theta_max);
}

void config_read_rope(struct config_reader *r, struct config *c, const struct config_usual *usual)
{
    const char *where = config_lookup(r->root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *obj = config_lookup(r->root, where);
    c->rope = ROPE_DEFAULT;
    c->rope_factor = 1;
    c->rope_theta = config_real(r, r->root, "rope_theta", usual->theta ? usual->theta : 10000, 1, theta_max);
    c->rope_width = usual->rotated > 0 && usual->rotated < 1 ? (size_t)((double)c->head * usual->rotated) : 0;
    read_width(r, r->root, c, usual);
    if (!obj)
        return;
    if (!json_is_object(obj))
        config_complain(r, "%s must be an object", where);
    else if (is_nested(obj))
        read_kinds(r, obj, where, c, usual);
    else
        read_object(r, obj, c, usual);
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
    const double first = yarn_pair(c, c->rope_high), last = yarn_pair(c, c->rope_low);
    double low = fmax(c->rope_untruncated ? first : floor(first), 0);
    double high = fmin(c->rope_untruncated ? last : ceil(last), (double)config_rope_width(c) - 1);
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
    return c->mla.kv_rank ? c->mla.rope : c->rope_width ? c->rope_width : c->head;
}

static double plain_freq(const struct config *c, double theta, size_t i)
{
    return 1 / pow(theta, (double)(2 * i) / (double)config_rope_width(c));
}

void config_inv_freq(const struct config *c, double *inv_freq)
{
    for (size_t i = 0; i < config_rope_width(c) / 2; i++) {
        double freq = plain_freq(c, c->rope_theta, i);
        switch (c->rope) {
        case ROPE_DEFAULT: break;
        case ROPE_LINEAR: freq /= c->rope_factor; break;
        case ROPE_LLAMA3: freq = llama3_scale(c, freq); break;
        case ROPE_YARN: freq = yarn_scale(c, i, freq); break;
        case ROPE_LONG: freq /= c->rope_factors[0][i]; break;
        }
        inv_freq[i] = freq;
    }
}

void config_inv_freq_window(const struct config *c, double *inv_freq)
{
    if (!c->rope_window_theta)
        config_inv_freq(c, inv_freq);
    for (size_t i = 0; c->rope_window_theta && i < config_rope_width(c) / 2; i++)
        inv_freq[i] = plain_freq(c, c->rope_window_theta, i);
}

void config_inv_freq_long(const struct config *c, double *inv_freq)
{
    if (c->rope != ROPE_LONG)
        config_inv_freq(c, inv_freq);
    for (size_t i = 0; c->rope == ROPE_LONG && i < config_rope_width(c) / 2; i++)
        inv_freq[i] = plain_freq(c, c->rope_theta, i) / c->rope_factors[1][i];
}

bool config_is_long(const struct config *c, size_t positions)
{
    return c->rope == ROPE_LONG && positions > c->rope_original;
}

double config_query_scale(const struct config *c, size_t position)
{
    return c->rope_query_beta ? 1 + c->rope_query_beta * log1p((double)(position / c->rope_original)) : 1;
}

double config_rope_floats(const struct config *c, size_t positions)
{
    const size_t tables = 1 + (c->rope_window_theta > 0) + (c->rope_query_beta > 0),
                 more = config_is_long(c, positions) ? c->rope_original : 0;
    return ((double)positions + (double)more) * (double)tables * (double)config_rope_width(c);
}

static double yarn_mscale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

/* Both tables of longrope have it, also where the factors of short texts are used. */
static double long_scale(const struct config *c)
{
    const double more = (double)c->max_positions / (double)c->rope_original;
    return more <= 1 ? 1 : sqrt(1 + log(more) / log((double)c->rope_original));
}

double config_rope_scale(const struct config *c)
{
    if (c->rope != ROPE_YARN && c->rope != ROPE_LONG)
        return 1;
    if (c->rope_attention > 0)
        return c->rope_attention;
    if (c->rope == ROPE_LONG)
        return long_scale(c);
    if (c->rope_mscale > 0 && c->rope_mscale_all > 0)
        return yarn_mscale(c->rope_factor, c->rope_mscale) / yarn_mscale(c->rope_factor, c->rope_mscale_all);
    return yarn_mscale(c->rope_factor, 1);
}

double config_attn_scale(const struct config *c)
{
    double scale = c->attn_scale ? c->attn_scale : 1 / sqrt((double)c->head);
    if (c->mla.kv_rank && c->rope == ROPE_YARN && c->rope_mscale_all > 0) {
        double m = yarn_mscale(c->rope_factor, c->rope_mscale_all);
        scale *= m * m;
    }
    return scale;
}
