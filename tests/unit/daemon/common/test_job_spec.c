/* SPDX-License-Identifier: MIT
 *
 * What a spec's own small languages say, and what of them is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "daemon/common/job_spec.h"

static int read_parallel(struct job_spec *ret, const char *parallel, struct err *err)
{
    json_t *json = json_pack("{s:s s:s s:s s:s}", "model", "/m", "data", "/d", "adapter_out", "/a",
                             "parallel", parallel);
    const int r = job_spec_read(ret, JOB_TRAIN, json, err);
    json_decref(json);
    return r;
}

static void replicas_and_their_nodes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t replicas, places;
    } good[] = {{"dp=2", 2, 0}, {"pp=3", 0, 3}, {"dp=8,pp=2", 8, 2}, {"pp=16,dp=1", 1, 16}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct job_spec s;
        struct err err = {""};
        if (read_parallel(&s, good[i].text, &err))
            fail_msg("%s: %s", good[i].text, err.text);
        assert_int_equal(s.replicas, good[i].replicas);
        assert_int_equal(s.places, good[i].places);
    }
}

static void replicas_may_have_unlike_numbers_of_nodes(void **state)
{
    (void)state;
    struct job_spec s;
    struct err err = {""};
    assert_int_equal(read_parallel(&s, "pp=1+2", &err), 0);
    assert_int_equal(s.replicas, 2);
    assert_int_equal(s.places, 0);
    assert_int_equal(s.unlike[0], 1);
    assert_int_equal(s.unlike[1], 2);
    assert_int_equal(s.unlike[2], 0);
    assert_int_equal(read_parallel(&s, "pp=2+2+2", &err), 0); /* as dp=3,pp=2 */
    assert_int_equal(s.replicas, 3);
    assert_int_equal(s.places, 2);
    assert_int_equal(*s.unlike, 0);
    static const char *const bad[] = {"pp=1+",       "pp=+1",       "pp=1+0",
                                      "pp=1++2",     "dp=2,pp=1+2", "pp=9+8",
                                      "pp=1+2,dp=2", "dp=1+2",      "pp=1+1+1+1+1+1+1+1+1",
                                      "pp=1+2+",     "pp=1+x",      "pp=1+2pp",
                                      "pp=1+2,pp=2", "pp=2,pp=1+2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!read_parallel(&s, bad[i], &err))
            fail_msg("taken: \"%s\"", bad[i]);
}

static void anything_else_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",       "2",         "dp",        "dp=",       "dp=0",
                                      "dp=-1",  "dp=+2",     "dp= 2",     "dp=2,",     ",dp=2",
                                      "dp=2pp", "dp=2;pp=1", "dp=2,dp=2", "tp=",       "dp=2,pp=17",
                                      "dp=x",   "dp=1e3",    "dp=02",     "dp=2,,pp=1"};
    struct job_spec s;
    struct err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct err){""};
        if (!read_parallel(&s, bad[i], &err))
            fail_msg("taken: \"%s\"", bad[i]);
        if (!strstr(err.text, "--parallel"))
            fail_msg("\"%s\": %s", bad[i], err.text);
    }
    assert_true(read_parallel(&s, "dp=9", &err) < 0);
    assert_non_null(strstr(err.text, "at most 8 replicas"));
    assert_int_equal(read_parallel(&s, "tp=2,pp=2", &err), 0);
    assert_int_equal(s.slices, 2);
    assert_int_equal(read_parallel(&s, "tp=2,dp=3,pp=2", &err), 0);
    assert_true(s.slices == 2 && s.replicas == 3 && s.places == 2);
    assert_true(read_parallel(&s, "tp=3,dp=3", &err) < 0);
    assert_non_null(strstr(err.text, "dp times tp is at most 8"));
    assert_true(read_parallel(&s, "tp=2,pp=1+2", &err) < 0);
    assert_non_null(strstr(err.text, "unlike numbers of nodes"));
}

static void slices_of_what_does_not_train(void **state)
{
    (void)state;
    struct job_spec s;
    struct err err = {""};
    json_t *json = json_pack("{s:s s:s s:s}", "model", "/m", "prompt", "a", "parallel", "tp=4,pp=2");
    assert_int_equal(job_spec_read(&s, JOB_GENERATE, json, &err), 0);
    assert_int_equal(s.slices, 4);
    assert_int_equal(s.places, 2);
    assert_false(s.any_parallel);
    json_object_set_new(json, "parallel", json_string("auto"));
    assert_int_equal(job_spec_read(&s, JOB_GENERATE, json, &err), 0);
    assert_true(s.any_parallel);
    json_object_set_new(json, "parallel", json_string("dp=2"));
    assert_true(job_spec_read(&s, JOB_GENERATE, json, &err) < 0);
    assert_non_null(strstr(err.text, "dp=D is for training"));
    json_object_set_new(json, "parallel", json_string("tp=9"));
    assert_true(job_spec_read(&s, JOB_GENERATE, json, &err) < 0);
    assert_non_null(strstr(err.text, "at most 8 nodes share a stage"));
    json_decref(json);
}

/* What was given stays; all else is looked for. */
static void auto_looks_for_the_order_too(void **state)
{
    (void)state;
    struct job_spec s;
    struct err err = {""};
    json_t *json =
        json_pack("{s:s s:s s:s s:s}", "model", "/m", "data", "/d", "adapter_out", "/a", "parallel", "auto");
    assert_int_equal(job_spec_read(&s, JOB_TRAIN, json, &err), 0);
    assert_true(s.any_parallel);
    assert_string_equal(s.schedule, "auto");
    json_object_set_new(json, "schedule", json_string("gpipe"));
    assert_int_equal(job_spec_read(&s, JOB_TRAIN, json, &err), 0);
    assert_true(s.any_parallel);
    assert_string_equal(s.schedule, "gpipe");
    json_object_set_new(json, "schedule", json_string("/my.csv"));
    assert_true(job_spec_read(&s, JOB_TRAIN, json, &err) < 0);
    assert_non_null(strstr(err.text, "--parallel auto"));
    json_object_set_new(json, "schedule", json_string("gpipe"));
    json_object_set_new(json, "split", json_pack("[i, i]", 1, 1));
    assert_true(job_spec_read(&s, JOB_TRAIN, json, &err) < 0);
    assert_non_null(strstr(err.text, "--parallel auto"));
    json_decref(json);
}

/* An adapter's moments are small, and one replica has all of them. */
static void zero_wants_replicas_and_all_weights(void **state)
{
    (void)state;
    struct job_spec s;
    struct err err = {""};
    for (int full = 0; full < 2; full++)
        for (int replicas = 1; replicas < 3; replicas++) {
            json_t *json = json_pack("{s:s s:s s:s s:s s:s s:i}", "model", "/m", "data", "/d", "adapter_out",
                                     "/a", "parallel", replicas > 1 ? "dp=2" : "dp=1", "fine_tune_type",
                                     full ? "full" : "lora", "zero", 1);
            const int r = job_spec_read(&s, JOB_TRAIN, json, &err);
            assert_true(full && replicas > 1 ? r == 0 && s.zero == 1 : r < 0 && strstr(err.text, "--zero 1"));
            json_decref(json);
        }
    json_t *json = json_pack("{s:s s:s s:s s:s s:s s:i}", "model", "/m", "data", "/d", "adapter_out", "/a",
                             "parallel", "auto", "fine_tune_type", "full", "zero", 1);
    assert_true(job_spec_read(&s, JOB_TRAIN, json, &err) < 0 && strstr(err.text, "in place of auto"));
    json_decref(json);
}

/* --- sets that are evaluated ------------------------------------------------------------------ */

static void sets_need_names_and_a_first_one(void **state)
{
    (void)state;
    static const struct {
        bool has_valid;
        const char *name, *path, *words;
    } bad[] = {{false, "a", "/a.jsonl", "give the first ones as --valid"},
               {true, "a b", "/a.jsonl", "is no name of a set"},
               {true, "", "/a.jsonl", "is no name of a set"},
               {true, "a", "a.jsonl", "must have an absolute path"}};
    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        const bool is_good = i == sizeof bad / sizeof *bad;
        struct job_spec s;
        struct err err = {""};
        json_t *json = json_pack("{s:s s:s s:s s:s* s:{s:s}}", "model", "/m", "data", "/d", "adapter_out",
                                 "/a", "valid", is_good || bad[i].has_valid ? "/v" : NULL, "eval_data",
                                 is_good ? "a" : bad[i].name, is_good ? "/a.jsonl" : bad[i].path);
        const int r = job_spec_read(&s, JOB_TRAIN, json, &err);
        json_decref(json);
        if (is_good ? r : !r || !strstr(err.text, bad[i].words))
            fail_msg("%zu: \"%s\"", i, err.text);
    }
}

/* --- what adapters begin with ----------------------------------------------------------------- */

static int read_init(const char *init, const char *key, json_t *value, struct err *err)
{
    struct job_spec s;
    json_t *json = json_pack("{s:s s:s s:s s:s s:o}", "model", "/m", "data", "/d", "adapter_out", "/a",
                             "lora_init", init, key, value);
    const int r = job_spec_read(&s, JOB_TRAIN, json, err);
    json_decref(json);
    return r;
}

static void factors_that_cannot_be_drawn_are_refused(void **state)
{
    (void)state;
    struct err err = {""};
    assert_int_equal(read_init("orthogonal", "rank", json_integer(6), &err), 0);
    assert_true(read_init("orthogonal", "rank", json_integer(7), &err) < 0);
    assert_non_null(strstr(err.text, "needs an even --rank"));
    assert_true(read_init("orthogonal", "rank", json_integer(258), &err) < 0);
    assert_int_equal(read_init("pissa", "rank", json_integer(7), &err), 0);
    assert_true(read_init("pissa", "rank", json_integer(257), &err) < 0);
    assert_true(read_init("pissa", "dora", json_true(), &err) < 0);
    assert_non_null(strstr(err.text, "--lora-init pissa goes without --dora and --dropout"));
    assert_true(read_init("pissa", "dropout", json_real(0.1), &err) < 0);
    assert_int_equal(read_init("gaussian", "rank", json_integer(7), &err), 0);
    assert_true(read_init("gaussian", "init_adapter", json_string("/b"), &err) < 0);
    assert_non_null(strstr(err.text, "is made already"));
    assert_true(read_init("uniform", "fine_tune_type", json_string("full"), &err) < 0);
    assert_non_null(strstr(err.text, "--lora-init and --lora-plus-ratio are for LoRA"));
}

/* --- pairs of answers ------------------------------------------------------------------------- */

static int read_loss(struct job_spec *ret, const char *loss, const char *key, json_t *value, struct err *err)
{
    json_t *json = json_pack("{s:s s:s s:s s:s s:o}", "model", "/m", "data", "/d", "adapter_out", "/a",
                             "loss", loss, key, value);
    const int r = job_spec_read(ret, JOB_TRAIN, json, err);
    json_decref(json);
    return r;
}

static void pairs_are_trained_on_their_answers(void **state)
{
    (void)state;
    static const struct {
        const char *loss;
        bool full;
        double lr;
    } good[] = {{"dpo", false, 5e-6}, {"orpo", false, 8e-5}, {"orpo", true, 8e-6}, {"nll", true, 2e-4}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct job_spec s;
        struct err err = {""};
        if (read_loss(&s, good[i].loss, "fine_tune_type", json_string(good[i].full ? "full" : "lora"), &err))
            fail_msg("%s: %s", good[i].loss, err.text);
        assert_true(s.lr == good[i].lr && s.beta == 0.1);
        assert_int_equal(s.mask, s.loss == LOSS_NLL ? DATA_MASK_NONE : DATA_MASK_PROMPT);
    }
}

static void what_pairs_cannot_have_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *loss, *key;
        json_t *value;
        const char *words;
    } bad[] = {{"dpo", "fine_tune_type", json_string("full"), "give --loss orpo"},
               {"dpo", "mask", json_string("prompt"), "leave out --mask"},
               {"orpo", "packing", json_true(), "the two answers of a row stay together"},
               {"orpo", "overlong", json_string("split"), "give truncate or drop"},
               {"nll", "beta", json_real(0.2), "--beta needs --loss dpo or --loss orpo"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct job_spec s;
        struct err err = {""};
        if (!read_loss(&s, bad[i].loss, bad[i].key, bad[i].value, &err) || !strstr(err.text, bad[i].words))
            fail_msg("--loss %s with %s: \"%s\"", bad[i].loss, bad[i].key, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_and_their_nodes_are_read),
        cmocka_unit_test(replicas_may_have_unlike_numbers_of_nodes),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(slices_of_what_does_not_train),
        cmocka_unit_test(auto_looks_for_the_order_too),
        cmocka_unit_test(zero_wants_replicas_and_all_weights),
        cmocka_unit_test(sets_need_names_and_a_first_one),
        cmocka_unit_test(factors_that_cannot_be_drawn_are_refused),
        cmocka_unit_test(pairs_are_trained_on_their_answers),
        cmocka_unit_test(what_pairs_cannot_have_is_refused),
    };
    return cmocka_run_group_tests_name("job_spec", tests, NULL, NULL);
}
