/* SPDX-License-Identifier: MIT
 *
 * The plan as it goes round: every field comes back, nothing that does not fit is taken, and what
 * each rank opens of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_plan.h"
#include "daemon/stage/plan/stage_of_plan.h"

/* Adapters that are trained together have the forms of the first. */
#define FORMS .nforms = 2, .forms = {{8, 0.1f}, {3, 2}}, .form = {{0, 1, 2, 0, 1}, {0, 0, 0, 0, 2}}

/* Rank 0 has stages 0 and 3, and the embedding and the head. */
static size_t mapped[] = {500, 1, 1, 1, 0, 2000, 3000};

static struct job_plan example(void)
{
    return (struct job_plan){.type = JOB_SCORE,
                             .model = "/models/a \"b\" \xc3\xa9",
                             .fingerprint = "0123456789abcdef0123456789abcdef",
                             .ranks = 3,
                             .stages = 4,
                             .first = {0, 0, 3, 4, 5},
                             .place = {0, 1, 2, 0},
                             .schedule = "own",
                             .order = (char *)"0F0,3F0\n1F0\n",
                             .microbatches = 7,
                             .round_steps = 20,
                             .tune = {.kind = TUNE_LORA,
                                      .rank = 8,
                                      .alpha = 0.1f,
                                      .dropout = 0.05f,
                                      .rslora = true,
                                      .plus_ratio = 16.5,
                                      .ntargets = 2,
                                      .targets = {"q_proj", "down_proj"},
                                      .first_layer = 1,
                                      .end_layer = 5,
                                      FORMS,
                                      .seed = 9000000000000001,
                                      .random_init = true},
                             .nmore = 2,
                             .more = {{.kind = TUNE_LORA,
                                       .rank = 16,
                                       .alpha = 0.3f,
                                       .plus_ratio = 2,
                                       .ntargets = 2,
                                       .targets = {"q_proj", "down_proj"},
                                       .first_layer = 1,
                                       .end_layer = 5,
                                       FORMS,
                                       .seed = 3,
                                       .random_init = true},
                                      {.kind = TUNE_LORA,
                                       .rank = 4,
                                       .alpha = 7,
                                       .dropout = 0.5f,
                                       .rslora = true,
                                       .ntargets = 2,
                                       .targets = {"q_proj", "down_proj"},
                                       .first_layer = 1,
                                       .end_layer = 5,
                                       FORMS,
                                       .random_init = true}},
                             .training = true,
                             .kv = true,
                             .by_layer = true,
                             .tokens = 96,
                             .seqs = 3,
                             .positions = 32,
                             .sample = 20,
                             .weight_bits = 4,
                             .compute = NUM_BF16,
                             .vocab = 512,
                             .dim = 64,
                             .slots = {3, 2, 1, 4},
                             .activations = {0, 1, 0, 2},
                             .bwd_x_only = {3, 1, 1, 2},
                             .bwd_w_only = {2, 1, 0, 1},
                             .bytes = {UINT64_C(1) << 40, 3, 0},
                             .draft_bytes = UINT64_C(1) << 30,
                             .nmapped = sizeof mapped / sizeof *mapped,
                             .mapped = mapped,
                             .tied = true};
}

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
        assert_memory_equal(back->mapped, plan.mapped, sizeof mapped);
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

static void each_stage_opens_its_part(void **state)
{
    (void)state;
    struct job_plan plan = example();
    struct config config = {.layers = 5, .dim = 64};
    for (size_t i = 0; i < plan.stages; i++) {
        struct stage_spec s = job_plan_stage(&plan, &config, i);
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
    struct stage_spec alone = job_plan_stage(&plan, &config, 0);
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
    struct sched_request own = job_plan_schedule(&plan, 7);
    assert_ptr_equal(own.text, plan.order);
    assert_true(own.ranks == 3 && own.chunks == 0 && own.microbatches == 7);
    plan.order = NULL;
    plan.stages = 6;
    struct sched_request looped = job_plan_schedule(&plan, 5);
    assert_true(!looped.text && looped.chunks == 2 && looped.microbatches == 5);
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
        cmocka_unit_test(the_protocol_has_every_field),
        cmocka_unit_test(every_key_has_a_row),
        cmocka_unit_test(the_complaint_names_the_field),
        cmocka_unit_test(every_field_comes_back),
        cmocka_unit_test(nothing_may_be_missing),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(further_adapters_are_like_the_first),
        cmocka_unit_test(served_adapters_lie_where_they_say),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(each_stage_opens_its_part),
        cmocka_unit_test(schedules_are_asked_for),
        cmocka_unit_test(stages_that_keep_few_activations_do_forwards_again),
    };
    return cmocka_run_group_tests_name("job_plan", tests, NULL, NULL);
}
