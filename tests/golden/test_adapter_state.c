/* SPDX-License-Identifier: MIT
 *
 * States to continue from: what lacks a part or is damaged is refused, and says what to do. */
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/near.h"
#include "tests/lib/place.h"
#include "tests/lib/golden.h"
#include "tests/lib/tiny.h"

#define Q "model.layers.0.self_attn.q_proj."

/* The parts of a state of one adapter, q_proj of the first layer with rank 3. */
static const struct st_out_tensor parts[] = {{.name = Q "lora_A.weight.w", .ndim = 2, .shape = {3, 20}},
                                             {.name = Q "lora_A.weight.m", .ndim = 2, .shape = {3, 20}},
                                             {.name = Q "lora_A.weight.v", .ndim = 2, .shape = {3, 20}},
                                             {.name = Q "lora_B.weight.w", .ndim = 2, .shape = {24, 3}},
                                             {.name = Q "lora_B.weight.m", .ndim = 2, .shape = {24, 3}},
                                             {.name = Q "lora_B.weight.v", .ndim = 2, .shape = {24, 3}},
                                             {.name = "step", .ndim = 1, .shape = {1}},
                                             {.name = "record", .ndim = 1, .words = true},
                                             {.name = "checksums", .ndim = 2, .words = true}};
enum { PARTS = sizeof parts / sizeof *parts, STEP = 6, RECORD, SUMS };

/* Without part `left`, PARTS for none; every number is `value`, and step has `steps` of them. */
static void write_state(const struct place *p, size_t left, size_t steps, float value, const char *record)
{
    struct err err;
    struct st_writer *w;
    struct st_out_tensor t[PARTS];
    char path[256];
    uint32_t words[64];
    size_t n = 0;
    float values[128];
    for (size_t i = 0; i < 128; i++)
        values[i] = value;
    memset(words, ' ', sizeof words);
    memcpy(words, record, strlen(record));
    for (size_t i = 0; i < PARTS; i++)
        if (i != left)
            t[n++] = parts[i];
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(t[i].name, "step"))
            t[i].shape[0] = steps;
        if (!strcmp(t[i].name, "record"))
            t[i].shape[0] = 64;
        if (!strcmp(t[i].name, "checksums"))
            t[i].shape[0] = n - 1, t[i].shape[1] = 2;
    }
    snprintf(path, sizeof path, "%s/training_state.safetensors", p->model);
    must(st_writer_open(&w, path, t, n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        if (!t[i].words)
            must(st_writer_put(w, t[i].name, values, t[i].shape[0] * (t[i].ndim > 1 ? t[i].shape[1] : 1),
                               &err),
                 &err);
        else if (!strcmp(t[i].name, "record"))
            must(st_writer_words(w, "record", words, 64, &err), &err);
    }
    must(st_writer_finish(w, &err), &err);
}

#define RECORD_OF(SHAPE)                                                                                     \
    "{\"adapter\":{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":6,\"target_modules\":[\"q_proj\"]," SHAPE   \
    "}}"

static void wrong_states_are_refused(void **state)
{
    static const char good[] = RECORD_OF("\"layers_to_transform\":[0]");
    static const struct {
        size_t left, steps;
        float value;
        const char *record;
        int code;
        const char *says;
    } bad[] = {
        {STEP, 1, 3, good, -EINVAL, "lacks the tensor \"step\""},
        {RECORD, 1, 3, good, -EINVAL, "\"record\" says nothing about the run"},
        {SUMS, 1, 3, good, -ENODATA, "it has no checksums"},
        {PARTS, 1, -3, good, -EINVAL, "\"step\" is not a number of steps"},
        {PARTS, 2, 3, good, -EINVAL, "\"step\" is not a number of steps"},
        {PARTS, 1, 3, "nothing", -EINVAL, "\"record\" says nothing about the run"},
        {PARTS, 1, 3, RECORD_OF("\"use_qalora\":true"), -ENOTSUP, "use_qalora"},
        {PARTS, 1, 3, RECORD_OF("\"layers_to_transform\":[0,1]"), -EINVAL,
         "lacks model.layers.1.self_attn.q_proj"},
    };
    (void)state;
    struct place p;
    struct err err;
    struct adapter_in *in = NULL;
    uint64_t step = 99;
    place_make(&p, DTYPE_F32);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tune tune = {.kind = TUNE_LORA};
        write_state(&p, bad[i].left, bad[i].steps, bad[i].value, bad[i].record);
        must_refuse(adapter_in_open_state(&in, p.model, &tune, p.family, &p.config, &step, &err), bad[i].code,
                    &err, bad[i].says);
        assert_non_null(strstr(err.text, "training_state.safetensors"));
        assert_null(in);
        assert_int_equal(step, 99);
        assert_int_equal(tune.rank, 0);
    }
    struct tune tune = {.kind = TUNE_LORA};
    write_state(&p, PARTS, 1, 3, good);
    must(adapter_in_open_state(&in, p.model, &tune, p.family, &p.config, &step, &err), &err);
    assert_int_equal(step, 3);
    assert_true(tune.rank == 3 && tune.end_layer == 1);
    adapter_in_close(in);
    place_free(&p);
}

/* Whichever bit of a state flips, nobody goes on from it. */
static void damaged_states_are_refused(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    size_t n, size;
    char path[256];
    place_make(&p, DTYPE_F32);
    struct tune tune = place_lora(&p, "q_proj", 0, 1), back = {.kind = TUNE_LORA};
    float *values = place_random(&p, &tune, &n);
    struct adapter_out_request req = place_request(&p, &tune, 5);
    req.record = json_pack("{s:i}", "rows", 17);
    must(place_write(&req, values, &err), &err);
    json_decref(req.record);
    char *bytes = read_file(p.out, "training_state.safetensors", &size);
    struct adapter_in *in = NULL;
    uint64_t step = 99;
    must(adapter_in_open_state(&in, p.out, &back, p.family, &p.config, &step, &err), &err);
    assert_int_equal(json_integer_value(json_object_get(adapter_in_record(in), "rows")), 17);
    adapter_in_close(in);
    uint64_t header;
    memcpy(&header, bytes, sizeof header);
    snprintf(path, sizeof path, "%s/training_state.safetensors", p.out);
    in = NULL;
    for (size_t at = 8 + header, count = 0; at < size; at += 13, count++) {
        bytes[at] ^= (char)(1 << count % 8);
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, size, f), size);
        assert_int_equal(fclose(f), 0);
        bytes[at] ^= (char)(1 << count % 8);
        must_refuse(adapter_in_open_state(&in, p.out, &back, p.family, &p.config, &step, &err), -EBADMSG,
                    &err, "does not match its checksum");
        must_refuse(-EBADMSG, -EBADMSG, &err, "--init-adapter");
        must_refuse(-EBADMSG, -EBADMSG, &err, path);
        assert_null(in);
    }
    free(bytes);
    free(values);
    place_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_states_are_refused),
        cmocka_unit_test(damaged_states_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
