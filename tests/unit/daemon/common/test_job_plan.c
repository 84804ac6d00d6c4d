/* SPDX-License-Identifier: MIT
 *
 * The plan as it goes round: every field comes back, and nothing that does not fit is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/daemon/common/job_plan_example.h"

static void every_field_comes_back(void **state)
{
    (void)state;
    for (enum job_type type = 0; type < JOB_TYPES; type++) {
        struct job_plan plan = example(), *back = calloc(1, sizeof *back);
        struct err err = {""};
        plan.type = type;
        json_t *json = job_plan_encode(&plan);
        char *text = json_dumps(json, JSON_REAL_PRECISION(17)); /* as it travels */
        json_t *travelled = json_loads(text, 0, NULL);
        assert_int_equal(job_plan_decode(back, travelled, &err), 0);
        json_t *again = job_plan_encode(back);
        assert_true(json_equal(json, again));
        assert_true(back->tune.alpha == plan.tune.alpha && back->tune.dropout == plan.tune.dropout &&
                    back->tune.rslora && back->tune.plus_ratio == plan.tune.plus_ratio);
        assert_true(back->tune.dora && back->tune.layer_decay == plan.tune.layer_decay &&
                    back->more[0].fixed == 8 && back->more[0].layer_decay == 0.5 && !back->more[0].dora);
        assert_memory_equal(back->first, plan.first, sizeof plan.first);
        assert_memory_equal(back->place, plan.place, sizeof plan.place);
        assert_memory_equal(back->slots, plan.slots, sizeof plan.slots);
        assert_memory_equal(back->activations, plan.activations, sizeof plan.activations);
        assert_memory_equal(back->bwd_x_only, plan.bwd_x_only, sizeof plan.bwd_x_only);
        assert_memory_equal(back->bwd_w_only, plan.bwd_w_only, sizeof plan.bwd_w_only);
        assert_int_equal(back->round_steps, plan.round_steps);
        assert_int_equal(back->nmore, 2);
        assert_ptr_equal(job_plan_tune(back, 0), &back->tune);
        assert_int_equal(job_plan_tune(back, 2)->rank, 4);
        assert_string_equal(back->order, plan.order);
        assert_int_equal(back->sample, plan.sample);
        assert_memory_equal(back->bytes, plan.bytes, sizeof plan.bytes);
        assert_int_equal(back->nmapped, plan.nmapped);
        assert_memory_equal(back->mapped, plan.mapped, sizeof example_mapped);
        assert_true(back->tied);
        assert_memory_equal(back->tune.targets, plan.tune.targets, sizeof plan.tune.targets);
        assert_int_equal(back->tune.nforms, 2);
        assert_memory_equal(back->tune.forms, plan.tune.forms, 2 * sizeof plan.tune.forms[0]);
        assert_memory_equal(back->tune.form, plan.tune.form, sizeof plan.tune.form);
        assert_memory_equal(back->more[0].form, plan.tune.form,
                            sizeof plan.tune.form); /* on the same linears */
        assert_string_equal(job_type_name(back->type), job_type_name(type));
        json_decref(json);
        json_decref(travelled);
        json_decref(again);
        free(text);
        job_plan_done(back);
        free(back);
    }
    assert_string_equal(job_type_name(JOB_TYPES), "?");
}

/* Two replicas of a pipeline of three nodes: four of six groups, and two. */
static struct job_plan replicated(void)
{
    struct job_plan plan = example();
    plan.type = JOB_TRAIN;
    plan.ranks = 6;
    plan.replicas = 2;
    plan.microbatches = 13;
    plan.groups = 6;
    plan.share[0] = 4;
    plan.share[1] = 2;
    for (size_t s = 0; s < plan.stages; s++)
        plan.parts[s] = s;
    for (size_t r = 3; r < 6; r++)
        plan.bytes[r] = plan.bytes[5 - r];
    return plan;
}

static void replicas_come_back(void **state)
{
    (void)state;
    static struct job_plan back;
    struct job_plan plan = replicated();
    struct err err = {""};
    json_t *json = job_plan_encode(&plan);
    if (job_plan_decode(&back, json, &err))
        fail_msg("%s", err.text);
    assert_int_equal(back.replicas, 2);
    assert_int_equal(back.groups, 6);
    assert_memory_equal(back.share, plan.share, sizeof plan.share);
    assert_memory_equal(back.parts, plan.parts, sizeof plan.parts);
    assert_int_equal(job_plan_places(&back), 3);
    assert_int_equal(job_plan_first_microbatch(&back, 1, 13), 9); /* of 13 in groups of 3, 2, 2, 2, 2, 2 */
    assert_int_equal(job_plan_first_microbatch(&back, 2, 13), 13);
    assert_int_equal(job_plan_rank_at(&back, 1, 0), 5);
    assert_true(job_plan_is_at(&back, 3, 5) && job_plan_is_at(&back, 1, 4) && !job_plan_is_at(&back, 1, 5));
    job_plan_done(&back);
    json_decref(json);
}

/* Two replicas of stages that two nodes share: pipelines 0 and 1 are the slices of the first. */
static void slices_of_replicas_come_back(void **state)
{
    (void)state;
    static struct job_plan back;
    struct job_plan plan = replicated();
    struct err err = {""};
    plan.ranks = 12;
    plan.slices = 2;
    for (size_t r = 0; r < plan.ranks; r++) /* more is mapped here */
        plan.bytes[r] = (size_t)1 << 40;
    json_t *json = job_plan_encode(&plan);
    if (job_plan_decode(&back, json, &err))
        fail_msg("%s", err.text);
    assert_true(back.replicas == 2 && back.slices == 2 && job_plan_pipelines(&back) == 4);
    assert_int_equal(job_plan_places(&back), 3);
    assert_int_equal(job_plan_replica_of(&back, 5), 0);
    assert_int_equal(job_plan_replica_of(&back, 6), 1);
    assert_int_equal(job_plan_slice(&back, job_plan_pipeline_of(&back, 5)).index, 1);
    assert_int_equal(job_plan_slice(&back, job_plan_pipeline_of(&back, 6)).index, 0);
    assert_int_equal(job_plan_rank_at(&back, 2, 0), 6);
    job_plan_done(&back);
    json_decref(json);
    plan.ranks = 15;
    plan.slices = 5;
    assert_true(job_plan_pipelines(&plan) > PLAN_MAX_REPLICAS);
    json = job_plan_encode(&plan);
    assert_int_equal(job_plan_decode(&back, json, &err), -EBADMSG);
    json_decref(json);
}

/* A rank with all stages, and two with a run of them each. */
static struct job_plan unlike(void)
{
    struct job_plan plan = replicated();
    plan.ranks = 3;
    plan.nothers = plan.stages;
    for (size_t s = 0; s < plan.stages; s++) {
        plan.place[s] = 0;
        plan.others[s] = s >= 2;
    }
    for (size_t r = 0; r < plan.ranks; r++) /* more is mapped here */
        plan.bytes[r] = (size_t)1 << 40;
    return plan;
}

static void unlike_replicas_come_back(void **state)
{
    (void)state;
    static struct job_plan back;
    struct job_plan plan = unlike();
    struct err err = {""};
    json_t *json = job_plan_encode(&plan);
    if (job_plan_decode(&back, json, &err))
        fail_msg("%s", err.text);
    assert_int_equal(job_plan_places_of(&back, 0), 1);
    assert_int_equal(job_plan_places_of(&back, 1), 2);
    assert_int_equal(job_plan_replica_of(&back, 0), 0);
    assert_int_equal(job_plan_replica_of(&back, 1), 1);
    assert_int_equal(job_plan_replica_of(&back, 2), 1);
    assert_int_equal(job_plan_rank_at(&back, 1, 0), 2); /* turned round */
    assert_int_equal(job_plan_rank_at(&back, 1, 2), 1);
    assert_int_equal(job_plan_place_of(&back, 1), 1);
    assert_true(job_plan_is_at(&back, 2, 0) && job_plan_is_at(&back, 2, 1) && !job_plan_is_at(&back, 2, 2));
    assert_int_equal(job_plan_talks(&back, 0), 6);
    job_plan_done(&back);
    json_decref(json);
}

/* Is the plan refused, in a sentence, and is what is given left alone? */
static void refuse(json_t *json, const char *what)
{
    static struct job_plan back;
    struct err err = {""};
    back.ranks = 77;
    if (job_plan_decode(&back, json, &err) != -EBADMSG)
        fail_msg("taken: %s", what);
    assert_non_null(strstr(err.text, "install the same ringd on all nodes"));
    assert_int_equal(back.ranks, 77);
    json_decref(json);
}

static void unlike_places_must_fit(void **state)
{
    (void)state;
    static struct job_plan plan;
    plan = unlike();
    plan.others[0] = 1; /* the first stage is not at the first place */
    refuse(job_plan_encode(&plan), "no first stage");
    plan = unlike();
    plan.others[plan.stages - 1] = 0; /* no run */
    refuse(job_plan_encode(&plan), "stages to and fro");
    plan = unlike();
    plan.ranks = 4; /* of which one is of no replica */
    refuse(job_plan_encode(&plan), "a rank too many");
    plan = unlike();
    plan.nothers--;
    refuse(job_plan_encode(&plan), "a stage without a place");
}

static void nothing_may_be_missing(void **state)
{
    (void)state;
    struct job_plan plan = example();
    static const char *const inside[] = {NULL, "tune"};
    for (size_t i = 0; i < 2; i++) {
        json_t *good = job_plan_encode(&plan), *object = inside[i] ? json_object_get(good, inside[i]) : good,
               *value;
        const char *key;
        json_object_foreach (object, key, value) {
            json_t *bad = job_plan_encode(&plan), *at = inside[i] ? json_object_get(bad, inside[i]) : bad;
            json_object_del(at, key);
            refuse(bad, key);
        }
        json_decref(good);
    }
    refuse(json_null(), "null");
    refuse(json_array(), "a list");
}

static json_t *with_shares(size_t groups, size_t a, size_t b)
{
    struct job_plan plan = replicated();
    plan.groups = groups;
    plan.share[0] = a;
    plan.share[1] = b;
    return job_plan_encode(&plan);
}

static void shares_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    refuse(with_shares(6, 4, 1), "a group that nobody has");
    refuse(with_shares(6, 6, 0), "a replica without groups");
    refuse(with_shares(14, 7, 7), "more groups than microbatches");
    struct job_plan plan = replicated();
    plan.type = JOB_GENERATE;
    refuse(job_plan_encode(&plan), "replicas of a job that generates");
    plan = replicated();
    plan.slices = 2;
    refuse(job_plan_encode(&plan), "slices of replicas");
    plan = example();
    plan.type = JOB_GENERATE;
    plan.slices = 1;
    refuse(job_plan_encode(&plan), "one slice");
    plan = replicated();
    plan.ranks = 5;
    refuse(job_plan_encode(&plan), "5 ranks of 2 replicas");
    plan = replicated();
    plan.place[2] = 3;
    refuse(job_plan_encode(&plan), "a stage outside of its pipeline");
}

/* Each replica has a slice of the moments of all weights. */
static void only_the_moments_of_all_weights_are_divided(void **state)
{
    (void)state;
    static struct job_plan back;
    struct err err = {""};
    struct job_plan good = replicated(), plan;
    good.tune = (struct tune){.kind = TUNE_FULL};
    good.nmore = 0;
    good.divided = true;
    good.copies = false;
    json_t *json = job_plan_encode(&good);
    if (job_plan_decode(&back, json, &err))
        fail_msg("%s", err.text);
    assert_true(back.divided);
    job_plan_done(&back);
    json_decref(json);
    plan = good;
    plan.copies = true;
    refuse(job_plan_encode(&plan), "copies of moments that lie elsewhere");
    plan = good;
    plan.tune = replicated().tune;
    refuse(job_plan_encode(&plan), "moments of an adapter");
    plan = good;
    plan.replicas = plan.groups = 0;
    refuse(job_plan_encode(&plan), "moments without replicas");
}

static json_t *with(const char *key, json_t *value)
{
    struct job_plan plan = example();
    json_t *json = job_plan_encode(&plan);
    json_object_set_new(json, key, value);
    return json;
}

static json_t *with_tune(const char *key, json_t *value)
{
    struct job_plan plan = example();
    json_t *json = job_plan_encode(&plan);
    json_object_set_new(json_object_get(json, "tune"), key, value);
    return json;
}

static json_t *many(size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(1));
    return list;
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const char *const counts[] = {"microbatches", "tokens", "seqs", "positions", "vocab", "dim"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        refuse(with(counts[i], json_integer(0)), counts[i]);
        refuse(with(counts[i], json_integer(-1)), counts[i]);
    }
    refuse(with("weight_bits", json_integer(6)), "bits nobody asked for");
    refuse(with("type", json_string("dance")), "type");
    for (size_t n = 0; n < 40; n++)
        if (n != 5)
            refuse(with("first", many(n)), "first of another length");
    refuse(with("first", json_pack("[iiiii]", 0, 1, -2, 3, 3)), "a negative layer");
    for (size_t n = 0; n < 300; n += n < 20 ? 1 : 40)
        refuse(with("places", many(n)), "places of another length, or of no rank");
    refuse(with("places", json_pack("[iiii]", 0, 1, 2, 3)), "a rank there is not");
    refuse(with("places", json_pack("[iiii]", 0, 1, 1, 0)), "a rank without a stage");
    refuse(with("places", json_pack("[iiii]", 1, 0, 2, 0)), "a head without the first stage");
    char *order = malloc(JOB_ORDER_MAX + 2);
    assert_non_null(order);
    memset(order, ',', JOB_ORDER_MAX + 1);
    order[JOB_ORDER_MAX + 1] = '\0';
    refuse(with("order", json_string(order)), "an order too long");
    free(order);
    refuse(with("activations", many(3)), "activations of another length");
    refuse(with("bwd_x_only", many(3)), "bwd_x_only of another length");
    refuse(with("bwd_w_only", many(5)), "bwd_w_only of another length");
    refuse(with("slots", many(2)), "slots of another length");
    refuse(with("bytes", many(4)), "bytes of another length");
    refuse(with("mapped", many(6)), "mapped of another length");
    refuse(with("mapped", json_pack("[i,i,i,i,i,i,i]", 1, 1, 1, 1, 0, -1, 1)), "fewer bytes than none");
    refuse(with("mapped", json_pack("[i,i,i,i,i,s,i]", 1, 1, 1, 1, 0, "1", 1)), "bytes that are no number");
    refuse(with("mapped", json_pack("[i,i,i,i,i,i,i]", 1, 1, 1, 2, 0, 1, 1)), "more than the rank takes");
    refuse(with("mapped", json_pack("[I,i,i,i,i,I,i]", INT64_MAX, 1, 1, 1, 0, INT64_MAX, 1)),
           "more than there can be");
    refuse(with_tune("kind", json_integer(3)), "kind");
    refuse(with_tune("kind", json_integer(-1)), "kind");
    refuse(with_tune("rank", json_integer(0)), "rank 0 of LoRA");
    refuse(with_tune("rank", json_integer(65537)), "rank");
    refuse(with_tune("plus_ratio", json_real(-0.5)), "a negative ratio");
    refuse(with_tune("fixed", json_integer(9)), "more fixed than there is of the rank");
    refuse(with_tune("layer_decay", json_real(1.5)), "layers below that learn faster");
    refuse(with_tune("end_layer", json_integer(0)), "layers backwards");
    refuse(with_tune("forms", json_array()), "rows of forms, and no form");
    refuse(with_tune("form", json_array()), "forms, and no rows");
    refuse(with_tune("form", json_pack("[s,s]", "0001020001", "00000000")), "a row too short");
    refuse(with_tune("form", json_pack("[s,s]", "0001020001", "0000000003")), "a form that there is not");
    refuse(with_tune("forms", json_pack("[[i,f],[i,f]]", 8, 0.1, 0, 2.0)), "a rank of 0");
    refuse(with_tune("targets", many(1)), "a target that is no name");
    refuse(with_tune("targets", many(17)), "too many targets");
}

static json_t *with_more(const char *key, json_t *value)
{
    struct job_plan plan = example();
    json_t *json = job_plan_encode(&plan);
    json_object_set_new(json_array_get(json_object_get(json, "more"), 1), key, value);
    return json;
}

/* Further adapters: of LoRA, no more than there is room for, and put on what the first is put on,
 * whatever they say. */
static void further_adapters_are_like_the_first(void **state)
{
    (void)state;
    static struct job_plan back;
    struct err err = {""};
    json_t *json = with_more("targets", json_pack("[s]", "o_proj"));
    json_object_set_new(json_array_get(json_object_get(json, "more"), 1), "first_layer", json_integer(3));
    assert_int_equal(job_plan_decode(&back, json, &err), 0);
    assert_memory_equal(back.more[1].targets, back.tune.targets, sizeof back.tune.targets);
    assert_int_equal(back.more[1].first_layer, 1);
    job_plan_done(&back);
    json_decref(json);
    refuse(with_more("kind", json_integer(TUNE_FULL)), "an adapter that is none");
    refuse(with_more("rank", json_integer(0)), "an adapter without rank");
    refuse(with("more", json_object()), "adapters that are no list");
    refuse(with_tune("kind", json_integer(TUNE_FULL)), "adapters of a model that is trained itself");
    json_t *list = json_array(),
           *one = json_array_get(json_object_get(json = with("kv", json_false()), "more"), 0);
    for (size_t i = 0; i < JOB_MAX_ADAPTERS; i++)
        json_array_append(list, one);
    refuse(with("more", list), "too many adapters");
    json_decref(json);
    refuse(with("round_steps", json_integer(0)), "rounds of no step");
    refuse(with("round_steps", json_integer(JOB_MAX_STEPS + 1)), "rounds too long");
}

/* Those that are served were trained apart. */
static void served_adapters_lie_where_they_say(void **state)
{
    (void)state;
    static struct job_plan plan, back;
    struct err err = {""};
    plan = example();
    plan.type = JOB_SERVE;
    plan.more[0] = plan.tune;
    plan.more[1] = (struct tune){
        .kind = TUNE_LORA, .rank = 3, .alpha = 1, .ntargets = 1, .first_layer = 3, .end_layer = 4};
    strcpy(plan.more[1].targets[0], "o_proj");
    json_t *json = job_plan_encode(&plan);
    assert_int_equal(job_plan_decode(&back, json, &err), 0);
    assert_int_equal(back.nmore, 2);
    assert_int_equal(back.more[0].nforms, plan.tune.nforms);
    assert_memory_equal(back.more[0].form, plan.tune.form, sizeof plan.tune.form);
    assert_string_equal(back.more[1].targets[0], "o_proj");
    assert_int_equal(back.more[1].first_layer, 3);
    assert_int_equal(back.more[1].nforms, 0);
    job_plan_done(&back);
    json_t *row = json_object_get(json_array_get(json_object_get(json, "more"), 0), "form");
    json_array_set_new(row, 0, json_string("00"));
    refuse(json, "a form of a served adapter that is too short");
}

static void long_names_are_cut(void **state)
{
    (void)state;
    static struct job_plan back;
    struct err err = {""};
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    json_t *json = with_tune("targets", json_pack("[s]", name));
    json_object_set_new(json_object_get(json, "tune"), "form", json_pack("[s]", "0001020001"));
    json_object_set_new(json, "schedule", json_string(name));
    json_object_set_new(json, "fingerprint", json_string(name));
    assert_int_equal(job_plan_decode(&back, json, &err), 0);
    assert_int_equal(strlen(back.tune.targets[0]), sizeof back.tune.targets[0] - 1);
    assert_int_equal(strlen(back.schedule), sizeof back.schedule - 1);
    assert_int_equal(strlen(back.fingerprint), sizeof back.fingerprint - 1);
    job_plan_done(&back);
    json_decref(json);
}

/* The sentence says which field it is, what it may be, and what was sent. */
static void the_complaint_names_the_field(void **state)
{
    (void)state;
    static struct job_plan back;
    struct err err = {""};
    json_t *json = with("tokens", json_integer(0));
    assert_int_equal(job_plan_decode(&back, json, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "(\"tokens\" must be a whole number of at least 1, and is 0)"));
    json_decref(json);
    json = with_tune("rank", json_integer(65537));
    assert_int_equal(job_plan_decode(&back, json, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "(\"rank\" must be a whole number from 0 to 65536, and is 65537)"));
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_complaint_names_the_field),
        cmocka_unit_test(every_field_comes_back),
        cmocka_unit_test(replicas_come_back),
        cmocka_unit_test(slices_of_replicas_come_back),
        cmocka_unit_test(only_the_moments_of_all_weights_are_divided),
        cmocka_unit_test(shares_that_do_not_add_up_are_refused),
        cmocka_unit_test(unlike_replicas_come_back),
        cmocka_unit_test(unlike_places_must_fit),
        cmocka_unit_test(nothing_may_be_missing),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(further_adapters_are_like_the_first),
        cmocka_unit_test(served_adapters_lie_where_they_say),
        cmocka_unit_test(long_names_are_cut),
    };
    return cmocka_run_group_tests_name("job_plan", tests, NULL, NULL);
}
