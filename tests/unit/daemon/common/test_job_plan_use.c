/* SPDX-License-Identifier: MIT
 *
 * What is made of a plan: the stages that ranks open, their schedules, and its rows in
 * docs/PROTOCOL.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/plan/stage_of_plan.h"
#include "tests/unit/daemon/common/job_plan_example.h"

static void each_stage_opens_its_part(void **state)
{
    (void)state;
    struct job_plan plan = example();
    struct config config = {.layers = 5, .dim = 64};
    for (size_t i = 0; i < plan.stages; i++) {
        struct stage_spec s = job_plan_stage(&plan, &config, i, 0);
        assert_ptr_equal(s.model_dir, plan.model);
        assert_int_equal(s.first_layer, plan.first[i]);
        assert_int_equal(s.end_layer, plan.first[i + 1]);
        assert_int_equal(s.embed, i == 0);
        assert_int_equal(s.head, i == 3);
        assert_int_equal(s.slots, plan.slots[i]);
        assert_int_equal(s.activations, plan.activations[i]);
        assert_int_equal(s.bwd_x_only, plan.bwd_x_only[i]);
        assert_int_equal(s.bwd_w_only, plan.bwd_w_only[i]);
        assert_true(s.training && s.kv && s.tokens == 96 && s.seqs == 3 && s.positions == 32 &&
                    s.weight_bits == 4);
        assert_true(s.split_backward == (i != 2) && s.by_layer);
        assert_int_equal(s.config.layers, 5);
        assert_int_equal(s.tune.ntargets, 2);
    }
    plan.ranks = 1;
    job_plan_place_single(&plan);
    struct stage_spec alone = job_plan_stage(&plan, &config, 0, 0);
    assert_true(alone.embed && alone.head);
}

static void stages_that_keep_few_activations_do_forwards_again(void **state)
{
    (void)state;
    struct job_plan plan = example();
    bool recompute[JOB_MAX_STAGES];
    job_plan_recompute(&plan, recompute);
    assert_true(!recompute[0] && recompute[1] && !recompute[2] && recompute[3]);
}

static void schedules_are_asked_for(void **state)
{
    (void)state;
    struct job_plan plan = example();
    struct sched_request own = job_plan_schedule(&plan, 0, 7, 1);
    assert_ptr_equal(own.text, plan.order);
    assert_true(own.ranks == 3 && own.chunks == 0 && own.microbatches == 7);
    plan.order = NULL;
    plan.stages = 6;
    struct sched_request looped = job_plan_schedule(&plan, 0, 5, 2);
    assert_true(!looped.text && looped.chunks == 2 && looped.microbatches == 10);
}

/* A table of docs/PROTOCOL.md has a row for each field, with what it may be; otherwise all of the
 * table is printed as it should be. */
static void check_rows(const char *document, const struct field *table)
{
    bool level = true;
    for (int print = 0; print < 2; print++)
        for (const struct field *f = table; f->name && print == !level; f++) {
            if (!field_is_for(f, JOB_PLAN_SENT))
                continue;
            char range[RANGE_TEXT], row[400];
            field_range(range, f);
            snprintf(row, sizeof row, "| `%s` | %s | %s |\n", f->name, range, f->doc);
            level = level && strstr(document, row);
            if (print)
                fputs(row, stderr);
        }
    if (!level)
        fail_msg("docs/PROTOCOL.md has other rows for the plan than those above: write them there");
}

static void the_protocol_has_every_field(void **state)
{
    (void)state;
    char *document = NULL;
    size_t size = 0;
    FILE *f = fopen("docs/PROTOCOL.md", "re");
    if (!f)
        fail_msg("docs/PROTOCOL.md is not to be found from here: run in the project's folder");
    assert_true(getdelim(&document, &size, '\0', f) > 0);
    fclose(f);
    check_rows(document, job_plan_fields());
    check_rows(document, job_tune_fields());
    free(document);
}

/* What is encoded has the table's keys, and no other. */
static void every_key_has_a_row(void **state)
{
    (void)state;
    struct job_plan plan = example();
    json_t *json = job_plan_encode(&plan), *tune = json_object_get(json, "tune");
    size_t n = 0, of_tune = 0;
    for (const struct field *f = job_plan_fields(); f->name; f++)
        if (field_is_for(f, JOB_PLAN_SENT)) {
            assert_non_null(json_object_get(json, f->name));
            n++;
        }
    for (const struct field *f = job_tune_fields(); f->name; f++, of_tune++)
        assert_non_null(json_object_get(tune, f->name));
    assert_int_equal(json_object_size(json), n);
    assert_int_equal(json_object_size(tune), of_tune);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_stage_opens_its_part),
        cmocka_unit_test(schedules_are_asked_for),
        cmocka_unit_test(stages_that_keep_few_activations_do_forwards_again),
        cmocka_unit_test(the_protocol_has_every_field),
        cmocka_unit_test(every_key_has_a_row),
    };
    return cmocka_run_group_tests_name("job_plan_use", tests, NULL, NULL);
}
