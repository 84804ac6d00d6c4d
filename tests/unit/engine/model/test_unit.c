/* SPDX-License-Identifier: MIT
 *
 * Units: frozen matrices are views of the file, trained ones copies; what does not fit is named,
 * all of it; and parameters travel in the order in which they are listed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/unit.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

/* A model on the disk and one of its layers. */
struct place {
    struct temp_dir dir;
    struct config config;
    struct st *st;
    struct unit unit;
    struct slab slab;
};

static void place_open(struct place *p, enum dtype dtype)
{
    struct err err;
    *p = (struct place){.dir = temp_dir_new()};
    p->config = tiny_write(p->dir.path, &(struct tiny_spec){.layers = 2, .biases = true, .dtype = dtype});
    must(st_open_dir(&p->st, p->dir.path, NULL, NULL, &err), &err);
}

static void place_close(struct place *p)
{
    unit_done(&p->unit);
    slab_free(&p->slab);
    st_close(p->st);
    temp_dir_free(&p->dir);
}

static const struct grad_groups groups = {.groups = 1, .end = 1, .slices = 1};

static void make(struct place *p, const struct tune *tune, size_t index, bool training)
{
    struct err err;
    unit_done(&p->unit);
    must(unit_init(&p->unit, family_find("llama"), &p->config, tune, 1, (struct unit_which){.index = index},
                   &err),
         &err);
    unit_carve(&p->unit, &p->slab, training ? &groups : NULL);
    must(slab_alloc(&p->slab, "a unit", &err), &err);
    unit_carve(&p->unit, &p->slab, training ? &groups : NULL);
}

static int find(const struct place *p, const char *name)
{
    int i = tiny_tensor_index(family_find("llama"), &p->config, p->unit.index, name);
    assert_true(i >= 0);
    return i;
}

static void frozen_matrices_are_views(void **state)
{
    struct place p;
    char complaints[400] = "";
    struct tune none = {0};
    (void)state;
    place_open(&p, DTYPE_BF16);
    make(&p, &none, 2, false);
    assert_int_equal(unit_bind(&p.unit, p.st, &none, &p.config, complaints, sizeof complaints), 0);
    assert_string_equal(complaints, "");
    assert_int_equal(p.unit.nparams, 0);
    const struct st_tensor *up = st_find(p.st, "model.layers.1.mlp.up_proj.weight"),
                           *norm = st_find(p.st, "model.layers.1.input_layernorm.weight"),
                           *bias = st_find(p.st, "model.layers.1.mlp.up_proj.bias");
    struct linear *lin = &p.unit.block.weights.lin[find(&p, up->name)];
    assert_ptr_equal(lin->w.data, up->data);
    assert_int_equal(lin->w.rows, 28);
    assert_int_equal(lin->w.cols, 20);
    assert_null(lin->lora);
    float want[28];
    dtype_to_f32(want, norm->data, norm->dtype, 20);
    assert_same_bits(p.unit.block.weights.vec[find(&p, norm->name)], want, 20, "a norm in f32");
    dtype_to_f32(want, bias->data, bias->dtype, 28);
    assert_same_bits(lin->bias, want, 28, "the bias of up_proj");
    assert_null(p.unit.block.grads.full[find(&p, up->name)]);
    place_close(&p);
}

static void trained_matrices_are_copies(void **state)
{
    struct place p;
    char complaints[400] = "";
    struct tune full = {.kind = TUNE_FULL};
    (void)state;
    place_open(&p, DTYPE_F32);
    make(&p, &full, 1, true);
    assert_int_equal(unit_bind(&p.unit, p.st, &full, &p.config, complaints, sizeof complaints), 0);
    const struct st_tensor *q = st_find(p.st, "model.layers.0.self_attn.q_proj.weight");
    int at = find(&p, q->name);
    const struct linear *lin = &p.unit.block.weights.lin[at];
    assert_ptr_not_equal(lin->w.data, q->data);
    assert_same_bits(lin->w.data, q->data, q->elements, "q_proj");
    assert_non_null(p.unit.block.grads.full[at]);
    int bias = find(&p, "model.layers.0.self_attn.q_proj.bias");
    assert_ptr_equal(lin->bias, p.unit.block.weights.vec[bias]);
    assert_ptr_equal(lin->bias, p.unit.params[bias].w);
    place_close(&p);
}

static void lora_goes_beside_the_view(void **state)
{
    struct place p;
    char complaints[400] = "";
    struct tune tune = {
        .kind = TUNE_LORA, .rank = 5, .alpha = 10, .ntargets = 1, .targets = {"o_proj"}, .end_layer = 2};
    (void)state;
    place_open(&p, DTYPE_F32);
    make(&p, &tune, 1, true);
    assert_int_equal(unit_bind(&p.unit, p.st, &tune, &p.config, complaints, sizeof complaints), 0);
    int o = find(&p, "model.layers.0.self_attn.o_proj.weight");
    const struct lora *l = p.unit.block.weights.lin[o].lora;
    assert_non_null(l);
    assert_int_equal(l->rank, 5);
    assert_true(l->scale == 2);
    assert_ptr_equal(l->a, p.unit.params[0].w);
    assert_ptr_equal(l->b, p.unit.params[1].w);
    assert_ptr_equal(p.unit.block.grads.a[o], p.unit.params[0].g);
    assert_ptr_equal(p.unit.block.grads.b[o], p.unit.params[1].g);
    assert_true(near_max(l->a, 5 * 24) > 0);
    assert_true(near_max(l->b, 20 * 5) == 0);
    assert_int_equal(p.unit.params[0].n + p.unit.params[1].n, 5 * 24 + 20 * 5);
    place_close(&p);
}

static void every_mismatch_is_named(void **state)
{
    struct place p;
    char complaints[400] = "", short_text[20] = "";
    struct tune none = {0};
    (void)state;
    place_open(&p, DTYPE_F32);
    p.config.kv_heads = 1;
    p.config.layers = 3;
    make(&p, &none, 1, false);
    assert_int_equal(unit_bind(&p.unit, p.st, &none, &p.config, complaints, sizeof complaints), 4);
    assert_non_null(
        strstr(complaints, "self_attn.k_proj.weight is [12, 20], config.json says [6, 20]; model"));
    assert_non_null(strstr(complaints, "self_attn.v_proj.bias is [12], config.json says [6]"));
    slab_free(&p.slab);
    make(&p, &none, 3, false);
    assert_int_equal(unit_bind(&p.unit, p.st, &none, &p.config, short_text, sizeof short_text),
                     p.unit.ntensors);
    assert_int_equal(strlen(short_text), sizeof short_text - 1); /* cut, not overrun */
    place_close(&p);
}

static void parameters_travel_in_order(void **state)
{
    struct place p;
    struct tune tune = {.kind = TUNE_FULL, .random_init = true, .seed = 4};
    char complaints[400] = "";
    (void)state;
    place_open(&p, DTYPE_F32);
    make(&p, &tune, 3, true); /* the final norm and the head */
    assert_int_equal(unit_bind(&p.unit, NULL, &tune, &p.config, complaints, sizeof complaints), 0);
    size_t n = 20 + 37 * 20;
    float *in = calloc(3 * n, sizeof *in), *out = calloc(3 * n, sizeof *out);
    assert_non_null(in);
    assert_non_null(out);
    for (size_t i = 0; i < 3 * n; i++)
        in[i] = (float)i;
    unit_unpack(&p.unit, &(struct param_piece){0, 0, 3 * n}, in);
    assert_true(p.unit.params[0].w[0] == 0 && p.unit.params[1].w[0] == 20);
    assert_true(p.unit.params[0].m[0] == (float)n && p.unit.params[1].v[1] == (float)(2 * n + 21));
    unit_pack(&p.unit, &(struct param_piece){0, 0, 3 * n}, out);
    assert_same_bits(out, in, 3 * n, "packed state");
    in[3] = -1;
    unit_unpack(&p.unit, &(struct param_piece){0, 0, n}, in); /* leaves the moments alone */
    in[n + 3] = -2;
    unit_pack(&p.unit, &(struct param_piece){0, 0, 3 * n}, out);
    assert_true(out[3] == -1 && out[n + 3] == (float)(n + 3));
    free(in);
    free(out);
    place_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_matrices_are_views),  cmocka_unit_test(trained_matrices_are_copies),
        cmocka_unit_test(lora_goes_beside_the_view),  cmocka_unit_test(every_mismatch_is_named),
        cmocka_unit_test(parameters_travel_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
