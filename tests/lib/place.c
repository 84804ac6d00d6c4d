/* SPDX-License-Identifier: MIT */
#include "tests/lib/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "num/rng.h"
#include "tests/lib/near.h"

void place_make(struct place *p, enum dtype dtype)
{
    *p = (struct place){.dir = temp_dir_new()};
    snprintf(p->model, sizeof p->model, "%s/model", p->dir.path);
    snprintf(p->out, sizeof p->out, "%s/out", p->dir.path);
    assert_int_equal(mkdir(p->model, 0777), 0);
    p->config =
        tiny_write(p->model, &(struct tiny_spec){.layers = PLACE_LAYERS, .tied = true, .dtype = dtype});
    p->family = family_find(p->config.family);
}

void place_free(struct place *p)
{
    temp_dir_free(&p->dir);
}

struct tune place_lora(const struct place *p, const char *targets, size_t first, size_t end)
{
    struct err err;
    struct tune t = {.kind = TUNE_LORA,
                     .rank = 3,
                     .alpha = 6,
                     .dropout = 0.125f,
                     .first_layer = first,
                     .end_layer = end,
                     .seed = 3};
    must(tune_targets(&t, p->family, &p->config, targets, &err), &err);
    return t;
}

struct adapter_out_request place_request(const struct place *p, const struct tune *tune, uint64_t step)
{
    return (struct adapter_out_request){.dir = p->out,
                                        .model_dir = p->model,
                                        .tune = tune,
                                        .family = p->family,
                                        .config = &p->config,
                                        .step = step};
}

size_t place_elements(const struct place *p, const struct tune *tune, size_t unit)
{
    return tune_unit_elements(tune, p->family, &p->config, unit);
}

float *place_random(const struct place *p, const struct tune *tune, size_t *ret_n)
{
    size_t n = 0;
    for (size_t u = 0; u < p->config.layers + 2; u++)
        n += 3 * place_elements(p, tune, u);
    float *all = calloc(n, sizeof *all);
    assert_non_null(all);
    struct rng rng = rng_for(17, "state");
    rng_fill_normal(&rng, all, n, 0, 1);
    *ret_n = n;
    return all;
}

int place_write(const struct adapter_out_request *req, const float *state, struct err *err)
{
    struct adapter_out *out;
    int r = adapter_out_open(&out, req, err);
    if (r)
        return r;
    for (size_t u = 0; u < req->config->layers + 2; u++) {
        const size_t n = 3 * tune_unit_elements(req->tune, req->family, req->config, u);
        /* What is trained in full may be cut anywhere. */
        const size_t most = req->tune->kind == TUNE_FULL ? 61 : n + !n;
        for (size_t at = 0; at < n; at += most)
            must(adapter_out_piece(out, &(struct param_piece){u, at, n - at < most ? n - at : most},
                                   state + at, err),
                 err);
        state += n;
    }
    return adapter_out_finish(out, err);
}

void place_check(const struct adapter_in *in, const struct place *p, const struct tune *tune,
                 const float *state)
{
    bool moments = adapter_in_has_state(in);
    for (size_t u = 0; u < p->config.layers + 2; u++) {
        size_t n = place_elements(p, tune, u);
        float *got = calloc(3 * n + 1, sizeof *got);
        assert_non_null(got);
        adapter_in_piece(in, &(struct param_piece){u, 0, moments ? 3 * n : n}, got);
        assert_same_bits(got, state, moments ? 3 * n : n, "what was read back");
        free(got);
        state += 3 * n;
    }
}
