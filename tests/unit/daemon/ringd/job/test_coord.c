/* SPDX-License-Identifier: MIT
 *
 * A head and its jobs, with two nodes made up: what it tells them, what it makes of their words,
 * and what happens when they say nothing. Deadlines are of a millisecond, or never come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/daemon/ringd/job/head_world.h"

static void a_job_goes_through_its_states(void **state)
{
    struct head *h = *state;
    char text[200];
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = submit(h);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(h->plans, 1);
    say_planned(h, job);
    assert_int_equal(job->state, JOB_OPENING);
    assert_int_equal(told(h, 0, "job-open"), 1);
    assert_int_equal(told(h, 1, "job-open"), 1);
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "node n0 is opening its layers, and 1 more node is");
    say_ready(h, job);
    assert_int_equal(job->state, JOB_CONNECTING);
    assert_int_equal(told(h, 1, "job-connect"), 1);
    all_say(h, job, "job-connected");
    assert_int_equal(job->state, JOB_RUNNING);
    assert_int_equal(told(h, 1, "job-run"), 1);
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "");
    say(h, job, 0, "job-done", json_pack("{s:{s:s}}", "result", "text", "b"));
    assert_int_equal(job->state, JOB_STOPPING);
    say(h, job, 0, "job-stopped", json_object());
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "node n1 is ending its stage process");
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_DONE);
    assert_int_equal(told(h, 1, "job-stop"), 0);
    assert_string_equal(json_string_value(json_object_get(job->result, "text")), "b");
    assert_int_equal(h->events_of[1], 1);
    assert_int_equal(metrics_counts(h->metrics)->ended[0], 1);
}

static json_t *coming(unsigned done)
{
    return json_pack("{s:{s:s s:s s:s s:i s:i s:f}}", "event", "ev", "coming", "model",
                     "org/name@0123456789abcdef0123456789abcdef01234567", "from", "node n0", "done", done,
                     "total", 1000, "rate", 100.0);
}

static void weights_that_are_on_their_way_are_waited_for(void **state)
{
    struct head *h = *state;
    char text[200];
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-event", coming(310));
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "org/name: its weights come from node n0 to node n1: 31 %, 7 s left");
    say(h, job, 1, "job-event", coming(5000)); /* more than there is */
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "org/name: its weights come from node n0 to node n1: 100 %");
    say_ready(h, job);
    assert_int_equal(job->state, JOB_CONNECTING);
    job_waits_for(job, text, sizeof text);
    assert_string_equal(text, "node n0 is connecting to the next node, and 1 more node is");
}

/* Each way has two ends, which need not be neighbours: nodes that share a stage are none. */
static void a_relayed_way_has_its_two_ends(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-relayed", json_pack("{s:i s:s}", "to", 0, "through", "b"));
    say(h, job, 0, "job-relayed", json_pack("{s:i s:s}", "to", 1, "through", "c"));
    say(h, job, 0, "job-relayed", json_pack("{s:i s:s}", "to", 31, "through", "no rank"));
    assert_string_equal(job->through[1][0], "b");
    assert_string_equal(job->through[0][1], "c");
    say(h, job, 1, "job-relayed", json_pack("{s:i s:s}", "to", 0, "through", ""));
    assert_null(job->through[1][0]);
    json_t *all = job_encode(job), *ways = json_object_get(all, "relayed");
    assert_int_equal(json_array_size(ways), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(ways, 0), "to")), "n1");
    json_decref(all);
}

/* A plan of a stage of another version, of another job or of other nodes is not handed round. */
static void a_plan_that_does_not_fit_ends_the_job(void **state)
{
    struct head *h = *state;
    struct job_plan lame = small_plan(JOB_GENERATE, RANKS), long_one = small_plan(JOB_GENERATE, RANKS + 1),
                    other = small_plan(JOB_SCORE, RANKS);
    lame.tokens = 0;
    const struct {
        const struct job_plan *plan;
        const char *text;
    } bad[] = {{&lame, "(\"tokens\" must be a whole number of at least 1, and is 0)"},
               {&long_one, "the plan is for 3 nodes, and was given 2"},
               {&other, "the job is to generate, and the plan is one to score"}};
    open_coord(h, 0, JOB_QUEUED);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct job *job = submit(h);
        say(h, job, 0, "job-planned", small_plan_told(bad[i].plan, 5));
        assert_int_equal(job->state, JOB_STOPPING);
        assert_non_null(strstr(job->error, "node n0: its stage process made a plan that ringd cannot use: "));
        assert_non_null(strstr(job->error, bad[i].text));
        assert_int_equal(told(h, 1, "job-open"), 0);
        say(h, job, 0, "job-stopped", json_object());
        assert_int_equal(job->state, JOB_FAILED);
    }
}

static void what_is_no_job_is_refused(void **state)
{
    struct head *h = *state;
    struct err err;
    uint64_t id;
    open_coord(h, 0, JOB_QUEUED);
    json_t *plan_only = json_pack("{s:s s:s s:b}", "model", "/m", "prompt", "a", "dry_run", 1);
    assert_int_equal(coord_submit(h->coord, JOB_GENERATE, plan_only, NULL, &id, &err), -EINVAL);
    assert_non_null(strstr(err.text, "POST /v1/plan"));
    json_t *untyped = json_pack("{s:s s:s s:s}", "model", "/m", "prompt", "a", "max_tokens", "many");
    assert_int_equal(coord_submit(h->coord, JOB_GENERATE, untyped, NULL, &id, &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"max_tokens\" must be a whole number"));
    assert_int_equal(coord_submit(h->coord, JOB_TRAIN, json_object(), NULL, &id, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--model DIR is needed"));
    assert_null(coord_first(h->coord));
    assert_int_equal(h->events_of[0], 0);
    assert_int_equal(coord_cancel(h->coord, 77), -ENOENT);
}

static void a_queued_job_can_be_cancelled(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *first = submit_training(h), *second = submit_training(h), *third = submit_training(h);
    assert_int_equal(second->state, JOB_QUEUED);
    assert_string_equal(second->error, "job 1 trains, and one job trains at a time");
    assert_string_equal(third->error, "there are jobs before it");
    assert_int_equal(coord_cancel(h->coord, second->id), 0);
    assert_int_equal(second->state, JOB_CANCELLED);
    assert_string_equal(second->error, "it had not started yet");
    assert_int_equal(coord_cancel(h->coord, second->id), -EALREADY);
    assert_int_equal(first->state, JOB_PLANNING);
    assert_int_equal(h->plans, 1);
}

static void a_running_job_can_be_cancelled(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = submit_training(h), *next = submit_training(h);
    say_planned(h, job);
    assert_int_equal(coord_cancel(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_STOPPING);
    assert_int_equal(told(h, 0, "job-stop"), 1);
    assert_int_equal(told(h, 1, "job-stop"), 1);
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_CANCELLED);
    assert_int_equal(next->state, JOB_PLANNING); /* its turn */
}

static void the_first_failure_is_the_cause(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-failed", json_pack("{s:s}", "cause", "its disk is full"));
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "the next rank is gone"));
    assert_int_equal(job->state, JOB_STOPPING);
    assert_int_equal(told(h, 1, "job-stop"), 1);
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_FAILED);
    assert_string_equal(job->error, "node n1: its disk is full");
    assert_int_equal(coord_cancel(h->coord, job->id), -EALREADY);
}

static void a_state_hears_what_belongs_to_it(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say_planned(h, job);
    all_say(h, job, "job-connected");
    say(h, job, 0, "job-done", json_object());
    assert_int_equal(job->state, JOB_OPENING);
    say_ready(h, job);
    say(h, job, 1, "job-done", json_object()); /* rank 0's to say */
    assert_int_equal(job->state, JOB_CONNECTING);
}

static void other_layers_than_planned_end_it(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-ready", json_pack("{s:[[i,i]]}", "layers", 0, 2));
    assert_int_equal(job->state, JOB_STOPPING);
    assert_string_equal(job->error, "node n1 opened other layers than planned: 0 where 1 was due");
}

/* A stage that reports a job that is over is told to end. */
static void a_late_stage_is_sent_away(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_STOPPING);
    all_say(h, job, "job-stopped");
    const unsigned before = told(h, 1, "job-stop");
    say(h, job, 1, "job-ready", json_pack("{s:[[i,i]]}", "layers", 0, 1));
    assert_int_equal(told(h, 1, "job-stop"), before + 1);
    say(h, job, 1, "job-event", json_pack("{s:{}}", "event"));
    assert_int_equal(told(h, 1, "job-stop"), before + 1);
}

/* Two heads reached for the same nodes: both let go, and try again. */
/* It has begun once more meanwhile; a lease that is kept refuses all other jobs. */
static void a_rank_that_missed_the_stop_is_told_again(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    assert_int_equal(coord_cancel(h->coord, job->id), 0);
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(told(h, 1, "job-stop"), 1);
    say(h, job, 1, "job-ready", json_pack("{s:[[i,i]]}", "layers", 1, 2));
    assert_int_equal(told(h, 1, "job-stop"), 2);
    say(h, job, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_STOPPING);
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_CANCELLED);
}

static void a_collision_is_tried_again(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_OPENING);
    say(h, job, 1, "job-failed", json_pack("{s:s s:b}", "cause", "busy with job 3 of n7", "busy", 1));
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_QUEUED);
    assert_string_equal(job->error, "busy with job 3 of n7");
    assert_true(job->spec_bytes > 0); /* what its spec takes is given back in the end */
    wait_for(h, job, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
    assert_int_equal(h->events_of[1], 0);
}

/* A head's own job is one whose earlier attempt has not ended everywhere. */
static void a_job_says_which_node_it_waits_for(void **state)
{
    struct head *h = *state;
    struct member other = make(1, 1, ++h->seq);
    open_coord(h, 0, JOB_QUEUED);
    link_to(&other, 0);
    other.nstages = 1;
    other.stages[0] = (struct member_stage){.job = 3, .head = {2}, .class = JOB_CLASS_TRAIN};
    assert_int_equal(learn(h->members, &other, h->seq), 1);
    const struct job *job = submit_training(h);
    assert_string_equal(job->error, "node n1 is busy with job 3");
    other.stages[0].head[0] = 1;
    other.seq = ++h->seq;
    assert_int_equal(learn(h->members, &other, h->seq), 1);
    coord_changed(h->coord);
    assert_string_equal(job->error, "node n1 has not yet ended its stage of job 3");
    assert_int_equal(job->state, JOB_QUEUED);
    assert_int_equal(submit(h)->state, JOB_PLANNING); /* what does not train goes beside it */
    other.nstages = MEMBER_STAGES;
    for (size_t i = 0; i < MEMBER_STAGES; i++)
        other.stages[i] = (struct member_stage){.job = 3 + i, .head = {2}};
    other.seq = ++h->seq;
    assert_int_equal(learn(h->members, &other, h->seq), 1);
    assert_string_equal(submit(h)->error, "node n1 holds 8 stages, as many as it can");
}

/* The plan shares the layers out again if the other node has more. */
static void a_job_waits_for_memory_of_other_nodes(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    hold_memory(h, 3);
    members_self(h->members)->stages[1] =
        (struct member_stage){.job = 4, .head = {2}, .class = JOB_CLASS_TRAIN, .bytes = 1};
    members_self(h->members)->nstages = 2;
    const struct job *job = submit(h);
    say(h, job, 0, "job-failed",
        json_pack("{s:s s:i s:s}", "cause", "too little", "lacks", 1 << 30, "at",
                  "02000000000000000000000000000000"));
    say(h, job, 0, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_QUEUED);
    assert_string_equal(job->error,
                        "node n1 lacks 1.0 GiB of memory, and jobs 3, 4 hold some of other nodes");
    assert_int_equal(told(h, 1, "job-wanted"), 1);
    job = submit_training(h);
    assert_int_equal(job->state, JOB_QUEUED);
}

/* Each hears its own words, whoever else there is. */
static void jobs_live_side_by_side(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *trains = submit_training(h), *first = job_in(h, JOB_RUNNING),
                     *second = job_in(h, JOB_OPENING);
    assert_int_equal(trains->state, JOB_PLANNING);
    say_planned(h, trains);
    assert_int_equal(coord_cancel(h->coord, second->id), 0);
    all_say(h, second, "job-stopped");
    assert_int_equal(second->state, JOB_CANCELLED);
    assert_int_equal(first->state, JOB_RUNNING);
    say(h, first, 0, "job-done", json_object());
    all_say(h, first, "job-stopped");
    assert_int_equal(first->state, JOB_DONE);
    assert_int_equal(trains->state, JOB_OPENING);
    for (size_t i = 0; i < MEMBER_STAGES; i++)
        first = submit(h);
    assert_int_equal(first->state, JOB_QUEUED);
    assert_string_equal(first->error, "there are jobs before it");
}

/* What others hold would not be enough. */
static void a_job_that_never_fits_beside_others_fails(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    hold_memory(h, 3);
    members_self(h->members)->stages[0].bytes = 1 << 20;
    const struct job *job = submit(h);
    say_lacks(h, job);
    assert_int_equal(job->state, JOB_FAILED);
    assert_non_null(strstr(job->error, "too little"));
}

static void a_job_waits_for_memory(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    hold_memory(h, 3);
    const struct job *job = submit(h);
    say_lacks(h, job);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_string_equal(job->error, "node n0 lacks 1.0 GiB of memory, which job 3 holds");
    const struct job *next = submit(h), *trains = submit_training(h);
    assert_string_equal(next->error, "there are jobs before it");
    assert_string_equal(trains->error, "there are jobs before it");
    coord_changed(h->coord);
    assert_int_equal(h->plans, 1); /* nothing has changed */
    members_self(h->members)->memory_available += UINT64_C(1) << 30;
    coord_changed(h->coord);
    assert_int_equal(job->state, JOB_PLANNING);
    say_lacks(h, job);
    assert_int_equal(job->state, JOB_QUEUED);
    hold_memory(h, 0);
    coord_changed(h->coord);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(next->state, JOB_PLANNING);
    assert_int_equal(trains->state, JOB_PLANNING);
    say_lacks(h, job); /* nobody holds any */
    assert_int_equal(job->state, JOB_FAILED);
    assert_string_equal(job->error, "node n0: too little");
}

static void every_wait_has_a_deadline(void **state)
{
    struct head *h = *state;
    static const struct {
        enum job_state state;
        const char *error;
    } waits[] = {{JOB_PLANNING, "node n0: no answer within 0.001 s while reading model and data"},
                 {JOB_OPENING, "node n0: no answer within 0.001 s while opening its layers"},
                 {JOB_CONNECTING, "node n0: no answer within 0.001 s while connecting to the next node"}};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        open_coord(h, 0, waits[i].state);
        const struct job *job = job_in(h, waits[i].state);
        wait_for(h, job, JOB_STOPPING);
        assert_string_equal(job->error, waits[i].error);
        coord_free(h->coord);
    }
    h->coord = NULL;
}

/* The stages of a job are told to end, and after a while not waited for. */
static void nobody_holds_up_the_end(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_STOPPING);
    const struct job *job = job_in(h, JOB_STOPPING);
    const unsigned before = told(h, 1, "job-stop");
    wait_for(h, job, JOB_FAILED);
    assert_string_equal(job->error, "node n0: its disk is full");
    assert_int_equal(told(h, 1, "job-stop"), before + 1);
}

/* While a job runs, heartbeats watch it; once a stage is gone, rank 0 has a moment to say why. */
static void a_stage_that_ends_early_interrupts_the_job(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_STOPPING);
    const struct job *job = job_in(h, JOB_RUNNING);
    say(h, job, 1, "job-stopped", json_object());
    assert_int_equal(job->state, JOB_RUNNING);
    wait_for(h, job, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
    assert_string_equal(job->interruption.cause, "node n1: its stage process ended before the job did");
}

static void a_job_without_a_ring_waits_for_a_while(void **state)
{
    struct head *h = *state;
    open_coord(h, 1, JOB_QUEUED);
    struct member *self = members_self(h->members);
    link_to(self, 2); /* a third node that answers neither of the two */
    struct member third = make(2, 1, 1);
    link_to(&third, 0);
    assert_int_equal(learn(h->members, &third, 1), 1);
    const struct job *job = submit(h);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_true(*job->error);
    wait_for(h, job, JOB_FAILED);
    assert_non_null(strstr(job->error, "no ring after 0.001 s"));
    assert_int_equal(h->plans, 0);
}

/* What a node may have missed while it was out of reach is said again. */
static void a_node_that_is_back_is_told_again(void **state)
{
    struct head *h = *state;
    static const struct {
        enum job_state state;
        const char *kind;
    } again[] = {{JOB_OPENING, "job-open"}, {JOB_CONNECTING, "job-connect"}, {JOB_RUNNING, "job-run"}};
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        open_coord(h, 0, JOB_QUEUED);
        const struct job *job = job_in(h, again[i].state);
        const unsigned before = told(h, 1, again[i].kind);
        link_nodes(h, false);
        coord_changed(h->coord);
        assert_int_equal(told(h, 1, again[i].kind), before);
        link_nodes(h, true);
        coord_changed(h->coord);
        assert_int_equal(told(h, 1, again[i].kind), before + 1);
        coord_cancel(h->coord, job->id);
        all_say(h, job, "job-stopped");
        coord_free(h->coord);
    }
    h->coord = NULL;
}

int main(void)
{
#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_HEAD(a_job_goes_through_its_states),
        WITH_HEAD(weights_that_are_on_their_way_are_waited_for),
        WITH_HEAD(a_relayed_way_has_its_two_ends),
        WITH_HEAD(a_plan_that_does_not_fit_ends_the_job),
        WITH_HEAD(what_is_no_job_is_refused),
        WITH_HEAD(a_queued_job_can_be_cancelled),
        WITH_HEAD(a_running_job_can_be_cancelled),
        WITH_HEAD(the_first_failure_is_the_cause),
        WITH_HEAD(a_state_hears_what_belongs_to_it),
        WITH_HEAD(other_layers_than_planned_end_it),
        WITH_HEAD(a_late_stage_is_sent_away),
        WITH_HEAD(a_rank_that_missed_the_stop_is_told_again),
        WITH_HEAD(a_collision_is_tried_again),
        WITH_HEAD(a_job_says_which_node_it_waits_for),
        WITH_HEAD(jobs_live_side_by_side),
        WITH_HEAD(a_job_that_never_fits_beside_others_fails),
        WITH_HEAD(a_job_waits_for_memory),
        WITH_HEAD(a_job_waits_for_memory_of_other_nodes),
        WITH_HEAD(every_wait_has_a_deadline),
        WITH_HEAD(nobody_holds_up_the_end),
        WITH_HEAD(a_stage_that_ends_early_interrupts_the_job),
        WITH_HEAD(a_job_without_a_ring_waits_for_a_while),
        WITH_HEAD(a_node_that_is_back_is_told_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
