/* SPDX-License-Identifier: MIT
 *
 * A head that is started again and has lost the files that clients had opened for its jobs: which
 * jobs wait for them, what they say, and whose files they take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

#include "daemon/ringd/job/job_keep.h"
#include "daemon/ringd/job/loan.h"
#include "tests/unit/daemon/ringd/job/training_world.h"

/* Of files of these names, which lie in the head's folder "given"; NULL behind the last. */
static struct loan *lend(struct head *h, const char *const *names)
{
    json_t *files = json_array();
    int fds[4];
    size_t n = 0;
    struct loan *loan;
    struct err err;
    struct loan_book *book = loan_book_new(NULL, "/nowhere");
    for (; names[n]; n++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s", h->dir, names[n]);
        fds[n] = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
        json_array_append_new(files, json_string(path));
    }
    json_t *about = json_pack("{s:o}", "files", files);
    if (loan_new(&loan, book, about, fds, n, &err))
        fail_msg("%s", err.text);
    json_decref(about);
    loan_book_free(book); /* the loan holds it */
    return loan;
}

static const char *const both[] = {"model", "rows", NULL};

/* A job of these files that runs, and has made a step. */
static const struct job *train_lent(struct head *h)
{
    struct err err;
    uint64_t id;
    struct loan *loan = lend(h, both);
    if (coord_submit(
            h->coord, JOB_TRAIN,
            json_pack("{s:s s:s s:s s:i}", "model", "/m", "data", "/d", "adapter_out", "/out", "iters", 5),
            loan, &id, &err))
        fail_msg("%s", err.text);
    loan_drop(loan);
    const struct job *job = coord_find(h->coord, id);
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
    step(h, job, 1);
    return job;
}

/* What is taken of two loans: files of the paths that are wanted, the newer ones first. */
static void loans_are_joined(void **state)
{
    struct head *h = *state;
    static const char *const had_names[] = {"model", "rows", NULL}, *const more_names[] = {"rows", "new",
                                                                                           NULL};
    struct loan *had = lend(h, had_names), *more = lend(h, more_names), *both_of;
    struct err err;
    size_t n;
    char model[100], rows[100], added[100];
    open_coord(h, 0, JOB_QUEUED);
    snprintf(model, sizeof model, "%s/model", h->dir);
    snprintf(rows, sizeof rows, "%s/rows", h->dir);
    snprintf(added, sizeof added, "%s/new", h->dir);
    json_t *in_folder = json_pack("[s]", h->dir), *two = json_pack("[s,s]", model, added),
           *none = json_pack("[s]", "/elsewhere");
    assert_int_equal(loan_join(&both_of, had, more, in_folder, &err), 0);
    loan_fds(both_of, &n);
    assert_int_equal(n, 3);
    assert_true(loan_has(both_of, model) && loan_has(both_of, rows) && loan_has(both_of, added));
    loan_drop(both_of);
    assert_int_equal(loan_join(&both_of, had, more, two, &err), 0);
    loan_fds(both_of, &n);
    assert_int_equal(n, 2);
    assert_false(loan_has(both_of, rows));
    loan_drop(both_of);
    assert_int_equal(loan_join(&both_of, had, NULL, two, &err), 0);
    assert_true(loan_has(both_of, model) && !loan_has(both_of, added));
    loan_drop(both_of);
    assert_int_equal(loan_join(&both_of, had, more, none, &err), 0);
    assert_null(both_of);
    json_decref(in_folder);
    json_decref(two);
    json_decref(none);
    loan_drop(had);
    loan_drop(more);
}

static void lose(const struct head *h, const char *name)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", h->dir, name);
    assert_int_equal(unlink(path), 0);
}

/* Its files are closed to the next daemon. */
static const struct job *bereaved(struct head *h)
{
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train_lent(h);
    lose(h, "rows");
    job = reopen(h, job);
    look(h);
    wait_for(h, job, JOB_QUEUED);
    return job;
}

static json_t *wanted(const struct job *job)
{
    json_t *all = job_encode(job), *list = json_incref(json_object_get(all, "wanted_files"));
    json_decref(all);
    return list;
}

static void a_job_goes_on_if_the_daemon_can_open_its_files(void **state)
{
    struct head *h = *state;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = reopen(h, train_lent(h));
    look(h); /* the ring stands, and it is not yet known whether the files open */
    assert_int_equal(job->state, JOB_INTERRUPTED);
    assert_non_null(strstr(job->error, "ringd looks whether it can open the files"));
    wait_for(h, job, JOB_PLANNING);
    assert_int_equal(job->interruption.count, 1);
}

static void a_job_whose_files_are_closed_says_which_and_lets_others_go_first(void **state)
{
    struct head *h = *state;
    char path[100], way_out[100];
    const struct job *job = bereaved(h), *next = submit(h);
    snprintf(path, sizeof path, "%s/rows: No such file or directory", h->dir);
    snprintf(way_out, sizeof way_out, "`ringctl attach %llu` as the user", (unsigned long long)job->id);
    assert_non_null(strstr(job->error, path));
    assert_non_null(strstr(job->error, way_out));
    assert_int_equal(next->state, JOB_PLANNING);
    json_t *list = wanted(job);
    assert_int_equal(json_array_size(json_object_get(list, "files")), 2);
    assert_null(json_object_get(list, "real"));
    json_decref(list);
}

static void its_files_wake_it(void **state)
{
    struct head *h = *state;
    struct err err;
    const struct job *job = bereaved(h);
    struct loan *loan = lend(h, both);
    const unsigned plans = h->plans;
    assert_int_equal(coord_lend(h->coord, job->id + 1, loan, &err), -ENOENT);
    assert_int_equal(coord_lend(h->coord, job->id, loan, &err), 0);
    let_go(h);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_ptr_equal(job->loan, loan);
    assert_int_equal(h->plans, plans + 1);
    assert_true(json_is_null(wanted(job)));
    assert_int_equal(coord_lend(h->coord, job->id, loan, &err), -EALREADY);
    loan_drop(loan);
}

static void other_files_are_refused(void **state)
{
    static const char *const fewer[] = {"model", NULL}, *const turned[] = {"rows", "model", NULL};
    struct head *h = *state;
    struct err err;
    const struct job *job = bereaved(h);
    struct loan *loan = lend(h, fewer);
    assert_int_equal(coord_lend(h->coord, job->id, loan, &err), -EINVAL);
    assert_non_null(strstr(err.text, "the 2 files"));
    loan_drop(loan);
    loan = lend(h, turned);
    assert_int_equal(coord_lend(h->coord, job->id, loan, &err), -EINVAL);
    loan_drop(loan);
    char path[100];
    snprintf(path, sizeof path, "%s/rows", h->dir);
    loan = lend(h, both);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("model", path), 0); /* the right name, and another file */
    loan_drop(loan);
    loan = lend(h, both);
    assert_int_equal(coord_lend(h->coord, job->id, loan, &err), -EINVAL);
    assert_non_null(strstr(err.text, "rows leads to other data now"));
    loan_drop(loan);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_true(job->wants_files);
}

static void it_still_waits_in_a_third_life_and_can_be_cancelled(void **state)
{
    struct head *h = *state;
    const struct job *job = reopen(h, bereaved(h));
    look(h);
    while (!job->wants_files && !h->is_stuck)
        event_base_loop(h->base, EVLOOP_ONCE);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_int_equal(coord_cancel(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_CANCELLED);
    assert_string_equal(job->error, "");
    assert_false(job->wants_files);
}

static void a_paused_job_waits_for_them_once_it_is_to_go_on(void **state)
{
    struct head *h = *state;
    struct err err;
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = train_lent(h);
    assert_int_equal(coord_pause(h->coord, job->id), 0);
    say(h, job, 0, "job-left", json_object());
    all_say(h, job, "job-stopped");
    assert_int_equal(job->state, JOB_PAUSED);
    lose(h, "rows");
    job = reopen(h, job);
    while (!job->wants_files && !h->is_stuck)
        event_base_loop(h->base, EVLOOP_ONCE);
    assert_int_equal(job->state, JOB_PAUSED);
    assert_int_equal(coord_continue(h->coord, job->id), 0);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_non_null(strstr(job->error, "ringctl attach"));
    struct loan *loan = lend(h, both);
    assert_int_equal(coord_lend(h->coord, job->id, loan, &err), 0);
    loan_drop(loan);
    look(h);
    assert_int_equal(job->state, JOB_PLANNING);
}

static void a_damaged_list_of_files_is_refused(void **state)
{
    static const char *const lists[] = {
        "1",
        "{}",
        "{\"files\": [], \"folders\": [], \"real\": []}",
        "{\"files\": [\"/a\"], \"folders\": [], \"real\": []}",
        "{\"files\": [\"a\"], \"folders\": [], \"real\": [\"/a\"]}",
        "{\"files\": [\"/a\"], \"folders\": [1], \"real\": [\"/a\"]}",
        "{\"files\": [\"/a\"], \"folders\": [], \"real\": [1]}",
        "{\"files\": [\"/a\"], \"real\": [\"/a\"]}",
    };
    (void)state;
    json_t *list = json_loads("{\"files\": [\"/a\"], \"folders\": [\"/b\"], \"real\": [\"\"]}", 0, NULL);
    assert_true(loan_about_is_whole(list));
    json_decref(list);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        list = json_loads(lists[i], JSON_DECODE_ANY, NULL);
        assert_non_null(list);
        assert_false(loan_about_is_whole(list));
        json_decref(list);
    }
}

#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(loans_are_joined, set_up, tear_down),
        WITH_HEAD(a_job_goes_on_if_the_daemon_can_open_its_files),
        WITH_HEAD(a_job_whose_files_are_closed_says_which_and_lets_others_go_first),
        WITH_HEAD(its_files_wake_it),
        WITH_HEAD(other_files_are_refused),
        WITH_HEAD(it_still_waits_in_a_third_life_and_can_be_cancelled),
        WITH_HEAD(a_paused_job_waits_for_them_once_it_is_to_go_on),
        cmocka_unit_test(a_damaged_list_of_files_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
