/* SPDX-License-Identifier: MIT
 *
 * A generation, a conversation or a scoring that loses a stage process or a node: what the next
 * stage process gets of it, what is said meanwhile, and when it ends after all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/daemon/ringd/job/head_world.h"

static void run(struct head *h, const struct job *job)
{
    assert_int_equal(job->state, JOB_PLANNING);
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
    assert_int_equal(job->state, JOB_RUNNING);
}

static const struct job *begin(struct head *h, enum job_type type, json_t *spec)
{
    const struct job *job = submit_spec(h, type, spec);
    run(h, job);
    return job;
}

static const struct job *generate(struct head *h, const char *on_loss)
{
    return begin(
        h, JOB_GENERATE,
        json_pack("{s:s s:s s:s s:i}", "model", "/m", "prompt", "a", "on_loss", on_loss, "wait_for", 0));
}

static const struct job *chat(struct head *h, const char *on_loss)
{
    return begin(h, JOB_GENERATE,
                 json_pack("{s:s s:[{s:s s:s}] s:i s:s s:i}", "model", "/m", "messages", "role", "user",
                           "content", "a", "keep_alive", 60, "on_loss", on_loss, "wait_for", 0));
}

static void event(struct head *h, const struct job *job, json_t *event)
{
    say(h, job, 0, "job-event", json_pack("{s:o}", "event", event));
}

static void prompt(struct head *h, const struct job *job, unsigned kept)
{
    event(h, job, json_pack("{s:s s:i s:i s:[i,i]}", "ev", "prompt", "kept", kept, "seed", 4, "ids", 10, 11));
}

static void token(struct head *h, const struct job *job, int id)
{
    event(h, job, json_pack("{s:s s:i s:s}", "ev", "token", "id", id, "text", "x"));
}

static void answer(struct head *h, const struct job *job)
{
    event(h, job, json_pack("{s:s s:{s:s}}", "ev", "answer", "result", "text", "x"));
}

static void lose_stage(struct head *h, const struct job *job, unsigned rank)
{
    say(h, job, rank, "job-failed",
        json_pack("{s:s s:b}", "cause", "the stage process was killed", "lost", 1));
    if (job->state == JOB_STOPPING)
        all_say(h, job, "job-stopped");
}

static void lose_node(struct head *h, const struct job *job)
{
    struct member *self = members_self(h->members);
    link_nodes(h, false);
    self->ended[0][0] = 2;
    self->nended = 1;
    look(h);
    assert_int_equal(job->state, JOB_STOPPING);
    say(h, job, 0, "job-stopped", json_object());
}

static void find_node(struct head *h)
{
    members_self(h->members)->nended = 0;
    link_nodes(h, true);
    look(h);
}

static void got(const struct head *h, const char *want)
{
    json_t *so_far = json_object_get(h->planned, "so_far");
    char *text = json_dumps(so_far, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    assert_string_equal(text, want);
    free(text);
}

#define ONE_TURN(answer)                                                                                     \
    "{\"first_prompt\":2,\"turns\":[{\"answer\":" answer ",\"ids\":[10,11],\"kept\":0,\"seed\":4}]}"

static void the_next_stage_gets_prompt_and_tokens(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = generate(h, "shrink");
    got(h, "null");
    lose_stage(h, job, 1); /* before anything was read */
    got(h, "null");
    run(h, job);
    prompt(h, job, 0);
    token(h, job, 5);
    token(h, job, 6);
    lose_stage(h, job, 0);
    got(h, ONE_TURN("[5,6]"));
    run(h, job);
    token(h, job, 7);
    lose_stage(h, job, 1);
    got(h, ONE_TURN("[5,6,7]"));
    assert_int_equal(job->tokens, 3);
    run(h, job);
    say(h, job, 0, "job-done", json_object());
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_DONE);
    assert_null(job->token_log); /* it takes no memory any more */
}

static void words_count_tokens(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = generate(h, "wait");
    prompt(h, job, 0);
    lose_node(h, job);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    assert_non_null(strstr(job->error, " before its first token: node n1 is gone"));
    find_node(h);
    run(h, job);
    token(h, job, 5);
    lose_node(h, job);
    assert_non_null(strstr(job->error, " after token 1: node n1 is gone"));
    find_node(h);
    run(h, job);
    lose_stage(h, job, 1);
    run(h, job);
    lose_stage(h, job, 0);
    assert_int_equal(job->state, JOB_FAILED);
    assert_non_null(strstr(job->error, "token 2 ended the stage process of n1 before: it is the job itself"));
}

static void stop_ends_it_and_nothing_is_kept(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = generate(h, "stop");
    assert_null(job->token_log);
    lose_stage(h, job, 1);
    assert_int_equal(job->state, JOB_FAILED);
    assert_string_equal(job->error, "node n1: the stage process was killed");
}

static void a_score_begins_again(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = begin(h, JOB_SCORE, json_pack("{s:s s:s}", "model", "/m", "data", "/d"));
    event(h, job, json_pack("{s:s s:i s:i s:f}", "ev", "step", "step", 8, "steps", 16, "loss", 1.0));
    lose_stage(h, job, 1);
    assert_int_equal(job->state, JOB_PLANNING);
    const json_t *rows = json_object_get(json_object_get(h->planned, "said"), "step");
    assert_int_equal(json_integer_value(json_object_get(rows, "")), 8);
}

/* The last turn that was sent to rank 0. */
static const json_t *turn_sent(const struct head *h)
{
    const json_t *last = NULL;
    size_t i;
    json_t *m;
    json_array_foreach (h->sent, i, m)
        if (!strcmp(json_string_value(json_object_get(m, "kind")), "job-turn"))
            last = m;
    return last;
}

static void a_conversation_waits_for_what_is_said_next(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = chat(h, "wait");
    prompt(h, job, 0);
    token(h, job, 5);
    answer(h, job);
    assert_true(job->is_idle);
    lose_node(h, job);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    assert_true(job->is_idle);
    assert_non_null(job->result);
    assert_int_equal(coord_turn(h->coord, job->id, json_pack("{s:[]}", "messages")), 0);
    assert_false(job->is_idle);
    assert_int_equal(coord_turn(h->coord, job->id, json_object()), -EBUSY);
    assert_int_equal(told(h, 0, "job-turn"), 0);
    find_node(h);
    got(h, ONE_TURN("[5]"));
    run(h, job);
    assert_int_equal(told(h, 0, "job-turn"), 1);
    assert_non_null(json_object_get(json_object_get(turn_sent(h), "turn"), "messages"));
}

/* Stages that end while nobody speaks say nothing of the job. */
static void a_conversation_outlives_many_losses_between_answers(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = chat(h, "shrink");
    prompt(h, job, 0);
    token(h, job, 5);
    answer(h, job);
    const json_t *result = job->result;
    for (unsigned i = 0; i < 6; i++) {
        lose_stage(h, job, i % 2);
        run(h, job);
        answer(h, job);
        assert_true(job->is_idle);
        assert_ptr_equal(job->result, result);
    }
    coord_turn(h->coord, job->id, json_object());
    lose_stage(h, job, 1); /* before it was read */
    run(h, job);
    answer(h, job);
    assert_false(job->is_idle);
    prompt(h, job, 2);
    answer(h, job);
    assert_true(job->is_idle);
    for (unsigned i = 0; i < 4; i++) { /* but those that never get there do */
        lose_stage(h, job, 1);
        if (job->state == JOB_PLANNING)
            run(h, job);
    }
    assert_int_equal(job->state, JOB_FAILED);
}

/* A stage that is lost may not have read what it was sent; what it has read is not sent again. */
static void a_turn_is_read_once(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = chat(h, "shrink");
    prompt(h, job, 0);
    answer(h, job);
    coord_turn(h->coord, job->id, json_object());
    assert_int_equal(told(h, 0, "job-turn"), 1);
    lose_stage(h, job, 1);
    run(h, job);
    assert_int_equal(told(h, 0, "job-turn"), 2);
    prompt(h, job, 2);
    token(h, job, 5);
    lose_stage(h, job, 1);
    got(h, "{\"first_prompt\":2,\"turns\":[{\"answer\":[],\"ids\":[10,11],\"kept\":0,"
           "\"seed\":4},{\"answer\":[5],\"ids\":[10,11],\"kept\":2,\"seed\":4}]}");
    run(h, job);
    assert_int_equal(told(h, 0, "job-turn"), 2);
}

static void a_conversation_that_is_over_is_done(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = chat(h, "wait");
    prompt(h, job, 0);
    answer(h, job);
    coord_turn(h->coord, job->id, NULL); /* the stage is lost before it has ended by itself */
    lose_stage(h, job, 1);
    assert_int_equal(job->state, JOB_DONE);
    assert_non_null(job->result);
    const struct job *other = chat(h, "wait");
    prompt(h, other, 0);
    answer(h, other);
    lose_node(h, other);
    assert_int_equal(other->state, JOB_INTERRUPTED);
    coord_turn(h->coord, other->id, NULL);
    assert_int_equal(other->state, JOB_DONE);
}

static void an_interrupted_conversation_leaves_room_to_others(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = chat(h, "wait");
    prompt(h, job, 0);
    answer(h, job);
    lose_node(h, job);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    h->plan_nodes = 1;
    const struct job *next = submit(h);
    assert_int_equal(job->state, JOB_INTERRUPTED);
    assert_int_equal(next->state, JOB_PLANNING);
    hold_memory(h, 3);
    say_lacks(h, next); /* of what it was planned with nobody held any */
    assert_int_equal(next->state, JOB_FAILED);
    next = submit(h);
    say_lacks(h, next);
    assert_int_equal(next->state, JOB_QUEUED);
    assert_int_equal(job->state, JOB_DONE); /* it is not opened again for nothing */
}

/* One that is busy when it is lost goes on, and gives way when it has answered. */
static void a_conversation_that_answers_does_not_give_way(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = chat(h, "shrink");
    prompt(h, job, 0);
    token(h, job, 5);
    hold_memory(h, 3);
    const struct job *next = submit(h);
    say_lacks(h, next);
    lose_stage(h, job, 1);
    run(h, job);
    answer(h, job);
    assert_int_equal(told(h, 0, "job-turn"), 1);
    assert_null(json_object_get(turn_sent(h), "turn")); /* it is over */
    say(h, job, 0, "job-done", json_object());
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_DONE);
    assert_int_equal(next->state, JOB_QUEUED); /* job 3 has it still */
}

/* Lost while nobody speaks, with another job waiting already: it is not read again for nothing. */
static void a_lost_conversation_gives_way_at_once(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = chat(h, "wait");
    prompt(h, job, 0);
    answer(h, job);
    lose_stage(h, job, 1);
    assert_true(job->is_idle);
    assert_int_equal(job->state, JOB_PLANNING);
    hold_memory(h, 3);
    const struct job *next = submit(h);
    say_lacks(h, next);
    run(h, job);
    assert_int_equal(told(h, 0, "job-turn"), 1);
    assert_null(json_object_get(turn_sent(h), "turn"));
    say(h, job, 0, "job-done", json_object());
    all_say(h, job, "job-stopped");
    hold_memory(h, 0);
    coord_changed(h->coord);
    assert_int_equal(next->state, JOB_PLANNING);
}

#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEAD(the_next_stage_gets_prompt_and_tokens),
        WITH_HEAD(words_count_tokens),
        WITH_HEAD(stop_ends_it_and_nothing_is_kept),
        WITH_HEAD(a_score_begins_again),
        WITH_HEAD(a_conversation_waits_for_what_is_said_next),
        WITH_HEAD(a_conversation_outlives_many_losses_between_answers),
        WITH_HEAD(a_turn_is_read_once),
        WITH_HEAD(a_conversation_that_is_over_is_done),
        WITH_HEAD(an_interrupted_conversation_leaves_room_to_others),
        WITH_HEAD(a_conversation_that_answers_does_not_give_way),
        WITH_HEAD(a_lost_conversation_gives_way_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
