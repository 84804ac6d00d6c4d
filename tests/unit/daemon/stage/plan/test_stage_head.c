/* SPDX-License-Identifier: MIT
 *
 * Planning a job that asks for something impossible is refused with a sentence that names it, and
 * one that is possible has a plan for every layer of the model and every token of the prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include "tests/lib/golden.h"
#include "tests/unit/daemon/stage/plan/planning.h"

static int start(void **state)
{
    static struct planning p;
    *state = &p;
    return planning_open(&p);
}

static int stop(void **state)
{
    planning_close(*state);
    return 0;
}

static int plan(struct planning *p, enum job_type type, json_t *spec, size_t ranks, struct err *err)
{
    json_t *nodes = json_array();
    for (size_t r = 0; r < ranks; r++)
        json_array_append_new(nodes, json_pack("{s:s s:i}", "name", "n", "speed", 1));
    const int e = head_plan(&p->head, type, spec, nodes, err);
    json_decref(nodes);
    json_decref(spec);
    return e;
}

static void assert_refused(void **state, json_t *spec, size_t ranks, const char *words)
{
    struct err err = {""};
    assert_true(plan(*state, JOB_GENERATE, spec, ranks, &err) < 0);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static json_t *spec_of(json_t *ids)
{
    const struct data_path model = data_path("cases/llama_tied_bf16/model");
    return json_pack("{s:s s:o s:i}", "model", model.text, "ids", ids, "max_tokens", 5);
}

static void a_prompt_is_planned_whole(void **state)
{
    struct planning *p = *state;
    struct err err = {""};
    if (plan(p, JOB_GENERATE, spec_of(json_pack("[i,i,i]", 1, 2, 3)), 2, &err))
        fail_msg("%s", err.text);
    const struct job_plan *plan = &p->head.plan;
    assert_int_equal(p->head.nids, 3);
    assert_int_equal(plan->positions, 3 + 5);
    assert_true(plan->tokens * plan->microbatches >= 3);
    assert_int_equal(plan->stages, 2);
    assert_int_equal(plan->first[0], 0);
    assert_int_equal(plan->first[2], p->head.config.layers);
}

static void no_node_is_refused(void **state)
{
    assert_refused(state, spec_of(json_pack("[i]", 1)), 0, "a ring of 0 nodes");
}

static void an_id_beyond_the_model_is_refused(void **state)
{
    assert_refused(state, spec_of(json_pack("[i,i]", 1, 100000000)), 1,
                   "--ids: entry 2 is not a token id below ");
}

static void an_empty_prompt_is_refused(void **state)
{
    assert_refused(state, spec_of(json_array()), 1, "--ids is empty");
}

static void a_model_that_is_not_there_is_named(void **state)
{
    assert_refused(state, json_pack("{s:s s:[i] s:i}", "model", "/nowhere/model", "ids", 1, "max_tokens", 5),
                   1, "/nowhere/model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_prompt_is_planned_whole, start, stop),
        cmocka_unit_test_setup_teardown(no_node_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(an_id_beyond_the_model_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(an_empty_prompt_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(a_model_that_is_not_there_is_named, start, stop),
    };
    return cmocka_run_group_tests_name("stage_head", tests, NULL, NULL);
}
