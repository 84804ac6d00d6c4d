/* SPDX-License-Identifier: MIT
 *
 * The values that training begins with. Called when a unit is bound, on its thread; what it returns
 * follows from the seed and the parameter's name. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tune.h"
#include "num/rng.h"

static struct rng rng_of(const struct tune *tune, const char *what, const char *name, size_t n)
{
    char purpose[sizeof((struct param_def *)NULL)->name + 24];
    snprintf(purpose, sizeof purpose, "%s/%.*s", what, (int)n, name);
    return rng_for(tune->seed, purpose);
}

/* --- orthogonal factors ----------------------------------------------------------------------- */

static double inner(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void take_away(float *row, const float *from, double share, size_t n)
{
    for (size_t i = 0; i < n; i++)
        row[i] -= (float)(share * (double)from[i]);
}

/* Rows of a normal matrix, each made orthogonal to those before it; twice, for once leaves what
 * rounding made. */
static void draw_orthogonal(float *q, size_t n, struct rng rng)
{
    rng_fill_normal(&rng, q, n * n, 0, 1);
    for (size_t r = 0; r < n; r++) {
        float *row = q + r * n;
        for (size_t k = 0; k < 2 * r; k++)
            take_away(row, q + k % r * n, inner(row, q + k % r * n, n), n);
        const double length = sqrt(inner(row, row, n));
        for (size_t i = 0; i < n; i++)
            row[i] = (float)((double)row[i] / length);
    }
}

/* x·q/10 with x normal of [values, rank / 2] and rows of q: the even ones for A, the odd ones for
 * B. So the product of the factors is zero, and neither of them is. */
static void spread(float *w, const struct param_def *def, const float *q, float *x, struct rng rng)
{
    const bool is_a = def->role == PARAM_A;
    const size_t rank = is_a ? def->rows : def->cols, n = is_a ? def->cols : def->rows;
    memset(w, 0, rank * n * sizeof *w);
    for (size_t k = !is_a; k < rank; k += 2) {
        rng_fill_normal(&rng, x, n, 0, 0.1f);
        for (size_t j = 0; j < rank && is_a; j++)
            for (size_t i = 0; i < n; i++)
                w[j * n + i] += q[k * rank + j] * x[i];
        for (size_t i = 0; i < n && !is_a; i++)
            for (size_t j = 0; j < rank; j++)
                w[i * rank + j] += q[k * rank + j] * x[i];
    }
}

/* Both factors of a linear have the same q: its name is what stands before "lora_A" in theirs. */
static int init_orthogonal(float *w, const struct param_def *def, const struct tune *tune, struct rng rng)
{
    const size_t rank = def->role == PARAM_A ? def->rows : def->cols,
                 n = def->role == PARAM_A ? def->cols : def->rows;
    const char *end = strstr(def->name, ".lora_");
    float *q = calloc(rank * rank + n, sizeof *q);
    if (!q)
        return -ENOMEM;
    draw_orthogonal(q, rank, rng_of(tune, "orthogonal", def->name, (size_t)(end - def->name)));
    spread(w, def, q, q + rank * rank, rng);
    free(q);
    return 0;
}

/* --- all kinds -------------------------------------------------------------------------------- */

int param_init(float *w, const struct param_def *def, const struct tune *tune, const struct config *c)
{
    struct rng rng = rng_of(tune, "init", def->name, strlen(def->name));
    const size_t n = param_elements(def), in = def->cols ? def->cols : def->taps;
    const float bound = in ? 1.0f / sqrtf((float)in) : 0;
    const bool is_factor = def->role == PARAM_A || def->role == PARAM_B,
               is_bias = strstr(def->name, "bias") != NULL;
    if (is_factor && tune->init == LORA_INIT_ORTHOGONAL)
        return init_orthogonal(w, def, tune, rng);
    if (def->role == PARAM_A && tune->init == LORA_INIT_GAUSSIAN)
        rng_fill_normal(&rng, w, n, 0, 1.0f / (float)def->rows);
    else if (def->role == PARAM_A || def->taps)
        rng_fill_uniform(&rng, w, n, -bound, bound);
    else if (def->role == PARAM_B || is_bias || def->plus_one)
        memset(w, 0, n * sizeof *w);
    else if (def->cols)
        rng_fill_normal(&rng, w, n, 0, c->init_std);
    else
        for (size_t i = 0; i < n; i++)
            w[i] = 1;
    return 0;
}
