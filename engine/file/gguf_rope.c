/* SPDX-License-Identifier: MIT
 *
 * PURE: finds the rule of Llama 3.1's rope_scaling behind the factors that GGUF files have in
 * its place: waves are as they were where they fit the original context often, divided by
 * `factor` where hardly, and blended between. The usual numbers are tried first, so that a
 * config reads as released. Called by gguf_config.c. */
#include <errno.h>
#include <math.h>

#include "file/gguf_model_impl.h"

static const double original = 8192, near = 1e-5;

/* One rule. */
struct rope_rule {
    double factor, low, high;
};

/* How often the wave of pair i fits the original context. */
static double turns(size_t i, size_t n, double base)
{
    return original / (2 * M_PI) * pow(base, -(double)i / (double)n);
}

static double divisor(const struct rope_rule *r, double turns)
{
    if (turns > r->high)
        return 1;
    if (turns < r->low)
        return r->factor;
    const double keep = (turns - r->low) / (r->high - r->low);
    return 1 / ((1 - keep) / r->factor + keep);
}

static bool fits(const struct rope_rule *r, const float *factor, size_t n, double base)
{
    for (size_t i = 0; i < n; i++)
        if (fabs(divisor(r, turns(i, n, base)) / (double)factor[i] - 1) > near)
            return false;
    return r->low > 0 && r->high > r->low;
}

/* From the first and the last pair that are blended. Where one or none is, many rules fit: one
 * between the pairs beside it. */
static struct rope_rule solve(const float *factor, size_t n, double base, double most)
{
    double kept = 2 * turns(0, n, base), stretched = turns(n, n, base) / 2, at[2] = {0}, keep[2] = {0};
    size_t between = 0;
    for (size_t i = 0; i < n; i++) {
        const double t = turns(i, n, base), is = (double)factor[i];
        if (fabs(is - 1) <= near) {
            kept = t;
        } else if (fabs(is / most - 1) <= near) {
            stretched = t > stretched ? t : stretched;
        } else {
            const size_t k = between++ > 0;
            at[k] = t;
            keep[k] = (1 / is - 1 / most) / (1 - 1 / most);
        }
    }
    if (!between)
        return (struct rope_rule){most, stretched + (kept - stretched) / 3, kept - (kept - stretched) / 3};
    double width = fmin((at[0] - stretched) / keep[0], (kept - at[0]) / (1 - keep[0])) * 0.9;
    if (between > 1)
        width = (at[0] - at[1]) / (keep[0] - keep[1]);
    return (struct rope_rule){most, at[0] - keep[0] * width, at[0] + (1 - keep[0]) * width};
}

int gguf_rope_scaling(json_t **ret, const float *factor, size_t n, double base, struct err *err)
{
    double most = 1;
    *ret = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!(factor[i] >= 1 && factor[i] < 1e6F))
            return err_set(err, -EBADMSG, "rope_freqs.weight holds a factor of %g", (double)factor[i]);
        most = (double)factor[i] > most ? (double)factor[i] : most;
    }
    if (most <= 1)
        return 0;
    struct rope_rule rule = {most, 1, 4};
    if (!fits(&rule, factor, n, base)) {
        rule = solve(factor, n, base, most);
        if (!fits(&rule, factor, n, base))
            return err_set(
                err, -ENOTSUP,
                "rope_freqs.weight stretches positions by another rule than Llama 3's, which is not "
                "supported");
    }
    *ret =
        json_pack("{s:s s:f s:f s:f s:i}", "rope_type", "llama3", "factor", rule.factor, "low_freq_factor",
                  rule.low, "high_freq_factor", rule.high, "original_max_position_embeddings", (int)original);
    return *ret ? 0 : err_set(err, -ENOMEM, "no memory for its config");
}
