/* SPDX-License-Identifier: MIT
 *
 * A step as its ranks tell of it: clocks that are hours apart are found from the messages, what was
 * planned is what the schedule gives, and what cannot be is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/timeline/timeline.h"
#include "engine/pipe/plan.h"
#include "tests/lib/small_plan.h"

enum { RANKS = 3, MICROBATCHES = 4, TASK_US = 1000, TRANSIT_US = 50 };

static const char names[RANKS][64] = {"a", "b", "c"};
static const int64_t ahead[RANKS] = {0, 7200000000, -90000000}; /* two hours fast, 90 s slow */

static struct timeline *timeline_of(size_t ranks)
{
    static struct job_plan plan;
    plan = small_plan(JOB_TRAIN, ranks);
    return timeline_new(&plan);
}

struct end {
    struct msg_key key;
    uint32_t to;
    int64_t at;
};

/* Runs the plan with tasks of one length and messages of one transit; each rank's times are those
 * of its own clock. */
static void perform(const struct plan *plan, json_t *tasks[RANKS], int64_t begin)
{
    struct end sent[1024];
    size_t n_sent = 0, next[RANKS] = {0};
    int64_t free_at[RANKS] = {begin, begin, begin};
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < RANKS; r++) {
            const struct task *t = next[r] < plan->rank[r].n ? &plan->rank[r].tasks[next[r]] : NULL;
            int64_t start = free_at[r], from = -1, message = 0;
            uint32_t found = 0;
            for (uint32_t k = 0; t && k < t->nneeds; k++)
                for (size_t i = 0; i < n_sent; i++)
                    if (sent[i].to == r && !memcmp(&sent[i].key, &t->needs[k].key, sizeof sent[i].key)) {
                        found++;
                        if (sent[i].at + TRANSIT_US > start) {
                            start = sent[i].at + TRANSIT_US;
                            from = t->needs[k].from;
                            message = t->needs[k].key.kind;
                        }
                    }
            if (!t || found < t->nneeds)
                continue;
            json_t *row = json_pack("[i,i,I,I,I,I,I]", (int)t->kind, (int)t->mb,
                                    (json_int_t)(start + ahead[r]), (json_int_t)(start + TASK_US + ahead[r]),
                                    (json_int_t)(start - free_at[r]), (json_int_t)message, (json_int_t)from);
            for (uint32_t k = 0; k < t->nemits; k++)
                json_array_append_new(row, json_integer(start + TASK_US + ahead[r]));
            json_array_append_new(tasks[r], row);
            free_at[r] = start + TASK_US;
            for (uint32_t k = 0; k < t->nemits; k++)
                sent[n_sent++] = (struct end){t->emits[k].key, t->emits[k].to, free_at[r]};
            next[r]++;
            moved = true;
        }
    }
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(next[r], plan->rank[r].n);
}

/* What a node tells of a neighbour's clock: true to the microsecond or, told wrongly, an hour
 * off. */
static json_t *clocks_of(size_t rank, size_t of, bool wrong)
{
    const int64_t us = ahead[of] - ahead[rank] + (wrong ? 3600000000 : 0);
    return json_pack("[[I,I,i],[i,i,i],[s,i,i]]", (json_int_t)of, (json_int_t)us, 1, 99, 0, 0, "x", 0, 0);
}

/* Each task has sent a hundred bytes more than the one before. */
static json_t *event_of_steps(uint64_t step, json_t *tasks, size_t steps)
{
    json_t *adapters = json_array();
    for (size_t i = 0; i < steps; i++)
        json_array_append_new(adapters, json_integer((json_int_t)i));
    json_t *bytes = json_array();
    for (size_t i = 0; i < json_array_size(tasks); i++)
        json_array_append_new(bytes, json_integer((json_int_t)(100 * i)));
    return json_pack("{s:I s:i s:o s:b s:i s:o s:o}", "step", (json_int_t)step, "microbatches", MICROBATCHES,
                     "adapters", adapters, "tied", 0, "lowest", 0, "tasks", tasks, "bytes", bytes);
}

static json_t *event_of(uint64_t step, json_t *tasks)
{
    return event_of_steps(step, tasks, 1);
}

enum told { NOTHING, THE_TRUTH, A_LIE };

/* All ranks tell of that step, and the second one of the other two's clocks; what the last one's
 * telling returns. */
static int tell_all(struct timeline *t, uint64_t step, int64_t begin, const bool *recompute, size_t steps,
                    enum told told)
{
    struct sched *sched;
    struct plan *plan;
    struct err err;
    json_t *tasks[RANKS] = {json_array(), json_array(), json_array()};
    int r = -1;
    assert_int_equal(
        sched_make(&sched,
                   &(struct sched_request){.name = "1f1b", .ranks = RANKS, .microbatches = MICROBATCHES},
                   &err),
        0);
    struct plan_request req = {
        .program = PROGRAM_TRAIN, .sched = sched, .ranks = RANKS, .recompute = recompute, .steps = steps};
    assert_int_equal(plan_compile(&plan, &req, &err), 0);
    perform(plan, tasks, begin);
    for (size_t i = 0; i < RANKS; i++) {
        json_t *event = event_of_steps(step, tasks[i], steps);
        if (told && i == 1) {
            json_t *clocks = clocks_of(1, 0, false), *more = clocks_of(1, 2, told == A_LIE);
            json_array_extend(clocks, more);
            json_decref(more);
            json_object_set_new(event, "clocks", clocks);
        }
        r = timeline_add(t, i, event);
        assert_int_equal(r, i + 1 == RANKS);
        json_decref(event);
    }
    plan_free(plan);
    sched_free(sched);
    return r;
}

static int tell_of(struct timeline *t, uint64_t step, int64_t begin, const bool *recompute, size_t steps)
{
    return tell_all(t, step, begin, recompute, steps, NOTHING);
}

static int tell(struct timeline *t, uint64_t step, int64_t begin)
{
    return tell_of(t, step, begin, NULL, 1);
}

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void clocks_apart_are_laid_together(void **state)
{
    (void)state;
    struct timeline *t = timeline_of(RANKS);
    assert_null(timeline_encode(t, 1, names));
    tell(t, 12, 1000000000000);
    json_t *json = timeline_encode(t, 7, names), *ranks = json_object_get(json, "ranks");
    assert_int_equal(number(json, "id"), 7);
    assert_int_equal(number(json, "step"), 12);
    for (size_t r = 0; r < RANKS; r++) {
        json_t *one = json_array_get(ranks, r);
        double error = number(one, "offset_error_us");
        if (error > (double)(r * TRANSIT_US + 1))
            fail_msg("rank %zu: off by up to %g us", r, error);
        assert_true(number(one, "offset_us") - (double)ahead[r] <= error &&
                    (double)ahead[r] - number(one, "offset_us") <= error);
        assert_string_equal(json_string_value(json_object_get(one, "node")), names[r]);
        assert_int_equal(json_array_size(json_object_get(one, "tasks")),
                         json_array_size(json_object_get(one, "planned")));
    }
    /* Nothing before the beginning, the first forward at it, and the second rank's after the
     * first's. */
    const json_t *first = json_array_get(json_object_get(json_array_get(ranks, 0), "tasks"), 0);
    const json_t *second = json_array_get(json_object_get(json_array_get(ranks, 1), "tasks"), 0);
    assert_string_equal(json_string_value(json_array_get(first, 0)), "F");
    assert_true(json_real_value(json_array_get(first, 2)) == 0);
    double begins = json_real_value(json_array_get(second, 2));
    assert_true(begins >= 0.0009 && begins <= 0.0012);
    assert_true(json_real_value(json_array_get(second, 4)) > 0.0009);
    assert_int_equal(json_integer_value(json_array_get(second, 6)), 0);
    assert_int_equal(json_integer_value(json_array_get(second, 7)), 1); /* its stage */
    assert_int_equal(json_integer_value(json_array_get(second, 8)), 0);
    second = json_array_get(json_object_get(json_array_get(ranks, 1), "tasks"), 2);
    assert_int_equal(json_integer_value(json_array_get(second, 8)), 200);
    json_decref(json);
    timeline_free(t);
}

/* Heartbeats that know better than the step's messages narrow the bounds, along the chain of
 * neighbours; what contradicts the messages is left out. */
static void heartbeats_narrow_the_bounds(void **state)
{
    (void)state;
    static const enum told all[] = {NOTHING, THE_TRUTH, A_LIE};
    double error[3][RANKS];
    for (size_t k = 0; k < 3; k++) {
        struct timeline *t = timeline_of(RANKS);
        tell_all(t, 1, 1000000000000, NULL, 1, all[k]);
        json_t *json = timeline_encode(t, 1, names), *ranks = json_object_get(json, "ranks");
        for (size_t r = 0; r < RANKS; r++) {
            const json_t *one = json_array_get(ranks, r);
            error[k][r] = number(one, "offset_error_us");
            assert_true(fabs(number(one, "offset_us") - (double)ahead[r]) <= error[k][r] + 1);
        }
        json_decref(json);
        timeline_free(t);
    }
    for (size_t r = 1; r < RANKS; r++) {
        assert_true(error[NOTHING][r] >= TRANSIT_US - 1);
        assert_true(error[THE_TRUTH][r] <= 10); /* 1 µs a hop, and the drift of a step */
        assert_true(error[A_LIE][r] == error[NOTHING][r]);
    }
}

/* With no transit to pay for, the plan is as fast as the messages allow: shorter than what was, and
 * as busy. */
static void the_plan_is_what_the_schedule_gives(void **state)
{
    (void)state;
    struct timeline *t = timeline_of(RANKS);
    tell(t, 1, 1000000000000);
    json_t *json = timeline_encode(t, 1, names), *ranks = json_object_get(json, "ranks");
    double planned = number(json, "planned_seconds"), seconds = number(json, "seconds");
    assert_true(planned < seconds && planned > 0.5 * seconds);
    assert_true(number(json, "planned_bubble") < number(json, "bubble"));
    double end = 0;
    for (size_t r = 0; r < RANKS; r++) {
        const json_t *rows = json_object_get(json_array_get(ranks, r), "planned");
        double free_at = 0;
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            assert_true(json_real_value(json_array_get(row, 2)) >= free_at - 1e-12);
            free_at = json_real_value(json_array_get(row, 3));
        }
        end = free_at > end ? free_at : end;
    }
    assert_true(end == planned);
    json_decref(json);
    timeline_free(t);
}

/* Forwards that are done again are in the plan, if it is known who does that. */
static void forwards_done_again_are_planned(void **state)
{
    (void)state;
    const bool recompute[RANKS] = {true, false, true};
    for (int known = 0; known < 2; known++) {
        struct job_plan plan = small_plan(JOB_TRAIN, RANKS);
        plan.activations[0] = plan.activations[2] = (size_t)known;
        struct timeline *t = timeline_new(&plan);
        tell_of(t, 1, 1000000000000, recompute, 1);
        json_t *json = timeline_encode(t, 1, names);
        assert_int_equal(json_is_number(json_object_get(json, "planned_seconds")), known);
        json_decref(json);
        timeline_free(t);
    }
}

/* Of steps of several adapters, which are one program, too. */
static void rounds_of_several_steps_are_planned(void **state)
{
    (void)state;
    struct timeline *t = timeline_of(RANKS);
    for (size_t steps = 1; steps <= MICROBATCHES; steps *= 2) {
        tell_of(t, steps, 1000000000000 * (int64_t)steps, NULL, steps);
        json_t *json = timeline_encode(t, 1, names), *tasks;
        size_t norms = 0, i;
        json_t *row;
        assert_int_equal(number(json, "steps"), steps);
        assert_true(number(json, "planned_seconds") > 0);
        tasks = json_object_get(json_array_get(json_object_get(json, "ranks"), 1), "planned");
        json_array_foreach (tasks, i, row)
            norms += !strcmp(json_string_value(json_array_get(row, 0)), "norm");
        assert_int_equal(norms, steps);
        json_decref(json);
    }
    timeline_free(t);
}

static void only_what_all_have_told_of_is_shown(void **state)
{
    (void)state;
    struct timeline *t = timeline_of(RANKS);
    json_t *part = event_of(9, json_pack("[[i,i,i,i,i,i,i,i]]", 0, 0, 1, 2, 0, 0, -1, 2));
    tell(t, 3, 1000000000000);
    assert_int_equal(timeline_add(t, 0, part), 0); /* the others stay silent */
    json_t *json = timeline_encode(t, 1, names);
    assert_int_equal(number(json, "step"), 3);
    json_decref(json);
    tell(t, 10, 2000000000000);
    assert_int_equal(timeline_add(t, 1, part), -ESTALE);
    json_decref(part);
    timeline_free(t);
}

/* One task of a rank in a plan that is not followed: enough to be reported. */
static int tell_one(struct timeline *t, size_t rank, uint64_t step)
{
    json_t *event = event_of(step, json_pack("[[i,i,i,i,i,i,i,i]]", 0, 0, 1, 2, 0, 0, -1, 2));
    int r = timeline_add(t, rank, event);
    json_decref(event);
    return r;
}

static void shows(struct timeline *t, int step)
{
    json_t *json = timeline_encode(t, 1, names);
    assert_non_null(json);
    assert_int_equal(number(json, "step"), step);
    json_decref(json);
}

/* Rank 0 is one step ahead, and then two, before the others have reported the first one: none is
 * lost. */
static void a_rank_may_be_ahead(void **state)
{
    (void)state;
    for (uint64_t ahead_by = 1; ahead_by <= 2; ahead_by++) {
        struct timeline *t = timeline_of(RANKS);
        for (uint64_t step = 1; step <= 1 + ahead_by; step++)
            assert_int_equal(tell_one(t, 0, step), 0);
        for (uint64_t step = 1; step <= 1 + ahead_by; step++) {
            assert_int_equal(tell_one(t, 2, step), 0);
            assert_int_equal(tell_one(t, 1, step), 1);
            shows(t, (int)step);
        }
        assert_int_equal(timeline_end(t), 0);
        timeline_free(t);
    }
}

/* More steps than wait: the oldest are dropped and counted, their ranks come too late, and the
 * newest eight become complete. */
static void more_than_the_window_is_counted(void **state)
{
    (void)state;
    enum { TOLD = 11, WAIT = 8 };
    struct timeline *t = timeline_of(2);
    for (uint64_t step = 1; step <= TOLD; step++)
        assert_int_equal(tell_one(t, 0, step), 0);
    for (uint64_t step = 1; step <= TOLD; step++)
        assert_int_equal(tell_one(t, 1, step), step <= TOLD - WAIT ? -ESTALE : 1);
    shows(t, TOLD);
    for (uint64_t step = 0; step < WAIT; step++)
        assert_int_equal(tell_one(t, 0, 21 + step), 0);
    assert_int_equal(tell_one(t, 1, 20), -ESTALE); /* older than all that wait: it is the one that goes */
    assert_int_equal(tell_one(t, 1, 21), 1);
    assert_int_equal(timeline_end(t), TOLD - WAIT + 1 + WAIT - 1);
    timeline_free(t);
}

/* A step that a rank did not report cannot become complete after a later one has; one that waits at
 * the end cannot either. */
static void what_stays_incomplete_is_counted(void **state)
{
    (void)state;
    struct timeline *t = timeline_of(2);
    assert_int_equal(tell_one(t, 0, 1), 0);
    assert_int_equal(tell_one(t, 0, 2), 0);
    assert_int_equal(tell_one(t, 1, 2), 1);
    assert_int_equal(tell_one(t, 1, 1), -ESTALE);
    assert_int_equal(tell_one(t, 1, 4), 0);
    assert_int_equal(tell_one(t, 1, 3), 0);
    assert_int_equal(timeline_end(t), 3);
    shows(t, 2);
    timeline_free(t);
}

/* The plan is kept from step to step where the shape is the same: it says the same of each of
 * them. */
static void each_shape_has_its_plan(void **state)
{
    (void)state;
    struct timeline *t = timeline_of(RANKS);
    const size_t steps[] = {1, 1, 2, 1};
    double planned[4];
    for (size_t i = 0; i < 4; i++) {
        tell_of(t, i + 1, 1000000000000 + (int64_t)i * 1000000, NULL, steps[i]);
        json_t *json = timeline_encode(t, 1, names);
        planned[i] = number(json, "planned_seconds");
        assert_true(fabs(number(json, "begin_us") - 1000000000000 - (double)i * 1000000) < 1);
        json_decref(json);
    }
    assert_true(planned[0] == planned[1] && planned[0] == planned[3] && planned[2] != planned[0]);
    timeline_free(t);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":0,\"tasks\":[]}",
        "{\"step\":0,\"microbatches\":4,\"lowest\":0,\"tasks\":[[0,0,1,2,0,0,-1,2]]}",
        "{\"step\":1,\"microbatches\":0,\"lowest\":0,\"tasks\":[[0,0,1,2,0,0,-1,2]]}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":99,\"tasks\":[[0,0,1,2,0,0,-1,2]]}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":0,\"tasks\":[[0,0,2,1,0,0,-1,2]]}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":0,\"tasks\":[[99,0,1,2,0,0,-1,2]]}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":0,\"tasks\":[[0,0,1,2,0,99,-1,2]]}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":0,\"tasks\":[[0,0,1,2,0,0,99,2]]}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":0,\"tasks\":[[0,0,1,2,0,0]]}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":0,\"tasks\":[[0,0,1,2,0,0,-1,3]]}",
        "{\"step\":1,\"microbatches\":4,\"lowest\":0,\"tasks\":[[0,0,\"1\",2,0,0,-1,2]]}",
        "{\"step\":2,\"microbatches\":4,\"adapters\":[0,1,2],\"lowest\":0,\"tasks\":[[0,0,1,2,0,0,-1,2]]}",
    };
    struct timeline *t = timeline_of(RANKS);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *event = json_loads(bad[i], 0, NULL);
        assert_non_null(event);
        if (timeline_add(t, 0, event) != -EBADMSG)
            fail_msg("taken: %s", bad[i]);
        json_decref(event);
    }
    assert_null(timeline_encode(t, 1, names));
    timeline_free(t);
}

/* A rank that did other tasks than the plan has: what it did is shown, and nothing is made up
 * beside it. */
static void another_plan_is_not_made_up(void **state)
{
    (void)state;
    struct timeline *t = timeline_of(1);
    json_t *event = event_of(1, json_pack("[[i,i,i,i,i,i,i,i]]", 2, 0, 10, 30, 0, 0, -1, 20));
    assert_int_equal(timeline_add(t, 0, event), 1);
    json_decref(event);
    json_t *json = timeline_encode(t, 1, names), *one = json_array_get(json_object_get(json, "ranks"), 0);
    assert_true(json_is_null(json_object_get(json, "planned_seconds")));
    assert_int_equal(json_array_size(json_object_get(one, "tasks")), 1);
    assert_int_equal(json_array_size(json_object_get(one, "planned")), 0);
    json_decref(json);
    timeline_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clocks_apart_are_laid_together),
        cmocka_unit_test(heartbeats_narrow_the_bounds),
        cmocka_unit_test(the_plan_is_what_the_schedule_gives),
        cmocka_unit_test(forwards_done_again_are_planned),
        cmocka_unit_test(rounds_of_several_steps_are_planned),
        cmocka_unit_test(only_what_all_have_told_of_is_shown),
        cmocka_unit_test(a_rank_may_be_ahead),
        cmocka_unit_test(more_than_the_window_is_counted),
        cmocka_unit_test(what_stays_incomplete_is_counted),
        cmocka_unit_test(each_shape_has_its_plan),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(another_plan_is_not_made_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
