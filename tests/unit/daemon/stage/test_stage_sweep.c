/* SPDX-License-Identifier: MIT
 *
 * Several adapters out of one job: every combination, what each is called and where it goes, and
 * what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "daemon/stage/stage_sweep.h"

static void clear(struct sweep *s)
{
    for (size_t i = 0; i < s->n; i++)
        json_decref(s->one[i].spec);
}

static json_t *job(json_t *sweep)
{
    return json_pack("{s:s s:s s:f s:i s:s s:s s:o*}", "model", "/m", "data", "/d", "lr", 2e-4, "rank", 8,
                     "adapter_out", "/out", "fine_tune_type", "lora", "sweep", sweep);
}

static int read(struct sweep *ret, const json_t *spec, struct err *err)
{
    struct job_spec asked;
    *ret = (struct sweep){0};
    const int r = job_spec_read(&asked, JOB_TRAIN, spec, err);
    return r ? r : sweep_read(ret, &asked, err);
}

static void a_job_without_is_itself(void **state)
{
    (void)state;
    json_t *const lists[] = {NULL, json_array(), json_null()};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct sweep s;
        struct err err = {""};
        json_t *spec = job(lists[i]);
        assert_int_equal(read(&s, spec, &err), 0);
        assert_int_equal(s.n, 1);
        assert_string_equal(s.one[0].name, "");
        assert_true(json_equal(s.one[0].spec, spec));
        clear(&s);
        json_decref(spec);
    }
}

static void every_combination_is_an_adapter(void **state)
{
    (void)state;
    static const char *const names[] = {"lr-1e-4-rank-8", "lr-1e-4-rank-16", "lr-.03-rank-8",
                                        "lr-.03-rank-16"};
    struct sweep s;
    struct err err = {""};
    json_t *spec = job(json_pack("[s,s]", "lr=1e-4,.03", "rank=8,16"));
    assert_int_equal(read(&s, spec, &err), 0);
    assert_int_equal(s.n, 4);
    for (size_t i = 0; i < 4; i++) {
        char path[100] = "/out/";
        const json_t *one = s.one[i].spec;
        assert_string_equal(s.one[i].name, names[i]);
        assert_string_equal(json_string_value(json_object_get(one, "adapter_out")), strcat(path, names[i]));
        assert_true(json_real_value(json_object_get(one, "lr")) == (i < 2 ? 1e-4 : .03));
        assert_int_equal(json_integer_value(json_object_get(one, "rank")), i % 2 ? 16 : 8);
        assert_null(json_object_get(one, "sweep"));
        assert_string_equal(json_string_value(json_object_get(one, "model")), "/m");
    }
    clear(&s);
    json_decref(spec);
}

static void refuse(json_t *sweep, const char *key, const char *value, const char *sentence)
{
    struct sweep s = {0};
    struct err err = {""};
    json_t *spec = job(sweep);
    if (key)
        json_object_set_new(spec, key, json_string(value));
    assert_int_equal(read(&s, spec, &err), -EINVAL);
    if (!strstr(err.text, sentence))
        fail_msg("\"%s\" does not say \"%s\"", err.text, sentence);
    clear(&s);
    json_decref(spec);
}

static void what_cannot_differ_is_refused(void **state)
{
    (void)state;
    refuse(json_pack("[s]", "batch-size=4,8"), NULL, NULL, "can differ in beta, rank, alpha, lora-init,");
    refuse(json_pack("[s]", "lr"), NULL, NULL, "--sweep lr=1e-4,3e-4");
    refuse(json_pack("[s]", "=1,2"), NULL, NULL, "can differ in");
    refuse(json_pack("[s]", "lrx=1"), NULL, NULL, "can differ in");
    refuse(json_pack("[s]", "lr=1e-4,fast"), NULL, NULL, "\"fast\" is no value of --lr");
    refuse(json_pack("[s]", "lr=1e-4,"), NULL, NULL, "\"\" is no value of --lr");
    refuse(json_pack("[s]", "rank=4,8.5"), NULL, NULL, "\"8.5\" is no value of --rank");
    refuse(json_pack("[s]", "seed=99999999999999999999"), NULL, NULL, "is no value of --seed");
    refuse(json_pack("[s]", "lr-schedule=../up"), NULL, NULL, "is no value of --lr-schedule");
    refuse(json_pack("[s]", "lr=1e-4,1e-4"), NULL, NULL, "1e-4 is given twice");
    refuse(json_pack("[s,s,s]", "seed=1,2,3", "rank=1,2,3", "alpha=1,2"), NULL, NULL,
           "more than 16 adapters");
    refuse(json_pack("[i]", 3), NULL, NULL, "a list of texts");
    refuse(json_string("lr=1"), NULL, NULL, "must be a list");
    refuse(json_pack("[s]", "lr=1e-4,3e-4"), "fine_tune_type", "full", "frozen weights");
    refuse(json_pack("[s]", "rank=4,8"), "init_adapter", "/a", "has a fixed shape");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_without_is_itself),
        cmocka_unit_test(every_combination_is_an_adapter),
        cmocka_unit_test(what_cannot_differ_is_refused),
    };
    return cmocka_run_group_tests_name("stage_sweep", tests, NULL, NULL);
}
