/* SPDX-License-Identifier: MIT
 *
 * The best adapters so far of a job with --early-stop: which copies stand for them after a loss,
 * and what its deputy hears of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "tests/unit/daemon/ringd/job/training_world.h"

static const struct job *submit_early(struct head *h, const char *rows, const char *out, int iters)
{
    return submit_spec(h, JOB_TRAIN,
                       json_pack("{s:s s:s s:s s:i s:s s:i s:i}", "model", "/m", "data", rows, "adapter_out",
                                 out, "iters", iters, "valid", rows, "eval_every", 1, "early_stop", 3));
}

/* The best adapter of a job that ends early is written beside the next steps. A copy of a later
 * step does not have it, nor what was decided before the head's daemon was started again. */
static void no_copy_stands_for_a_best_adapter_that_is_lost(void **state)
{
    struct head *h = *state;
    for (unsigned saves = 0; saves <= 1; saves++) {
        open_coord(h, 0, JOB_QUEUED);
        const struct job *job = submit_early(h, "/d", "/out", 5);
        run(h, job);
        so_far(h, job, 0, 0);
        step(h, job, 1);
        so_far(h, job, 1, 1);
        if (saves)
            saved(h, job, 1);
        step(h, job, 2);
        for (unsigned restarts = 0; restarts <= 1; restarts++) {
            if (restarts) {
                job = reopen(h, job);
                look(h);
            } else {
                say(h, job, 1, "job-failed", json_pack("{s:s s:b}", "cause", "killed", "lost", 1));
                all_say(h, job, "job-stopped");
            }
            say_planned(h, job);
            say_ready_with_copies(h, job);
            assert_int_equal(json_integer_value(json_object_get(job->restore, "step")),
                             saves && !restarts ? 2 : 0);
        }
        assert_int_equal(coord_cancel(h->coord, job->id), 0);
        all_say(h, job, "job-stopped");
        coord_free(h->coord);
    }
    h->coord = NULL;
}

/* Its deputy keeps the best adapters as of a save, so a job that is taken over goes on where these
 * are those that were decided on. */
static void the_best_so_far_comes_with_a_job_that_is_taken_over(void **state)
{
    struct head *h = *state;
    for (unsigned kept = 0; kept <= 2; kept++) {
        const struct job_head from = {.id = {2}, .name = "n1", .job = 9};
        struct err err = {""};
        const unsigned as = 50 + 100 * kept; /* above all numbers of jobs here */
        char *text = NULL;
        open_coord(h, 0, JOB_QUEUED);
        const struct job *job = submit_early(h, "/d", "/out", 5);
        run(h, job);
        step(h, job, 1);
        store_get_unfinished(h->store, job->id, take_text, &text);
        while (!text)
            event_base_loop(h->base, EVLOOP_ONCE);
        json_t *list = json_loads(text, 0, NULL), *entry = json_array_get(list, 0);
        free(text);
        json_object_set_new(json_object_get(entry, "record"), "id", json_integer(as));
        json_object_set_new(json_object_get(entry, "life"), "best", json_integer(kept));
        assert_int_equal(coord_cancel(h->coord, job->id), 0);
        all_say(h, job, "job-stopped");
        assert_int_equal(coord_take_over(h->coord, entry, NULL, &from, &err), 0);
        json_decref(list);
        struct job *taken = (struct job *)coord_find(h->coord, as);
        assert_int_equal(job_best_step(taken), kept);
        taken = (struct job *)reopen(h, taken); /* and of a daemon that is started again */
        assert_int_equal(job_best_step(taken), kept);
        taken->is_without_deputies = true;
        look(h);
        say_planned(h, taken);
        json_t *so = json_pack("{s:s s:i s:{s:f s:i}}", "ev", "so-far", "step", 1, "so_far", "best", 1.0,
                               "best_step", 1);
        say(h, taken, 1, "job-ready",
            json_pack("{s:[[i,i]] s:{s:{s:{s:o}} s:[o]}}", "layers", 1, 2, "lines", "before", "so-far", "",
                      so, "lines", step_line(2)));
        say(h, taken, 0, "job-ready",
            json_pack("{s:[[i,i]] s:[{s:i s:[[i,i]]}]}", "layers", 0, 1, "held", "step", 2, "units", 0, 99));
        all_say(h, taken, "job-connected");
        assert_int_equal(json_integer_value(json_object_get(taken->restore, "step")), kept ? 2 : 0);
        assert_int_equal(coord_cancel(h->coord, taken->id), 0);
        all_say(h, taken, "job-stopped");
        coord_free(h->coord);
    }
    h->coord = NULL;
}

/* --- what its deputy hears -------------------------------------------------------------------- */

static const uint8_t deputy[16] = {2};

/* Saves its best adapter; `what` is in it. */
static void put_best(const struct head *h, const char *what)
{
    char *folder = xasprintf("%s/out", h->dir), *best = xasprintf("%s/best", folder),
         *file = xasprintf("%s/adapter_model.safetensors", best), *temporary = xasprintf("%s.tmp", file);
    mkdir(folder, 0700);
    mkdir(best, 0700);
    FILE *f = fopen(temporary, "w");
    assert_true(f && fputs(what, f) >= 0 && !fclose(f) && !rename(temporary, file));
    free(folder);
    free(best);
    free(file);
    free(temporary);
}

/* It runs; its deputy gets its inputs, of which there are some. */
static const struct job *train_early(struct head *h)
{
    char *out = xasprintf("%s/out", h->dir), *rows = xasprintf("%s/rows.jsonl", h->dir);
    FILE *f = fopen(rows, "w");
    assert_true(f && !fclose(f));
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = submit_early(h, rows, out, 500);
    run(h, job);
    free(rows);
    free(out);
    return job;
}

/* The deputy notes all that it is sent, until it has heard of the best as of that step. */
static uint64_t best_as_of(struct head *h, unsigned step)
{
    for (size_t at = 0; !h->is_stuck;) {
        for (; at < json_array_size(h->sent); at++) {
            const json_t *m = json_array_get(h->sent, at), *best = json_object_get(m, "best");
            const uint64_t number = (uint64_t)json_integer_value(json_object_get(best, "number"));
            if (strcmp(json_string_value(json_object_get(m, "kind")), "dossier-news") != 0)
                continue;
            json_t *noted = json_pack("{s:O s:O}", "job", json_object_get(m, "job"), "number",
                                      json_object_get(m, "number"));
            const bool is_it = json_integer_value(json_object_get(best, "step")) == step;
            coord_take_noted(h->coord, deputy, noted);
            json_decref(noted);
            if (is_it)
                return number;
        }
        event_base_loop(h->base, EVLOOP_ONCE);
    }
    fail_msg("the deputy does not hear of the best as of step %u", step);
    return 0;
}

static bool hands_over(const struct head *h, uint64_t number)
{
    return coord_files(h->coord, deputy, number);
}

static void a_set_stays_the_same_until_a_file_changes(void **state)
{
    struct head *h = *state;
    put_best(h, "1");
    const struct job *job = train_early(h);
    saved(h, job, 1);
    const uint64_t first = best_as_of(h, 1);
    saved(h, job, 2);
    assert_int_equal(best_as_of(h, 2), first);
    put_best(h, "2"); /* of as many bytes */
    saved(h, job, 3);
    const uint64_t second = best_as_of(h, 3);
    assert_int_not_equal(second, first);
    assert_false(hands_over(h, first)); /* nobody began to fetch it */
    assert_true(hands_over(h, second));
}

static void what_is_being_fetched_is_handed_over_to_its_end(void **state)
{
    struct head *h = *state;
    uint64_t numbers[4];
    const struct job *job = train_early(h);
    for (unsigned i = 0; i < 4; i++) {
        put_best(h, (const char[]){(char)('a' + i), '\0'});
        saved(h, job, i + 1);
        numbers[i] = best_as_of(h, i + 1);
        assert_true(hands_over(h, numbers[0])); /* it is asked for, and only then are others dropped */
    }
    assert_false(hands_over(h, numbers[1]));
    assert_false(hands_over(h, numbers[2]));
    assert_true(hands_over(h, numbers[3]));
    assert_false(hands_over(h, numbers[0])); /* it is done with that */
}

/* Its deputy hears of the last save in any case, though one thread at a time opens files. */
static void saves_come_faster_than_files_are_opened(void **state)
{
    enum { SAVES = 50 };
    struct head *h = *state;
    put_best(h, "1");
    const struct job *job = train_early(h);
    saved(h, job, 1);
    best_as_of(h, 1);
    for (unsigned i = 2; i <= SAVES; i++)
        saved(h, job, i);
    best_as_of(h, SAVES);
}

#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEAD(no_copy_stands_for_a_best_adapter_that_is_lost),
        WITH_HEAD(the_best_so_far_comes_with_a_job_that_is_taken_over),
        WITH_HEAD(a_set_stays_the_same_until_a_file_changes),
        WITH_HEAD(what_is_being_fetched_is_handed_over_to_its_end),
        WITH_HEAD(saves_come_faster_than_files_are_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
