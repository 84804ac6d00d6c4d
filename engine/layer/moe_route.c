/* SPDX-License-Identifier: MIT
 *
 * The router of a mixture of experts, from logits to choices and weights and back. Called by the
 * MoE part of a block, on the computing thread; threads share out tokens. */
#include "layer/moe.h"

#include <math.h>
#include <string.h>

enum { SMALL = 1 << 13 }; /* scores not worth a second thread */

static void scores(float *s, struct moe_route r)
{
    float top = s[0], sum = 0;
    if (r.sigmoid) {
        for (size_t e = 0; e < r.experts; e++)
            s[e] = 1 / (1 + expf(-s[e]));
        return;
    }
    for (size_t e = 1; e < r.experts; e++)
        top = s[e] > top ? s[e] : top;
    for (size_t e = 0; e < r.experts; e++) {
        s[e] = expf(s[e] - top);
        sum += s[e];
    }
    for (size_t e = 0; e < r.experts; e++)
        s[e] /= sum;
}

static float biased(const float *score, const float *bias, size_t e)
{
    return bias ? score[e] + bias[e] : score[e];
}

/* What a group counts. */
static float group_score(const float *score, const float *bias, size_t first, size_t n)
{
    float best = -INFINITY, second = -INFINITY;
    for (size_t e = first; e < first + n; e++) {
        const float x = biased(score, bias, e);
        if (x > best) {
            second = best;
            best = x;
        } else if (x > second) {
            second = x;
        }
    }
    return bias ? best + second : best;
}

/* Is `a` before `b` in the order of choice? Larger first, of equals the lower number. */
static bool before(float a, size_t at_a, float b, size_t at_b)
{
    return a > b || (a == b && at_a < at_b);
}

/* A group is searched if fewer than groups_chosen others come before it. */
static bool is_searched(const float *score, const float *bias, struct moe_route r, size_t group)
{
    const size_t n = r.experts / r.groups;
    const float own = group_score(score, bias, group * n, n);
    size_t ahead = 0;
    for (size_t g = 0; r.groups > r.groups_chosen && g < r.groups; g++)
        ahead += g != group && before(group_score(score, bias, g * n, n), g, own, group);
    return ahead < r.groups_chosen;
}

/* Keeps the best `chosen` while walking over the experts, worst first in `at`; then sorts by
 * number. */
static void choose(uint32_t *at, const float *score, const float *bias, struct moe_route r)
{
    const size_t n = r.experts / r.groups;
    size_t have = 0;
    for (size_t g = 0; g < r.groups; g++) {
        if (!is_searched(score, bias, r, g))
            continue;
        for (size_t e = g * n; e < (g + 1) * n; e++) {
            const float x = biased(score, bias, e);
            size_t i = 0; /* how many of those kept come after e */
            while (i < have && before(x, e, biased(score, bias, at[i]), at[i]))
                i++;
            if (have == r.chosen) {
                if (i == 0)
                    continue;
                memmove(at, at + 1, --i * sizeof *at);
                at[i] = (uint32_t)e;
                continue;
            }
            memmove(at + i + 1, at + i, (have++ - i) * sizeof *at);
            at[i] = (uint32_t)e;
        }
    }
    for (size_t i = 1; i < have; i++)
        for (size_t j = i; j > 0 && at[j - 1] > at[j]; j--) {
            const uint32_t t = at[j];
            at[j] = at[j - 1];
            at[j - 1] = t;
        }
}

/* The sum weights are divided by; the addend keeps a token whose scores all vanish from dividing by
 * zero. */
static float weight_sum(const uint32_t *chosen, const float *score, struct moe_route r)
{
    float sum = 1e-20f;
    for (size_t j = 0; j < r.chosen; j++)
        sum += score[chosen[j]];
    return sum;
}

void moe_route_forward(struct num *num, uint32_t *chosen, float *weight, float *score, const float *bias,
                       struct moe_route route, size_t tokens)
{
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * route.experts > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++) {
        float *s = score + t * route.experts;
        uint32_t *at = chosen + t * route.chosen;
        scores(s, route);
        choose(at, s, bias, route);
        const float factor = route.norm ? route.scale / weight_sum(at, s, route) : route.scale;
        for (size_t j = 0; j < route.chosen; j++)
            weight[t * route.chosen + j] = factor * s[at[j]];
    }
}

/* d of the scores chosen, into dlogits at their places; all else 0. */
static void score_back(float *d, const float *dweight, const uint32_t *at, const float *s, struct moe_route r)
{
    const float sum = r.norm ? weight_sum(at, s, r) : 1;
    float mean = 0; /* in the forward pass: w = scale·s / sum */
    for (size_t j = 0; r.norm && j < r.chosen; j++)
        mean += dweight[j] * s[at[j]] / sum;
    memset(d, 0, r.experts * sizeof *d);
    for (size_t j = 0; j < r.chosen; j++)
        d[at[j]] = r.scale / sum * (dweight[j] - mean);
}

void moe_route_backward_x(struct num *num, float *dlogits, const float *dweight, const uint32_t *chosen,
                          const float *score, struct moe_route route, size_t tokens)
{
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * route.experts > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++) {
        const float *s = score + t * route.experts;
        float *d = dlogits + t * route.experts, mean = 0;
        score_back(d, dweight + t * route.chosen, chosen + t * route.chosen, s, route);
        for (size_t e = 0; !route.sigmoid && e < route.experts; e++)
            mean += d[e] * s[e];
        for (size_t e = 0; e < route.experts; e++)
            d[e] = s[e] * (route.sigmoid ? d[e] * (1 - s[e]) : d[e] - mean);
    }
}
