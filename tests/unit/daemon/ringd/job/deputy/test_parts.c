/* SPDX-License-Identifier: MIT
 *
 * Files from one node to another, part by part: one node of this process asks the other. */
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/parts.h"
#include "daemon/ringd/mailbox.h"
#include "daemon/ringd/timer.h"

enum { GUARD_MS = 60000 };
static const uint8_t there[16] = {2};

struct world {
    struct event_base *base;
    struct mailbox *mailbox;
    struct aside *aside;
    struct parts *parts;
    struct file_set *files; /* what is handed over; NULL: nothing */
    struct timer *guard;
    char dir[64], to[96];
    unsigned asked, spoiled; /* messages; the answer with that number is another's */
    bool is_done;
    char why[300];
};

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    struct world *w = owner;
    const char *kind = json_string_value(json_object_get(message, "kind"));
    assert_memory_equal(to, there, sizeof there);
    if (!strcmp(kind, "part-ask")) {
        w->asked++;
        parts_take_ask(w->parts, there, message);
    } else {
        if (w->spoiled && w->asked == w->spoiled)
            json_object_set_new(message, "part", json_string("bm90IGl0"));
        parts_take_told(w->parts, there, message);
    }
    json_decref(message);
    return 0;
}

static struct file_set *files_for(void *owner, const uint8_t to[16], uint64_t job)
{
    const struct world *w = owner;
    assert_memory_equal(to, there, sizeof there);
    return job == 7 ? w->files : NULL;
}

static void on_guard(void *owner)
{
    (void)owner;
    fail_msg("what was waited for does not come");
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    strcpy(w->dir, "/tmp/ringd-parts-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->to, sizeof w->to, "%s/above/to", w->dir);
    w->base = event_base_new();
    assert_int_equal(mailbox_new(&w->mailbox, w->base), 0);
    w->aside = aside_new(w->mailbox);
    w->guard = timer_new(w->base, on_guard, w);
    timer_set_ms(w->guard, GUARD_MS);
    w->parts = parts_new(&(struct parts_setup){
        .base = w->base, .aside = w->aside, .send = send_message, .files = files_for, .owner = w});
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    char command[200];
    parts_free(w->parts);
    file_set_drop(w->files);
    aside_free(w->aside);
    timer_free(w->guard);
    mailbox_free(w->mailbox);
    event_base_free(w->base);
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

static char *put_file(const struct world *w, const char *name, size_t n)
{
    char *path = xasprintf("%s/%s", w->dir, name), *bytes = xmalloc(n + 1);
    FILE *f = fopen(path, "w");
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(i * 7 + n);
    assert_true(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
    free(bytes);
    return path;
}

static void on_done(void *owner, const char *why)
{
    struct world *w = owner;
    w->is_done = true;
    snprintf(w->why, sizeof w->why, "%s", why ? why : "");
}

static void fetch(struct world *w, uint64_t job, const json_t *list)
{
    w->is_done = false;
    fetch_start(w->parts, there, job, list, w->to, on_done, w);
    while (!w->is_done)
        event_base_loop(w->base, EVLOOP_ONCE);
}

/* Of a data set of two files, one of them of several parts and one empty. */
static json_t *two_files(struct world *w)
{
    struct err err;
    free(put_file(w, "train.jsonl", 2 * FILE_SET_PART + 5));
    free(put_file(w, "valid.jsonl", 0));
    json_t *spec = json_pack("{s:s s:s}", "model", "/no/such/model", "data", w->dir);
    if (file_set_of_inputs(&w->files, spec, NULL, &err))
        fail_msg("%s", err.text);
    json_decref(spec);
    json_t *list = file_set_list(w->files);
    assert_int_equal(file_set_check(list, false, &err), 0);
    return list;
}

static void files_arrive_as_they_are(void **state)
{
    struct world *w = *state;
    json_t *list = two_files(w), *file;
    size_t i;
    assert_int_equal(json_array_size(list), 2);
    fetch(w, 7, list);
    assert_string_equal(w->why, "");
    assert_int_equal(w->asked, 4);
    json_array_foreach (list, i, file) {
        const char *path = json_string_value(json_object_get(file, "path"));
        char *command = xasprintf("cmp %s %s/%zu", path, w->to, i), *here = xasprintf("%s/%zu", w->to, i);
        struct stat one, other;
        assert_int_equal(system(command), 0);
        assert_int_equal(stat(path, &one) | stat(here, &other), 0);
        assert_int_equal(one.st_mtim.tv_sec, other.st_mtim.tv_sec); /* templates may ask for it */
        assert_int_equal(one.st_mtim.tv_nsec, other.st_mtim.tv_nsec);
        free(command);
        free(here);
    }
    json_decref(list);
}

static void what_goes_wrong_is_said(void **state)
{
    struct world *w = *state;
    json_t *list = two_files(w);
    fetch(w, 8, list);
    assert_string_equal(w->why, "this node hands over no files of that job");
    w->asked = 0;
    w->spoiled = 2;
    fetch(w, 7, list);
    assert_string_equal(w->why, "the other node sent a malformed part of a file");
    json_object_set_new(json_array_get(list, 0), "bytes", json_integer(3 * FILE_SET_PART));
    json_object_set_new(json_array_get(list, 1), "bytes", json_integer(3 * FILE_SET_PART));
    w->spoiled = 0;
    fetch(w, 7, list);
    assert_non_null(strstr(w->why, "malformed"));
    json_decref(list);
}

static void lists_of_others_are_checked(void **state)
{
    static const char *const bad_here[] = {"relative", ""}, *const bad_in_folder[] = {
                                                                "/absolute",  "..",   "../up",
                                                                "a/../../up", "a/..", ""};
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof bad_here / sizeof *bad_here; i++) {
        json_t *list = json_pack("[{s:s s:i}]", "path", bad_here[i], "bytes", 1);
        assert_int_not_equal(file_set_check(list, false, &err), 0);
        json_decref(list);
    }
    for (size_t i = 0; i < sizeof bad_in_folder / sizeof *bad_in_folder; i++) {
        json_t *list = json_pack("[{s:s s:i}]", "path", bad_in_folder[i], "bytes", 1);
        assert_int_not_equal(file_set_check(list, true, &err), 0);
        json_decref(list);
    }
    json_t *list = json_pack("[{s:s s:I}, {s:s s:I}]", "path", "/a", "bytes", (json_int_t)FILE_SET_BYTES,
                             "path", "/b", "bytes", (json_int_t)1);
    assert_int_not_equal(file_set_check(list, false, &err), 0);
    json_array_remove(list, 1);
    assert_int_equal(file_set_check(list, false, &err), 0);
    json_object_set_new(json_array_get(list, 0), "bytes", json_integer(-1));
    assert_int_not_equal(file_set_check(list, false, &err), 0);
    json_decref(list);
}

/* Of what --early-stop has saved, with and without a sweep. */
static void the_best_so_far_is_what_lies_in_its_folders(void **state)
{
    struct world *w = *state;
    struct err err;
    static const char *const folders[] = {"best", "lr-1e-4", "lr-1e-4/best", "xbest", "bestof"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *path = xasprintf("%s/%s", w->dir, folders[i]), *file = xasprintf("%s/a", folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        free(put_file(w, file, i + 1));
        free(path);
        free(file);
    }
    free(put_file(w, "best.json", 9));
    free(put_file(w, "lr-1e-4/best/.a.tmp", 9)); /* a writer is at work there */
    assert_int_equal(file_set_of_best(&w->files, w->dir, &err), 0);
    json_t *list = file_set_list(w->files);
    assert_int_equal(file_set_check(list, true, &err), 0);
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "path")), "best/a");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "path")),
                        "lr-1e-4/best/a");
    json_decref(list);
}

/* What cannot be looked at may have files. */
static void only_a_folder_that_is_not_there_has_none(void **state)
{
    struct world *w = *state;
    struct err err;
    char *none = xasprintf("%s/none", w->dir), *file = put_file(w, "a", 1), *below = xasprintf("%s/b", file);
    struct file_set *files = NULL;
    assert_int_equal(file_set_of_folder(&files, none, &err), 0);
    json_t *list = file_set_list(files);
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    file_set_drop(files);
    assert_int_not_equal(file_set_of_folder(&files, below, &err), 0);
    free(none);
    free(file);
    free(below);
}

static void a_fetch_that_is_stopped_says_nothing(void **state)
{
    struct world *w = *state;
    json_t *list = two_files(w);
    struct part_fetch *f = fetch_start(w->parts, there, 7, list, w->to, on_done, w);
    event_base_loop(w->base, EVLOOP_ONCE); /* the first part is read, or written, beside the loop */
    fetch_stop(f);
    event_base_loop(w->base, EVLOOP_NONBLOCK);
    assert_false(w->is_done);
    json_decref(list);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_arrive_as_they_are),
        TEST(what_goes_wrong_is_said),
        TEST(lists_of_others_are_checked),
        TEST(the_best_so_far_is_what_lies_in_its_folders),
        TEST(only_a_folder_that_is_not_there_has_none),
        TEST(a_fetch_that_is_stopped_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
