/* SPDX-License-Identifier: MIT
 *
 * Adapters that come to a job that serves, and leave it: it is planned again with them, has them
 * once it runs, and goes on as it was where that cannot be planned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/daemon/ringd/job/training_world.h"

static void begin(struct head *h, const struct job *job)
{
    assert_int_equal(job->state, JOB_PLANNING);
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
    assert_int_equal(job->state, JOB_RUNNING);
}

static const struct job *serve(struct head *h)
{
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = submit_spec(
        h, JOB_SERVE, json_pack("{s:s s:s s:{s:s}}", "model", "/m", "name", "m", "adapters", "owl", "/owl"));
    begin(h, job);
    return job;
}

static uint64_t change(struct head *h, const struct job *job, const char *name, const char *path)
{
    struct err err;
    uint64_t number;
    if (coord_change_adapter(h->coord, job->id, name, path, NULL, &number, &err))
        fail_msg("%s", err.text);
    return number;
}

static void refuse(struct head *h, const struct job *job, const char *name, const char *path, int code,
                   const char *words)
{
    struct err err;
    uint64_t number;
    assert_int_equal(coord_change_adapter(h->coord, job->id, name, path, NULL, &number, &err), code);
    assert_non_null(strstr(err.text, words));
}

/* Its stages have stopped after a microbatch. */
static void leave(struct head *h, const struct job *job)
{
    say(h, job, 0, "job-left", json_object());
    all_say(h, job, "job-stopped");
}

static void must_have(const json_t *spec, const char *wanted)
{
    char *text = json_dumps(json_object_get(spec, "adapters"), JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text ? text : "none", wanted);
    free(text);
}

static void put_adapter(const char *folder)
{
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
    mkdir(folder, 0777);
    for (size_t i = 0; i < 2; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *f = fopen(path, "w");
        assert_true(f && !fclose(f));
    }
}

static void it_has_them_once_it_runs(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h);
    change(h, job, "fox", "/fox");
    assert_int_equal(told(h, 0, "job-leave"), 1);
    must_have(job->spec, "{\"owl\":\"/owl\"}"); /* who asks meanwhile is answered with what is there */
    leave(h, job);
    must_have(h->planned, "{\"owl\":\"/owl\",\"fox\":\"/fox\"}");
    must_have(job->spec, "{\"owl\":\"/owl\"}");
    begin(h, job);
    must_have(job->spec, "{\"owl\":\"/owl\",\"fox\":\"/fox\"}");
    assert_true(json_object_size(job->asked.adapters) == 2);
    change(h, job, "owl", NULL);
    change(h, job, "fox", "/other"); /* not planned yet: both come at once */
    assert_int_equal(told(h, 0, "job-leave"), 2);
    leave(h, job);
    must_have(h->planned, "{\"fox\":\"/other\"}");
    begin(h, job);
    must_have(job->spec, "{\"fox\":\"/other\"}");
    change(h, job, "fox", NULL);
    leave(h, job);
    begin(h, job);
    must_have(job->spec, "none");
    assert_int_equal(told(h, 0, "job-leave"), 3);
}

static void what_cannot_be_planned_changes_nothing(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h);
    change(h, job, "fox", "/fox");
    leave(h, job);
    const json_int_t changes = json_integer_value(json_object_get(h->planned, "changes"));
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "--adapter fox: it is of another model"));
    assert_int_equal(job->state, JOB_STOPPING);
    say(h, job, 0, "job-stopped", json_object());
    must_have(h->planned, "{\"owl\":\"/owl\"}");
    /* A stage that rests was started for other files. */
    assert_int_not_equal(json_integer_value(json_object_get(h->planned, "changes")), changes);
    begin(h, job);
    must_have(job->spec, "{\"owl\":\"/owl\"}");
    assert_int_equal(told(h, 0, "job-leave"), 1);
}

static void what_lacks_memory_changes_nothing(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h);
    change(h, job, "fox", "/fox");
    leave(h, job);
    say_lacks(h, job);
    must_have(h->planned, "{\"owl\":\"/owl\"}");
    begin(h, job);
}

/* Files that were fetched for it go, and those of what is served stay. */
static void what_only_a_change_had_goes(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h);
    char results[90], kept[100], gone[100];
    snprintf(results, sizeof results, "%s/results", h->dir);
    snprintf(kept, sizeof kept, "%s/.served-1-bird-a", results);
    snprintf(gone, sizeof gone, "%s/.served-1-fox-a", results);
    assert_int_equal(mkdir(results, 0777), 0);
    put_adapter(kept);
    put_adapter(gone);
    change(h, job, "bird", kept);
    leave(h, job);
    begin(h, job);
    change(h, job, "fox", gone);
    leave(h, job);
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "--adapter fox: it is of another model"));
    say(h, job, 0, "job-stopped", json_object());
    while (!access(gone, F_OK))
        event_base_loop(h->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    begin(h, job);
    assert_int_equal(access(kept, F_OK), 0);
    coord_cancel(h->coord, job->id);
    all_say(h, job, "job-stopped");
    while (!access(kept, F_OK))
        event_base_loop(h->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

/* It is no fault of the change: the next plan has it. */
static void a_loss_on_the_way_keeps_the_change(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h);
    change(h, job, "fox", "/fox");
    leave(h, job);
    say_planned(h, job);
    say(h, job, 1, "job-failed", json_pack("{s:s s:b}", "cause", "it was killed", "lost", 1));
    all_say(h, job, "job-stopped");
    must_have(h->planned, "{\"owl\":\"/owl\",\"fox\":\"/fox\"}");
    begin(h, job);
    must_have(job->spec, "{\"owl\":\"/owl\",\"fox\":\"/fox\"}");
}

static void what_is_refused(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h), *other = submit(h);
    struct err err;
    uint64_t number;
    refuse(h, job, "wolf", NULL, -EINVAL, "no adapter \"wolf\"");
    refuse(h, job, "m", "/owl", -EINVAL, "without adapters");
    refuse(h, other, "fox", "/fox", -EALREADY, "serves no model");
    assert_int_equal(coord_change_adapter(h->coord, 99, "fox", "/fox", NULL, &number, &err), -ENOENT);
    assert_int_equal(told(h, 0, "job-leave"), 0);
    change(h, job, "fox", "/fox");
    leave(h, job);
    refuse(h, job, "wolf", "/wolf", -EBUSY, "planned again with the adapter fox");
}

/* It is offered to the deployment's head, when it is saved and at the end. */
static const json_t *wait_offered(struct head *h, size_t n)
{
    const json_t *found = NULL;
    while (told(h, 0, "adapter-offered") < n)
        event_base_loop(h->base, EVLOOP_ONCE);
    for (size_t i = 0; i < json_array_size(h->sent); i++)
        if (!strcmp(json_string_value(json_object_get(json_array_get(h->sent, i), "kind")),
                    "adapter-offered"))
            found = json_array_get(h->sent, i);
    return found;
}

static void what_is_trained_goes_to_its_deployment(void **state)
{
    struct head *h = *state;
    struct err err;
    uint64_t id;
    char out[100];
    const struct job *job = serve(h);
    snprintf(out, sizeof out, "%s/out", h->dir);
    put_adapter(out);
    json_t *spec =
        json_pack("{s:s s:s s:s s:s}", "model", "/m", "data", "/d", "adapter_out", out, "serve_as", "bird@m");
    const struct job *training = submit_spec(h, JOB_TRAIN, json_incref(spec));
    say_planned(h, training);
    say_ready(h, training);
    all_say(h, training, "job-connected");
    say(h, training, 0, "job-event", json_pack("{s:{s:s s:i}}", "event", "ev", "saved", "step", 10));
    const json_t *offered = wait_offered(h, 1);
    assert_int_equal(json_integer_value(json_object_get(offered, "job")), job->id);
    assert_string_equal(json_string_value(json_object_get(offered, "name")), "bird");
    assert_int_equal(json_array_size(json_object_get(offered, "files")), 2);
    say(h, training, 0, "job-done", json_object());
    all_say(h, training, "job-stopped");
    assert_int_equal(training->state, JOB_DONE);
    wait_offered(h, 2);
    json_object_set_new(spec, "serve_as", json_string("bird@other"));
    assert_int_equal(coord_submit(h->coord, JOB_TRAIN, spec, NULL, &id, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no deployment of other"));
}

/* Answers that began with it end with it, and the next change goes without it. */
static void what_is_replaced_stays_for_a_while(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h);
    char first[100], second[100], third[100], wanted[400];
    snprintf(first, sizeof first, "%s/results/.served-1-bird-a", h->dir);
    snprintf(second, sizeof second, "%s/results/.served-1-bird-b", h->dir);
    snprintf(third, sizeof third, "%s/results/.served-1-bird-c", h->dir);
    change(h, job, "bird", first);
    change(h, job, "bird", second); /* the first one was never served */
    leave(h, job);
    snprintf(wanted, sizeof wanted, "{\"owl\":\"/owl\",\"bird\":\"%s\"}", second);
    must_have(h->planned, wanted);
    begin(h, job);
    change(h, job, "bird", third);
    leave(h, job);
    snprintf(wanted, sizeof wanted, "{\"owl\":\"/owl\",\"bird\":\"%s\",\"bird~3\":\"%s\"}", third, second);
    must_have(h->planned, wanted);
    begin(h, job);
    json_t *shown = job_encode_short(job);
    assert_int_equal(json_array_size(json_object_get(shown, "serves_with")), 2);
    json_decref(shown);
    change(h, job, "owl", "/other"); /* whose files may be gone: it is not kept */
    leave(h, job);
    snprintf(wanted, sizeof wanted, "{\"owl\":\"/other\",\"bird\":\"%s\"}", third);
    must_have(h->planned, wanted);
    begin(h, job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_has_them_once_it_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_planned_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_lacks_memory_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_only_a_change_had_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_loss_on_the_way_keeps_the_change, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_trained_goes_to_its_deployment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_replaced_stays_for_a_while, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
