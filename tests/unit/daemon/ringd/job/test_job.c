/* SPDX-License-Identifier: MIT
 *
 * A job's record as the API and the store get it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/ringd/job/job.h"
#include "daemon/common/layers_text.h"
#include "tests/lib/small_plan.h"

static void states_have_their_names(void **state)
{
    (void)state;
    static const struct {
        enum job_state state;
        const char *name;
        bool ended;
    } want[] = {
        {JOB_QUEUED, "queued", false},      {JOB_PLANNING, "planned", false},
        {JOB_OPENING, "planned", false},    {JOB_CONNECTING, "planned", false},
        {JOB_RUNNING, "running", false},    {JOB_STOPPING, "running", false},
        {JOB_DONE, "done", true},           {JOB_FAILED, "failed", true},
        {JOB_CANCELLED, "cancelled", true},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_string_equal(job_state_name(want[i].state), want[i].name);
        assert_int_equal(job_state_ended(want[i].state), want[i].ended);
    }
}

static void a_new_job_has_not_begun(void **state)
{
    (void)state;
    time_t before = time(NULL);
    const struct job_spec asked = {.model = "/m"};
    struct job *job = job_new(UINT64_C(1) << 40, JOB_TRAIN, &asked, json_pack("{s:s}", "model", "/m"));
    json_t *row = job_encode_short(job);
    assert_int_equal(json_object_size(row), 18);
    assert_int_equal(json_integer_value(json_object_get(row, "id")), INT64_C(1) << 40);
    assert_string_equal(json_string_value(json_object_get(row, "type")), "train");
    assert_string_equal(json_string_value(json_object_get(row, "state")), "queued");
    assert_in_range(json_integer_value(json_object_get(row, "created")), before, time(NULL));
    assert_string_equal(json_string_value(json_object_get(row, "model")), "/m");
    static const char *const none[] = {"started", "ended", "loss", "error", "unsaved", "deputy", "seconds"};
    for (size_t i = 0; i < 6; i++)
        assert_true(json_is_null(json_object_get(row, none[i])));
    json_decref(row);
    json_t *all = job_encode(job);
    assert_int_equal(json_object_size(all), 26);
    assert_true(json_is_null(json_object_get(json_object_get(all, "start"), "first_task")));
    assert_int_equal(json_array_size(json_object_get(all, "memory")), 0);
    assert_int_equal(json_array_size(json_object_get(all, "relayed")), 0);
    assert_true(json_is_null(json_object_get(all, "plan")) && json_is_null(json_object_get(all, "result")));
    assert_true(json_equal(json_object_get(all, "spec"), job->spec));
    json_decref(all);
    job_free(job);
    job_free(NULL);
}

static struct job *running_job(void)
{
    struct job *job = job_new(3, JOB_SCORE, NULL, json_object());
    struct job_plan plan = small_plan(JOB_SCORE, 2);
    const struct job_nodes nodes = {
        .n = 2, .id = {{1}, {2}}, .name = {"left", "right"}, .available = {0, 70}};
    struct placed_plan *placed = NULL;
    struct err err = {""};
    plan.first[1] = 2;
    plan.first[2] = 5;
    plan.weights = (char *)"a,b;";
    json_t *told = small_plan_told(&plan, 9);
    json_object_set_new(told, "shared",
                        json_pack("[{s:i,s:[]},{s:i,s:[i]}]", "bytes", 0, "jobs", "bytes", 40, "jobs", 2));
    json_object_set_new(told, "travel", json_pack("{s:i}", "bytes", 12));
    if (placed_plan_read(&placed, told, JOB_SCORE, &nodes, &err))
        fail_msg("%s", err.text);
    json_decref(told);
    job_set_plan(job, placed);
    job->state = JOB_RUNNING;
    job->started = 100;
    job->result = json_pack("{s:f}", "total", -0.1);
    snprintf(job->error, sizeof job->error, "cable");
    job->has_loss = true;
    job->loss = 0.1;
    job->step = 4;
    job->ready[1] = job->stopped[0] = job->opened = true;
    return job;
}

static void a_plan_is_shown_with_its_nodes(void **state)
{
    (void)state;
    struct job *job = running_job();
    json_t *all = job_encode(job), *plan = json_object_get(all, "plan"),
           *want = json_pack(
               "{s:[i,i,i], s:[s,s], s:[[i,i],[i,i]], s:[i,i], s:[i,i], s:[{s:i,s:[]},{s:i,s:[i]}], s:{s:i}}",
               "first", 0, 2, 5, "nodes", "left", "right", "split", 0, 2, 2, 5, "available", 0, 70, "slots",
               1, 1, "shared", "bytes", 0, "jobs", "bytes", 40, "jobs", 2, "travel", "bytes", 12),
           *value;
    const char *key;
    json_object_foreach (want, key, value)
        if (!json_equal(json_object_get(plan, key), value))
            fail_msg("the plan shows another \"%s\"", key);
    assert_null(json_object_get(plan, "weights")); /* for the nodes' eyes */
    assert_int_equal(json_integer_value(json_object_get(all, "steps")), 9);
    assert_true(json_real_value(json_object_get(all, "loss")) == 0.1);
    assert_string_equal(json_string_value(json_object_get(all, "error")), "cable");
    assert_true(json_equal(json_object_get(all, "result"), job->result));
    json_decref(all);
    json_decref(want);
    job_free(job);
}

/* What is shown of a plan has the keys of its table, and no other. */
static void every_key_that_is_shown_has_a_row(void **state)
{
    (void)state;
    struct job *job = running_job();
    size_t n = 0;
    job->plan->forecast = json_object();
    job->plan->speed = json_object();
    json_t *shown = placed_plan_show(job->plan);
    for (const struct field *f = job_plan_fields(); f->name; f++)
        if (field_is_for(f, JOB_PLAN_SHOWN)) {
            if (!json_object_get(shown, f->name))
                fail_msg("\"%s\" is not shown", f->name);
            n++;
        }
    assert_int_equal(json_object_size(shown), n);
    json_decref(shown);
    job_free(job);
}

/* Each rank is told what all are told, its number, and who the others are. */
static void a_plan_goes_to_every_rank(void **state)
{
    (void)state;
    struct job *job = running_job();
    json_t *open = job_encode_open(job, 1), *sent = job_plan_encode(&job->plan->shared),
           *ids = json_pack("[s,s]", "01000000000000000000000000000000", "02000000000000000000000000000000");
    assert_int_equal(json_integer_value(json_object_get(open, "rank")), 1);
    assert_true(json_equal(json_object_get(open, "plan"), sent));
    assert_string_equal(json_string_value(json_object_get(sent, "weights")), "a,b;");
    assert_true(json_equal(json_object_get(open, "nodes"), ids));
    json_decref(open);
    json_decref(sent);
    json_decref(ids);
    job_free(job);
}

/* A ring of four, as a plan takes some of its nodes, or follows it the other way round. */
static void a_plan_has_the_nodes_that_were_chosen(void **state)
{
    (void)state;
    static const struct {
        unsigned chosen;
        int mirrored;
        const char *names; /* NULL: refused */
    } rings[] = {{0, 0, "abcd"}, {0, 1, "adcb"}, {0xb, 0, "abd"},  {0xb, 1, "adb"},
                 {0x1, 0, "a"},  {0x6, 0, NULL}, {0xff, 0, "abcd"}};
    const struct job_nodes ring = {
        .n = 4, .name = {"a", "b", "c", "d"}, .available = {'a', 'b', 'c', 'd'}, .id = {{1}, {2}, {3}, {4}}};
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        const size_t n = rings[i].names ? strlen(rings[i].names) : 2;
        const struct job_plan plan = small_plan(JOB_SCORE, n);
        struct placed_plan *placed = NULL;
        struct err err = {""};
        json_t *told = small_plan_told(&plan, 1);
        json_object_set_new(told, "chosen", json_integer(rings[i].chosen));
        json_object_set_new(told, "mirrored", json_boolean(rings[i].mirrored));
        const int r = placed_plan_read(&placed, told, JOB_SCORE, &ring, &err);
        assert_int_equal(r, rings[i].names ? 0 : -EBADMSG);
        assert_true(r == 0 || strstr(err.text, "without the head"));
        for (size_t k = 0; !r && k < n; k++) {
            assert_int_equal(placed->nodes.name[k][0], rings[i].names[k]);
            assert_int_equal(placed->nodes.available[k], rings[i].names[k]);
            assert_int_equal(placed->nodes.id[k][0], rings[i].names[k] - 'a' + 1);
        }
        assert_true(r || placed->nodes.n == n);
        placed_plan_free(placed);
        json_decref(told);
    }
}

/* Another plan, of fewer nodes: its ranks have said nothing yet. */
static void a_plan_can_be_replaced(void **state)
{
    (void)state;
    struct job *job = running_job();
    const struct job_nodes nodes = {.n = 1, .name = {"right"}};
    const struct job_plan plan = small_plan(JOB_SCORE, 1);
    struct placed_plan *placed = NULL;
    struct err err;
    json_t *told = small_plan_told(&plan, 6);
    job->memory[1] = (struct job_memory){5, 4, 6};
    job->through[0][1] = strdup("somebody");
    assert_int_equal(placed_plan_read(&placed, told, JOB_SCORE, &nodes, &err), 0);
    job_set_plan(job, placed);
    assert_int_equal(job_nodes(job)->n, 1);
    assert_string_equal(job_nodes(job)->name[0], "right");
    assert_int_equal(job->steps, 6);
    for (size_t r = 0; r < RING_MAX_NODES; r++)
        assert_true(!job->ready[r] && !job->stopped[r] && !job->memory[r].rss && !job->through[r][1]);
    json_decref(told);
    job_free(job);
}

static void how_it_ended_is_a_sentence(void **state)
{
    (void)state;
    static const struct {
        enum job_state state;
        const char *error, *text;
    } ends[] = {{JOB_DONE, "", "it is done"},
                {JOB_FAILED, "node b is gone", "it failed: node b is gone"},
                {JOB_CANCELLED, "", "it was cancelled"},
                {JOB_CANCELLED, "it had not started yet", "it was cancelled: it had not started yet"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct job *job = running_job();
        char text[100];
        job->state = ends[i].state;
        job->ended = 163;
        snprintf(job->error, sizeof job->error, "%s", ends[i].error);
        json_t *record = job_encode(job);
        job_how_it_ended(text, sizeof text, record);
        assert_string_equal(text, ends[i].text);
        assert_int_equal(json_integer_value(json_object_get(record, "seconds")), 63);
        json_decref(record);
        job_free(job);
    }
}

static void what_a_stage_says_of_its_memory_is_kept(void **state)
{
    (void)state;
    struct job *job = running_job();
    static const int bad[][3] = {{0, 0, 0}, {-1, 0, 5}, {5, 6, 6}, {5, -1, 6}, {5, 4, 4}};
    json_t *said = json_pack("{s:i s:i s:i}", "rss", 5, "anon", 4, "peak", 6);
    assert_int_equal(job_set_memory(job, 1, said), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *nonsense = json_pack("{s:i s:i s:i}", "rss", bad[i][0], "anon", bad[i][1], "peak", bad[i][2]);
        assert_int_equal(job_set_memory(job, 1, nonsense), -EBADMSG);
        json_decref(nonsense);
    }
    assert_int_equal(job_set_memory(job, 1, NULL), -EBADMSG);
    json_t *all = job_encode(job), *list = json_object_get(all, "memory");
    assert_int_equal(json_array_size(list), 2);
    assert_true(json_is_null(json_array_get(list, 0))); /* it has not said anything */
    assert_true(json_equal(json_array_get(list, 1), said));
    json_decref(all);
    json_decref(said);
    job_free(job);
}

/* Back in the queue: nothing of the first try may be left for the second. */
static void a_reset_job_is_a_new_one(void **state)
{
    (void)state;
    struct job other = {.id = 1}, *job = running_job();
    job->next = &other;
    job_reset(job);
    job->state = JOB_QUEUED;
    *job->error = 0;
    assert_ptr_equal(job->next, &other);
    assert_int_equal(job->id, 3);
    assert_int_equal(job->type, JOB_SCORE);
    assert_true(json_is_object(job->spec) && job->created);
    assert_null(job->plan);
    assert_false(job->opened);
    for (size_t r = 0; r < RING_MAX_NODES; r++)
        assert_false(job->ready[r] || job->connected[r] || job->stopped[r]);
    job_free(job);
}

/* Points of its start count from when it left the queue, and only the first time they are
 * reached. */
static void its_start_is_put_down_once(void **state)
{
    (void)state;
    struct job *job = running_job();
    job->start.began = (struct instant){5000000};
    job_mark(job, &job->start.first_task, (struct instant){5250000});
    job_mark(job, &job->start.first_task, (struct instant){9000000});
    json_t *all = job_encode(job), *start = json_object_get(all, "start");
    assert_true(json_real_value(json_object_get(start, "first_task")) == 0.25);
    assert_true(json_is_null(json_object_get(start, "planned")));
    json_decref(all);
    job_free(job);
}

static void layers_are_told_in_few_signs(void **state)
{
    (void)state;
    char text[8] = "";
    layers_text_add(text, sizeof text, 3, 3);
    assert_string_equal(text, "");
    layers_text_add(text, sizeof text, 0, 4);
    layers_text_add(text, sizeof text, 6, 7);
    assert_string_equal(text, "0-3,6");
    layers_text_add(text, sizeof text, 10, 12); /* no room */
    assert_string_equal(text, "0-3,6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_told_in_few_signs),
        cmocka_unit_test(states_have_their_names),
        cmocka_unit_test(a_new_job_has_not_begun),
        cmocka_unit_test(a_plan_is_shown_with_its_nodes),
        cmocka_unit_test(every_key_that_is_shown_has_a_row),
        cmocka_unit_test(a_plan_goes_to_every_rank),
        cmocka_unit_test(a_plan_has_the_nodes_that_were_chosen),
        cmocka_unit_test(a_plan_can_be_replaced),
        cmocka_unit_test(how_it_ended_is_a_sentence),
        cmocka_unit_test(what_a_stage_says_of_its_memory_is_kept),
        cmocka_unit_test(a_reset_job_is_a_new_one),
        cmocka_unit_test(its_start_is_put_down_once),
    };
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
