/* SPDX-License-Identifier: MIT
 *
 * A head whose daemon is started again: which of its jobs go on, from where and with whom, which
 * are closed, and what the store keeps for that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/ringd/job/survive/token_log.h"
#include "tests/unit/daemon/ringd/job/training_world.h"

/* As the store has it, which a job that is closed is left to. */
static json_t *record_of(struct head *h, uint64_t id)
{
    char *text = NULL;
    store_get_job(h->store, id, take_text, &text);
    while (!text)
        event_base_loop(h->base, EVLOOP_ONCE);
    json_t *record = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(record);
    return record;
}

static void assert_closed(struct head *h, uint64_t id, const char *state, const char *error)
{
    json_t *record = record_of(h, id);
    assert_null(coord_find(h->coord, id));
    assert_string_equal(json_string_value(json_object_get(record, "state")), state);
    if (error)
        assert_non_null(strstr(json_string_value(json_object_get(record, "error")), error));
    json_decref(record);
}

static void a_running_job_goes_on_behind_what_was_saved(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    saved(h, job, 1);
    step(h, job, 2);
    const uint32_t attempt = job->attempt;
    job = reopen(h, job);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    assert_true(job->attempt > attempt + 100); /* that life may have begun some that never reached the disk */
    assert_int_equal(job->step, 2);
    assert_int_equal(job->steps, 5);
    assert_int_equal(job->tokens, 16);
    assert_int_equal(h->plans, 1); /* nothing is looked at before the node is open */
    look(h);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(h->plans, 2);
    assert_true(json_is_true(json_object_get(h->planned, "goes_on")));
    assert_int_equal(json_integer_value(json_object_get(h->planned, "log_from")), 100);
    const json_t *steps = json_object_get(json_object_get(h->planned, "said"), "step");
    assert_int_equal(json_integer_value(json_object_get(steps, "")), 2);
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
    say(h, job, 0, "job-done", json_object());
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_DONE);
    assert_null(reopen(h, job));
}

static void without_a_save_it_begins_from_the_start(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = reopen(h, train(h, "wait", 60));
    look(h);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_false(json_is_true(json_object_get(h->planned, "goes_on")));
    assert_true(json_is_null(json_object_get(h->planned, "said")));
}

static void its_nodes_are_waited_for(void **state)
{
    struct head *h = *state;
    char text[768];
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    link_nodes(h, false);
    job = reopen(h, job);
    look(h);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    job_waits_for(job, text, sizeof text);
    assert_non_null(
        strstr(text, "after step 1: node n0: its ringd was started again; it waits for n1 until"));
    link_nodes(h, true);
    look(h);
    assert_int_equal(job->state, JOB_PLANNING);
}

static void who_was_waited_for_still_is(void **state)
{
    struct head *h = *state;
    char text[768];
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    lose_node(h, job);
    const int64_t until = job->interruption.until;
    job = reopen(h, job);
    look(h);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    assert_int_equal(job->interruption.until, until);
    assert_int_equal(job->interruption.count, 1);
    job_waits_for(job, text, sizeof text);
    assert_non_null(strstr(text, "node n1 is gone"));
}

static void a_step_that_ends_the_daemon_ends_the_job(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    const uint64_t id = job->id;
    for (unsigned i = 0; i < 3; i++) {
        job = reopen(h, job);
        look(h);
        assert_int_equal(job->state, JOB_PLANNING);
    }
    reopen(h, job);
    assert_closed(h, id, "failed", "the job was interrupted 4 times in step 1");
}

static void what_is_to_stop_and_a_conversation_is_closed(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "stop", 60);
    uint64_t id = job->id;
    reopen(h, job);
    assert_closed(h, id, "failed", "the daemon ended while the job was unfinished");
    job = submit_spec(h, JOB_GENERATE,
                      json_pack("{s:s s:[{s:s s:s}] s:i}", "model", "/m", "messages", "role", "user",
                                "content", "a", "keep_alive", 60));
    id = job->id;
    reopen(h, job);
    assert_closed(h, id, "failed", "the daemon ended while the job was unfinished");
}

static void token(struct head *h, const struct job *job, int id, bool is_again)
{
    json_t *event = json_pack("{s:s s:i s:s}", "ev", "token", "id", id, "text", "a");
    if (is_again)
        json_object_set_new(event, "again", json_true());
    say(h, job, 0, "job-event", json_pack("{s:o}", "event", event));
}

static const json_t *answer_of(const struct head *h)
{
    const json_t *turns = json_object_get(json_object_get(h->planned, "so_far"), "turns");
    return json_object_get(json_array_get(turns, 0), "answer");
}

/* The disk has whole parts of it; the tokens behind them are generated again. Those before are
 * said again, for who follows the job now, and count once. */
static void a_generation_goes_on_behind_what_the_disk_has(void **state)
{
    enum { MADE = 2 * TOKEN_LOG_PART + 5, KEPT = 2 * TOKEN_LOG_PART };
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = job_in(h, JOB_RUNNING);
    const uint64_t id = job->id;
    say(h, job, 0, "job-event",
        json_pack("{s:{s:s s:i s:i s:[i,i]}}", "event", "ev", "prompt", "kept", 0, "seed", 9, "ids", 7, 8));
    for (int i = 0; i < MADE; i++)
        token(h, job, i, false);
    job = reopen(h, job);
    assert_int_equal(job->tokens, KEPT);
    look(h);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(json_array_size(answer_of(h)), KEPT);
    for (int i = 0; i < KEPT; i++)
        assert_int_equal(json_integer_value(json_array_get(answer_of(h), (size_t)i)), i);
    assert_true(json_is_true(json_object_get(json_object_get(h->planned, "so_far"), "again")));
    run(h, job);
    token(h, job, 0, true);
    assert_int_equal(job->tokens, KEPT);
    token(h, job, KEPT, false);
    assert_int_equal(job->tokens, KEPT + 1);
    say(h, job, 0, "job-done", json_object());
    all_say(h, job, "job-stopped");
    assert_null(reopen(h, job));
    assert_closed(h, id, "done", NULL);
}

static void a_paused_job_stays_paused(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    saved(h, job, 1);
    assert_int_equal(coord_pause(h->coord, job->id), 0);
    all_say(h, job, "job-left");
    all_say(h, job, "job-stopped");
    job = reopen(h, job);
    assert_non_null(job);
    assert_int_equal(job->state, JOB_PAUSED);
    look(h);
    assert_int_equal(job->state, JOB_PAUSED);
    assert_int_equal(coord_continue(h->coord, job->id), 0);
    look(h);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_true(json_is_true(json_object_get(h->planned, "goes_on")));
}

static void a_job_that_was_ending_has_ended(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    uint64_t id = job->id;
    assert_int_equal(coord_cancel(h->coord, id), 0);
    assert_int_equal(job->state, JOB_STOPPING);
    reopen(h, job);
    assert_closed(h, id, "cancelled", NULL);
    job = train(h, "shrink", 60);
    id = job->id;
    say(h, job, 0, "job-done", json_pack("{s:{s:i}}", "result", "steps", 5));
    assert_int_equal(job->state, JOB_STOPPING);
    reopen(h, job);
    assert_closed(h, id, "done", NULL);
}

static void queued_jobs_keep_their_order(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *first = train(h, "shrink", 60), *second = submit_training(h),
                     *third = submit_training(h);
    const uint64_t ids[] = {second->id, third->id};
    first = reopen(h, first);
    second = coord_find(h->coord, ids[0]);
    third = coord_find(h->coord, ids[1]);
    assert_int_equal(second->state, JOB_QUEUED);
    assert_int_equal(coord_cancel(h->coord, first->id), 0);
    assert_int_equal(second->state, JOB_PLANNING);
    assert_int_equal(third->state, JOB_QUEUED);
}

/* Its tokens are kept from now on, as if it had been submitted to this life of the daemon. */
static void a_queued_job_that_generates_outlives_a_loss(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    hold_memory(h, 3);
    const struct job *job = submit(h);
    say_lacks(h, job);
    assert_int_equal(job->state, JOB_QUEUED);
    job = reopen(h, job);
    look(h);
    assert_int_equal(job->state, JOB_PLANNING);
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
    say(h, job, 0, "job-event",
        json_pack("{s:{s:s s:i s:i s:[i]}}", "event", "ev", "prompt", "kept", 0, "seed", 1, "ids", 7));
    say(h, job, 0, "job-event", json_pack("{s:{s:s s:i s:s}}", "event", "ev", "token", "id", 8, "text", "a"));
    say(h, job, 1, "job-failed", json_pack("{s:s s:b}", "cause", "the stage process was killed", "lost", 1));
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(json_array_size(json_object_get(json_object_get(h->planned, "so_far"), "turns")), 1);
}

static void a_record_that_cannot_be_read_is_closed(void **state)
{
    struct head *h = *state;
    static const char *const lives[] = {NULL, "{}", "{\"state\":\"RUNNING\",\"attempt\":0,\"nodes\":[[1]]}",
                                        "{\"state\":\"DONE\",\"attempt\":0}", "[]"};
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        const uint64_t id = store_next_job(h->store);
        char record[200];
        snprintf(record, sizeof record,
                 "{\"id\":%d,\"type\":\"score\",\"spec\":{\"model\":\"/m\",\"text\":\"a\"}}", (int)id);
        store_put_job(h->store, id, "running", record, lives[i]);
        coord_free(h->coord);
        open_coord(h, 0, JOB_QUEUED);
        assert_closed(h, id, "failed", "and cannot go on with it: what is kept of it");
    }
}

/* The stage waits for the disk before it saves; the answer names the question. */
static void what_was_said_is_on_the_disk_before_a_save(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    say(h, job, 1, "job-event", json_pack("{s:{s:s s:i}}", "event", "ev", "commit", "number", 6));
    say(h, job, 0, "job-event", json_pack("{s:{s:s s:i}}", "event", "ev", "commit", "number", 7));
    assert_int_equal(told(h, 0, "job-turn"), 0);
    while (!told(h, 0, "job-turn") && !h->is_stuck)
        event_base_loop(h->base, EVLOOP_ONCE);
    const json_t *turn = json_object_get(json_array_get(h->sent, json_array_size(h->sent) - 1), "turn");
    assert_int_equal(json_integer_value(json_object_get(turn, "committed")), 7);
    char *unfinished = store_unfinished(h->store);
    assert_non_null(strstr(unfinished, "\"said\":[[\"step\",\"\",1]]"));
    free(unfinished);
    /* An answer that comes too late is nobody's, and the store's last one finds no head. */
    say(h, job, 0, "job-event", json_pack("{s:{s:s s:i}}", "event", "ev", "commit", "number", 8));
    coord_free(h->coord);
    h->coord = NULL;
}

/* The neighbours' memory outlives the head's daemon; of a step that is not on the disk it is no
 * use. */
static void copies_are_of_steps_that_were_said(void **state)
{
    struct head *h = *state;
    for (unsigned said = 1; said <= 2; said++) {
        open_coord(h, 0, JOB_QUEUED);
        const struct job *job = train(h, "shrink", 60);
        for (unsigned i = 1; i <= said; i++)
            step(h, job, i);
        job = reopen(h, job);
        look(h);
        say_planned(h, job);
        say_ready_with_copies(h, job);
        assert_int_equal(job->state, JOB_RUNNING);
        assert_int_equal(json_integer_value(json_object_get(job->restore, "step")), said == 2 ? 2 : 0);
        assert_int_equal(coord_cancel(h->coord, job->id), 0);
        all_say(h, job, "job-stopped");
        coord_free(h->coord);
    }
    h->coord = NULL;
}

/* What was written to --log since the last save went with the machine: those steps are made again.
 */
static void no_copy_stands_for_lines_that_are_lost(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    step(h, job, 2);
    struct job *lost = (struct job *)reopen(h, job);
    look(h);
    say_planned(h, lost);
    lost->log_lost = 2; /* as another boot_id in the store makes it */
    say_ready_with_copies(h, lost);
    assert_null(lost->restore);
}

/* Rank 1 has lines of steps `first` to `last`. */
static void say_ready_with_lines(struct head *h, const struct job *job, unsigned first, unsigned last)
{
    json_t *lines = json_array();
    while (first + json_array_size(lines) <= last)
        json_array_append_new(lines, step_line(first + (unsigned)json_array_size(lines)));
    say(h, job, 1, "job-ready",
        json_pack("{s:[[i,i]] s:{s:{s:{s:i}} s:o}}", "layers", 1, 2, "lines", "before", "step", "", first - 1,
                  "lines", lines));
    say(h, job, 0, "job-ready",
        json_pack("{s:[[i,i]] s:[{s:i s:[[i,i]]}]}", "layers", 0, 1, "held", "step", 4, "units", 0, 99));
    all_say(h, job, "job-connected");
    assert_int_equal(job->state, JOB_RUNNING);
}

static const json_t *last_sent(const struct head *h, const char *kind)
{
    for (size_t i = json_array_size(h->sent); i-- > 0;) {
        const json_t *message = json_array_get(h->sent, i);
        if (!strcmp(json_string_value(json_object_get(message, "kind")), kind))
            return message;
    }
    return NULL;
}

static void holds_tokens(struct head *h, unsigned tokens)
{
    char *unfinished = store_unfinished(h->store), want[40];
    snprintf(want, sizeof want, "\"tokens\":%u,", tokens);
    assert_non_null(strstr(unfinished, want));
    free(unfinished);
}

/* The daemon stood still, and then ended: what it did not hear from its own stage rank 1 knows. */
static void what_rank_1_has_heard_is_said_once(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    step(h, job, 2);
    job = reopen(h, job);
    look(h);
    say_planned(h, job);
    assert_int_equal(json_integer_value(json_object_get(last_sent(h, "job-open"), "said")), 2);
    say_ready_with_lines(h, job, 2, 4);
    assert_int_equal(json_integer_value(json_object_get(job->restore, "step")), 4);
    assert_int_equal(job->step, 4);
    assert_true(job_has_said(job, "step", "", 4));
    holds_tokens(h, 4 * 8);
}

static void lines_behind_a_gap_are_of_no_use(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    job = reopen(h, job);
    look(h);
    say_planned(h, job);
    say_ready_with_lines(h, job, 3, 4);
    assert_null(job->restore);
    assert_int_equal(job->step, 1);
    holds_tokens(h, 8);
}

/* The file of --log went with the machine, of these steps as well. */
static void lines_of_others_bring_no_file_back(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    struct job *lost = (struct job *)reopen(h, job);
    look(h);
    say_planned(h, lost);
    lost->is_log_lost = true; /* as another boot_id in the store makes it */
    lost->log_lost = 1;
    say_ready_with_lines(h, lost, 2, 4);
    assert_null(lost->restore);
}

/* Of the steps that were left out no copy tells. */
static void what_was_decided_comes_with_the_lines(void **state)
{
    struct head *h = *state;
    for (int knows = 0; knows <= 1; knows++) {
        open_coord(h, 0, JOB_QUEUED);
        json_t *spec = json_pack("{s:s s:s s:s s:i s:s}", "model", "/m", "data", "/d", "adapter_out", "/out",
                                 "iters", 5, "on_nan", "skip");
        const struct job *job = submit_spec(h, JOB_TRAIN, spec);
        run(h, job);
        so_far(h, job, 0, 0);
        step(h, job, 1);
        job = reopen(h, job);
        look(h);
        say_planned(h, job);
        json_t *so = json_pack("{s:s s:i s:{s:i}}", "ev", "so-far", "step", 0, "so_far", "skipped", 0);
        json_t *before = knows ? json_pack("{s:{s:O}}", "so-far", "", so) : json_object();
        say(h, job, 1, "job-ready",
            json_pack("{s:[[i,i]] s:{s:o s:[o,o]}}", "layers", 1, 2, "lines", "before", before, "lines",
                      step_line(1), step_line(2)));
        say(h, job, 0, "job-ready",
            json_pack("{s:[[i,i]] s:[{s:i s:[[i,i]]}]}", "layers", 0, 1, "held", "step", 2, "units", 0, 99));
        all_say(h, job, "job-connected");
        json_decref(so);
        assert_int_equal(json_integer_value(json_object_get(job->restore, "step")), knows ? 2 : 0);
        assert_int_equal(coord_cancel(h->coord, job->id), 0);
        all_say(h, job, "job-stopped");
        coord_free(h->coord);
    }
    h->coord = NULL;
}

/* It has fitted on as many nodes as it had: with fewer it waits, as one that ran here would. */
static void a_job_that_is_taken_over_behind_another_waits_for_its_nodes(void **state)
{
    struct head *h = *state;
    const struct job_head from = {.id = {2}, .name = "n1", .job = 9};
    struct err err = {""};
    char *text = NULL;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train(h, "shrink", 60);
    step(h, job, 1);
    store_get_unfinished(h->store, job->id, take_text, &text);
    while (!text)
        event_base_loop(h->base, EVLOOP_ONCE);
    json_t *list = json_loads(text, 0, NULL), *entry = json_array_get(list, 0);
    free(text);
    json_object_set_new(json_object_get(entry, "record"), "id", json_integer(50));
    assert_int_equal(coord_take_over(h->coord, entry, NULL, &from, &err), 0);
    json_decref(list);
    const struct job *taken = coord_find(h->coord, 50);
    assert_int_equal(taken->state, JOB_QUEUED);
    assert_int_equal(taken->interruption.count, 1);
    assert_int_equal(taken->interruption.fitted, RANKS);
}

#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEAD(a_running_job_goes_on_behind_what_was_saved),
        WITH_HEAD(without_a_save_it_begins_from_the_start),
        WITH_HEAD(its_nodes_are_waited_for),
        WITH_HEAD(who_was_waited_for_still_is),
        WITH_HEAD(a_step_that_ends_the_daemon_ends_the_job),
        WITH_HEAD(what_is_to_stop_and_a_conversation_is_closed),
        WITH_HEAD(a_generation_goes_on_behind_what_the_disk_has),
        WITH_HEAD(a_paused_job_stays_paused),
        WITH_HEAD(a_job_that_was_ending_has_ended),
        WITH_HEAD(queued_jobs_keep_their_order),
        WITH_HEAD(a_queued_job_that_generates_outlives_a_loss),
        WITH_HEAD(a_record_that_cannot_be_read_is_closed),
        WITH_HEAD(copies_are_of_steps_that_were_said),
        WITH_HEAD(no_copy_stands_for_lines_that_are_lost),
        WITH_HEAD(what_rank_1_has_heard_is_said_once),
        WITH_HEAD(lines_behind_a_gap_are_of_no_use),
        WITH_HEAD(lines_of_others_bring_no_file_back),
        WITH_HEAD(what_was_decided_comes_with_the_lines),
        WITH_HEAD(what_was_said_is_on_the_disk_before_a_save),
        WITH_HEAD(a_job_that_is_taken_over_behind_another_waits_for_its_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
