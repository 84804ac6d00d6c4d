/* SPDX-License-Identifier: MIT
 *
 * A job that loses a stage process or a node: when it goes on, with whom and from where, what it
 * says meanwhile, and when it ends after all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/ringd/job/job_keep.h"
#include "tests/unit/daemon/ringd/job/training_world.h"

static void lose_stage(struct head *h, const struct job *job, unsigned rank)
{
    say(h, job, rank, "job-failed",
        json_pack("{s:s s:b}", "cause", "the stage process was killed", "lost", 1));
    if (job->state == JOB_STOPPING)
        all_say(h, job, "job-stopped");
}

/* Of the latest word to that node to stop: its copies are needed. */
static bool keeps_copies(const struct head *h, unsigned node)
{
    size_t i;
    json_t *m;
    bool keeps = false;
    json_array_foreach (h->sent, i, m)
        if (!strcmp(json_string_value(json_object_get(m, "kind")), "job-stop") &&
            json_integer_value(json_object_get(m, "to")) == (json_int_t)node)
            keeps = json_is_true(json_object_get(m, "keep"));
    return keeps;
}

static void find_node(struct head *h)
{
    members_self(h->members)->nended = 0;
    link_nodes(h, true);
    look(h);
}

static void a_lost_stage_is_begun_again_behind_what_was_saved(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    saved(h, job, 1);
    step(h, job, 2);
    lose_stage(h, job, 1);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
    assert_true(json_is_true(json_object_get(h->planned, "goes_on")));
    assert_non_null(json_object_get(h->planned, "init_adapter")); /* should that state be lost */
    const json_t *steps = json_object_get(json_object_get(h->planned, "said"), "step");
    assert_int_equal(json_integer_value(json_object_get(steps, "")), 2);
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
    say(h, job, 0, "job-done", json_object());
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_DONE);
}

/* A cable may be out for longer than handshakes may take. */
static void a_connection_that_comes_too_late_is_made_again(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_CONNECTING);
    json_t *spec = json_pack("{s:s s:s s:s}", "model", "/m", "data", "/d", "adapter_out", "/o");
    const struct job *job = submit_spec(h, JOB_TRAIN, spec);
    say_planned(h, job);
    say_ready(h, job);
    assert_int_equal(job->state, JOB_CONNECTING);
    wait_for(h, job, JOB_STOPPING);
    assert_string_equal(job->error, "node n0: no answer within 0.001 s while connecting to the next node");
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
}

/* Its node could not reach this one for too long, though this one could reach it in time. */
static void a_stage_that_ends_before_it_runs_is_begun_again(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    json_t *spec = json_pack("{s:s s:s s:s}", "model", "/m", "data", "/d", "adapter_out", "/o");
    const struct job *job = submit_spec(h, JOB_TRAIN, spec);
    say_planned(h, job);
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_STOPPING);
    assert_string_equal(job->error, "node n1: its stage process ended before the job did");
    say(h, job, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(job->attempt, 1);
}

static void without_a_save_it_begins_from_the_start(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "wait", 60);
    step(h, job, 1);
    lose_stage(h, job, 0);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_false(json_is_true(json_object_get(h->planned, "goes_on")));
    assert_non_null(json_object_get(h->planned, "init_adapter"));
}

static void begin_again(struct head *h, const struct job *job)
{
    assert_int_equal(job->state, JOB_PLANNING);
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
}

static void starve(struct head *h, const struct job *job, unsigned rank)
{
    say(h, job, rank, "job-failed", json_pack("{s:s s:b}", "cause", "memory ran out", "starved", 1));
    if (job->state == JOB_STOPPING)
        all_say(h, job, "job-stopped");
}

/* Also if the daemon is started again between: the record says so. */
static void memory_that_runs_out_is_saved_once(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    starve(h, job, 1);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_string_equal(json_string_value(json_object_get(h->planned, "recompute")), "layer");
    assert_string_equal(
        job->interruption.cause,
        "node n1: memory ran out; the job goes on and recomputes every layer, to save memory");
    json_t *life = job_keep_encode(job);
    assert_true(json_is_true(json_object_get(life, "spared")));
    json_decref(life);
    begin_again(h, job);
    step(h, job, 2);
    starve(h, job, 0);
    assert_int_equal(job->state, JOB_FAILED);
    assert_string_equal(job->error,
                        "node n0: memory ran out, though every layer was recomputed to save memory");
}

/* Its user has said how much is recomputed. */
static void memory_that_runs_out_ends_a_job_that_may_not_recompute(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    json_t *spec =
        json_pack("{s:s s:s s:s s:s}", "model", "/m", "data", "/d", "adapter_out", "/o", "recompute", "none");
    const struct job *job = submit_spec(h, JOB_TRAIN, spec);
    say_planned(h, job);
    starve(h, job, 1);
    assert_int_equal(job->state, JOB_FAILED);
    assert_string_equal(job->error, "node n1: memory ran out");
}

static void stop_ends_the_job(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "stop", 60);
    lose_stage(h, job, 1);
    assert_int_equal(job->state, JOB_FAILED);
    assert_string_equal(job->error, "node n1: the stage process was killed");
}

static void what_is_the_jobs_own_fault_ends_it(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    say(h, job, 1, "job-failed", json_pack("{s:s}", "cause", "its disk is full"));
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_FAILED);
}

static void a_step_that_ends_two_stages_ends_the_job(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    lose_stage(h, job, 1);
    begin_again(h, job);
    step(h, job, 2); /* that one went well */
    lose_stage(h, job, 0);
    begin_again(h, job);
    lose_stage(h, job, 1);
    assert_int_equal(job->state, JOB_FAILED);
    assert_string_equal(job->error, "node n1: the stage process was killed; step 3 ended the stage process "
                                    "of n0 before: it is the job itself");
}

/* A process of an attempt before is no second stage that the step ended. */
static void one_that_was_kept_is_not_blamed(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    lose_stage(h, job, 1);
    say_planned(h, job);
    say(h, job, 0, "job-failed",
        json_pack("{s:s s:b s:b}", "cause", "/m cannot be opened", "lost", 1, "kept", 1));
    all_say(h, job, "job-stopped");
    begin_again(h, job);
    assert_int_equal(job->state, JOB_RUNNING);
}

static void a_step_is_tried_four_times_on_one_node(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    for (unsigned i = 0; i < 3; i++) {
        lose_stage(h, job, 1);
        begin_again(h, job);
    }
    lose_stage(h, job, 1);
    assert_int_equal(job->state, JOB_FAILED);
    assert_non_null(strstr(job->error, "the job was interrupted 4 times in step 1"));
}

static void a_lost_node_is_waited_for(void **state)
{
    struct head *h = *state;
    char text[768];
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "wait", 0);
    step(h, job, 1);
    lose_node(h, job);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    job_waits_for(job, text, sizeof text);
    assert_non_null(strstr(text, "after step 1: node n1 is gone"));
    assert_non_null(strstr(text, "; it waits for n1"));
    find_node(h);
    assert_int_equal(job->state, JOB_PLANNING);
}

static void without_it_the_job_goes_on_after_a_while(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 0);
    h->plan_nodes = 1;
    lose_node(h, job);
    wait_for(h, job, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
}

static void nodes_that_are_too_few_wait_for_the_others(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 0);
    h->plan_nodes = 1;
    lose_node(h, job);
    wait_for(h, job, JOB_PLANNING);
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "node n0 cannot hold its share"));
    say(h, job, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_INTERRUPTED);
    assert_non_null(strstr(job->error, "on 1 node: node n0 cannot hold its share; it waits for n1"));
    look(h); /* nothing is new */
    assert_int_equal(job->state, JOB_INTERRUPTED);
    h->plan_nodes = RANKS;
    find_node(h);
    assert_int_equal(job->state, JOB_PLANNING);
}

static void learn_drained(struct head *h, const char *reason, bool is_linked)
{
    struct member other = make(1, 1, ++h->seq);
    if (is_linked)
        link_to(&other, 0);
    snprintf(other.drained, sizeof other.drained, "%s", reason);
    assert_int_equal(learn(h->members, &other, h->seq), 1);
    look(h);
}

static void say_drained(struct head *h, const char *reason)
{
    learn_drained(h, reason, true);
}

/* Its daemon says goodbye. */
static void end_drained(struct head *h, const char *reason)
{
    struct member *self = members_self(h->members);
    self->ended[0][0] = 2;
    self->nended = 1;
    learn_drained(h, reason, false);
}

/* Of rank 0 when it has stopped after that step, as it was asked to. */
static void leave(struct head *h, const struct job *job)
{
    assert_int_equal(told(h, 0, "job-leave"), 1);
    all_say(h, job, "job-left");
    all_say(h, job, "job-stopped");
}

/* One of them is drained: nobody waits for it by name, and the others cannot hold the job. */
static void nodes_that_are_too_few_are_tried_once(void **state)
{
    struct head *h = *state;
    char text[768];
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    h->plan_nodes = 1;
    say_drained(h, "a new disk");
    leave(h, job);
    look(h);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "node n0 cannot hold its share"));
    say(h, job, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_INTERRUPTED);
    assert_int_equal(h->plans, 2);
    job_waits_for(job, text, sizeof text);
    assert_non_null(strstr(text, "on 1 node: node n0 cannot hold its share; it waits for more nodes"));
    h->plan_nodes = RANKS;
    say_drained(h, "");
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(h->plans, 3);
}

/* Its daemon ends as soon as its stage has, before rank 0 has said that the job left. */
static void a_drained_node_that_is_quick_to_go_is_not_lost(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "stop", 60);
    step(h, job, 1);
    h->plan_nodes = 1;
    say_drained(h, "its ringd is being ended");
    assert_int_equal(told(h, 0, "job-leave"), 1);
    say(h, job, 1, "job-stopped", json_object());
    end_drained(h, "its ringd is being ended");
    assert_int_equal(job->state, JOB_RUNNING);
    say(h, job, 0, "job-left", json_object());
    say(h, job, 0, "job-stopped", json_object());
    wait_for(h, job, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
}

/* It stops after a step, lets others begin, and goes on behind that step when its user says so. */
static void a_paused_job_goes_on_when_it_is_continued(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "stop", 60), *next = submit_training(h);
    step(h, job, 1);
    assert_int_equal(coord_continue(h->coord, job->id), -EALREADY);
    assert_int_equal(coord_pause(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_RUNNING);
    step(h, job, 2);
    saved(h, job, 2);
    leave(h, job);
    assert_int_equal(job->state, JOB_PAUSED);
    assert_non_null(strstr(job->error, "paused after step 2"));
    assert_int_equal(coord_pause(h->coord, job->id), -EALREADY);
    assert_int_equal(next->state, JOB_PLANNING);
    assert_int_equal(coord_continue(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_int_equal(coord_cancel(h->coord, next->id), 0);
    say(h, next, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_PLANNING);
    assert_true(json_is_true(json_object_get(h->planned, "goes_on")));
}

/* One that waits leaves the queue at once; only a job that trains can be paused. */
static void a_queued_job_is_paused_at_once(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *first = job_in(h, JOB_RUNNING), *trains = submit_training(h), *job = submit_training(h);
    assert_int_equal(coord_pause(h->coord, first->id), -EINVAL);
    assert_int_equal(trains->state, JOB_PLANNING);
    assert_int_equal(coord_pause(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_PAUSED);
    assert_int_equal(coord_pause(h->coord, 99), -ENOENT);
    assert_int_equal(coord_cancel(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_CANCELLED);
    assert_int_equal(coord_continue(h->coord, job->id), -EALREADY);
}

/* It lost a node while too few of them were planned for, and the same few cannot hold it again. */
static void a_job_that_once_fitted_waits(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 0);
    h->plan_nodes = 1;
    lose_node(h, job);
    wait_for(h, job, JOB_PLANNING);
    say(h, job, 0, "job-failed", json_pack("{s:s s:b}", "cause", "the stage process was killed", "lost", 1));
    say(h, job, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_PLANNING);
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "node n0 cannot hold its share"));
    say(h, job, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_INTERRUPTED);
    h->plan_nodes = RANKS;
    find_node(h);
    assert_int_equal(job->state, JOB_PLANNING);
}

/* What was on its way from the attempt before is of no stage that there is now. */
static void words_of_the_attempt_before_count_no_more(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    lose_stage(h, job, 1);
    begin_again(h, job);
    const uint8_t other[16] = {2};
    json_t *late =
        json_pack("{s:s s:I s:i s:i s:s s:b}", "kind", "job-failed", "job", (json_int_t)job->id, "attempt",
                  (int)job->attempt - 1, "rank", 1, "cause", "its disk is full", "lost", 0);
    receive(h, other, late);
    json_decref(late);
    assert_int_equal(job->state, JOB_RUNNING);
}

/* Whoever stops an attempt says whether the job goes on, or a node throws its copies away. */
static void copies_are_kept_until_the_job_ends(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "wait", 60);
    step(h, job, 1);
    const json_int_t attempt = job->attempt;
    lose_node(h, job);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    find_node(h);
    assert_int_equal(job->state, JOB_PLANNING);
    json_t *late = json_pack("{s:I s:I s:i}", "job", (json_int_t)job->id, "attempt", attempt, "rank", 1);
    coord_send_away(h->coord, members_at(h->members, 1)->id, late);
    json_decref(late);
    assert_true(keeps_copies(h, 1));
    say_planned(h, job);
    say(h, job, 1, "job-failed", json_pack("{s:s s:b}", "cause", "busy with job 3 of n7", "busy", 1));
    assert_true(keeps_copies(h, 1));
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_QUEUED);
    wait_for(h, job, JOB_PLANNING);
    say_planned(h, job);
    assert_int_equal(coord_cancel(h->coord, job->id), 0);
    assert_false(keeps_copies(h, 1));
}

static void an_interrupted_job_can_be_cancelled(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "wait", 0);
    lose_node(h, job);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    unsigned before[RANKS];
    for (unsigned r = 0; r < RANKS; r++)
        before[r] = told(h, r, "job-stop");
    assert_int_equal(coord_cancel(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_CANCELLED);
    for (unsigned r = 0; r < RANKS; r++) /* they may keep a stage process for it */
        assert_true(told(h, r, "job-stop") > before[r]);
}

#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEAD(a_lost_stage_is_begun_again_behind_what_was_saved),
        WITH_HEAD(without_a_save_it_begins_from_the_start),
        WITH_HEAD(a_connection_that_comes_too_late_is_made_again),
        WITH_HEAD(a_stage_that_ends_before_it_runs_is_begun_again),
        WITH_HEAD(memory_that_runs_out_is_saved_once),
        WITH_HEAD(memory_that_runs_out_ends_a_job_that_may_not_recompute),
        WITH_HEAD(stop_ends_the_job),
        WITH_HEAD(what_is_the_jobs_own_fault_ends_it),
        WITH_HEAD(a_step_that_ends_two_stages_ends_the_job),
        WITH_HEAD(one_that_was_kept_is_not_blamed),
        WITH_HEAD(a_step_is_tried_four_times_on_one_node),
        WITH_HEAD(a_lost_node_is_waited_for),
        WITH_HEAD(without_it_the_job_goes_on_after_a_while),
        WITH_HEAD(nodes_that_are_too_few_wait_for_the_others),
        WITH_HEAD(nodes_that_are_too_few_are_tried_once),
        WITH_HEAD(a_job_that_once_fitted_waits),
        WITH_HEAD(a_drained_node_that_is_quick_to_go_is_not_lost),
        WITH_HEAD(a_paused_job_goes_on_when_it_is_continued),
        WITH_HEAD(a_queued_job_is_paused_at_once),
        WITH_HEAD(words_of_the_attempt_before_count_no_more),
        WITH_HEAD(copies_are_kept_until_the_job_ends),
        WITH_HEAD(an_interrupted_job_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
