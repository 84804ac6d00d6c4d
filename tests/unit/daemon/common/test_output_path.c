/* SPDX-License-Identifier: MIT
 *
 * Paths that a job names and the daemon writes: none leads to the daemon's own files, by name, by
 * link, or by a link that was put there in between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/output_path.h"

static char dir[32], state[64];

static char *at(const char *name)
{
    static char path[4][256];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void put(const char *name)
{
    FILE *f = fopen(at(name), "we");
    assert_non_null(f);
    fputs("secret", f);
    fclose(f);
}

static void holds(const char *name, const char *text)
{
    char got[64] = "";
    FILE *f = fopen(at(name), "re");
    assert_non_null(f);
    assert_true(fread(got, 1, sizeof got - 1, f) == strlen(text));
    fclose(f);
    assert_string_equal(got, text);
}

static int set_up(void **unused)
{
    (void)unused;
    strcpy(dir, "/tmp/ringd-out-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(state, sizeof state, "%s/state", dir);
    static const char *const folders[] = {"state",       "state/results", "state/models",
                                          "state/store", "home",          "stateful"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(at(folders[i]), 0700), 0);
    put("state/identity");
    put("home/mine");
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

static void refused(const char *name, const char *why)
{
    struct err err = {""};
    FILE *f = NULL;
    assert_true(output_path_check(state, "--log", at(name), &err) < 0);
    assert_non_null(strstr(err.text, why));
    assert_true(output_path_open(state, "--log", at(name), false, &f, &err) < 0);
    assert_null(f);
}

static void write_to(const char *name, bool append)
{
    struct err err = {""};
    FILE *f = NULL;
    if (output_path_open(state, "--log", at(name), append, &f, &err))
        fail_msg("%s", err.text);
    fputs("line", f);
    fclose(f);
}

static void files_of_the_daemon_are_not_written(void **unused)
{
    (void)unused;
    static const char *const own[] = {"state/identity",
                                      "state/new",
                                      "state/store/x",
                                      "state",
                                      "state/",
                                      "state/results",
                                      "state/results/",
                                      "home/../state/identity",
                                      "state/results/../identity",
                                      "state/models"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        refused(own[i], "lies in ringd's own folder");
    holds("state/identity", "secret");
    assert_int_equal(access(at("state/new"), F_OK), -1);
}

/* Results and models are read from there, and whatever lies elsewhere. */
static void files_of_the_daemon_are_not_read(void **unused)
{
    (void)unused;
    static const char *const own[] = {"state", "state/identity", "state/results/..", "home/to-identity",
                                      "home/to-state/identity"},
                             *const others[] = {"home/mine", "state/results/one",        "state/models/one",
                                                "stateful",  "home/to-state/models/one", "nowhere"};
    struct err err;
    put("state/results/one");
    put("state/models/one");
    assert_int_equal(symlink(at("state/identity"), at("home/to-identity")), 0);
    assert_int_equal(symlink("../state", at("home/to-state")), 0);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        assert_int_equal(output_path_check_input(state, "--data", at(own[i]), &err), -EPERM);
        assert_non_null(strstr(err.text, "lies in ringd's own folder"));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(output_path_check_input(state, "--data", at(others[i]), &err), 0);
}

static void links_are_not_followed(void **unused)
{
    (void)unused;
    assert_int_equal(symlink(at("state/identity"), at("home/link")), 0);
    assert_int_equal(symlink(at("home/mine"), at("home/plain")), 0);
    assert_int_equal(symlink(at("nowhere"), at("home/dangling")), 0);
    assert_int_equal(symlink(at("home"), at("home/folder")), 0);
    refused("home/link", "is a symbolic link");
    refused("home/plain", "is a symbolic link");
    refused("home/dangling", "is a symbolic link");
    refused("home/folder/", "is a symbolic link");
    /* One further up is followed, and the place it leads to counts. */
    assert_int_equal(symlink(state, at("home/up")), 0);
    refused("home/up/identity", "lies in ringd's own folder");
    write_to("home/folder/new", false);
    holds("home/new", "line");
    holds("state/identity", "secret");
    holds("home/mine", "secret");
}

/* Another process makes a folder on the way into a link to the daemon's own, and back, for ever. */
static pid_t begin_swapping(void)
{
    assert_int_equal(mkdir(at("home/way"), 0700), 0);
    assert_int_equal(symlink(state, at("home/trap")), 0);
    const pid_t child = fork();
    while (!child)
        renameat2(AT_FDCWD, at("home/way"), AT_FDCWD, at("home/trap"), RENAME_EXCHANGE);
    return child;
}

static void a_folder_that_becomes_a_link_leads_nowhere(void **unused)
{
    (void)unused;
    enum { TRIES = 3000 };
    const pid_t child = begin_swapping();
    size_t written = 0;
    for (int i = 0; i < TRIES; i++) {
        struct err err;
        FILE *f = NULL;
        if (!output_path_open(state, "--log", at("home/way/new"), false, &f, &err))
            written++, fclose(f);
        if (!output_path_open(state, "--log", at("home/way/identity"), false, &f, &err))
            written++, fclose(f);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(access(at("state/new"), F_OK), -1);
    holds("state/identity", "secret");
    print_message("%zu of %d files were written\n", written, 2 * TRIES);
}

static void what_is_no_file_is_not_opened(void **unused)
{
    (void)unused;
    struct err err = {""};
    FILE *f = NULL;
    assert_int_equal(mkfifo(at("home/fifo"), 0600), 0);
    assert_true(output_path_open(state, "--log", at("home/fifo"), false, &f, &err) < 0);
    assert_true(output_path_open(state, "--log", "/dev/null", false, &f, &err) < 0);
    assert_non_null(strstr(err.text, "is not a file"));
}

static void jobs_write_where_they_may(void **unused)
{
    (void)unused;
    write_to("home/mine", false);
    holds("home/mine", "line");
    write_to("home/mine", true);
    holds("home/mine", "lineline");
    write_to("state/results/log", false);
    write_to("state/models/log", true);
    write_to("stateful/log", false);
    holds("state/models/log", "line");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_of_the_daemon_are_not_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_of_the_daemon_are_not_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_are_not_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_becomes_a_link_leads_nowhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_not_opened, set_up, tear_down),
        cmocka_unit_test_setup_teardown(jobs_write_where_they_may, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
