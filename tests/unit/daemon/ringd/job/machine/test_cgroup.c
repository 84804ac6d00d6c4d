/* SPDX-License-Identifier: MIT
 *
 * Control groups of stages, on a folder with files of the same names: what is written where, and
 * what is read from the kernel's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/ringd/job/machine/cgroup.h"

static char folder[] = "/tmp/ringd-scope-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect(const char *name, const char *text)
{
    char path[256], got[64] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    if (!fgets(got, sizeof got, f))
        got[0] = '\0';
    fclose(f);
    assert_string_equal(got, text);
}

static void drop(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(remove(path), 0);
}

static void make(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(strrchr(folder, '-'), "-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void the_daemon_makes_room_for_children(void **state)
{
    (void)state;
    char pid[16];
    assert_int_equal(cgroup_prepare(folder), -ENOENT); /* no group at all: nothing to write to */
    put("daemon/cgroup.procs", "");
    assert_int_equal(cgroup_prepare(folder), -ENOENT);
    put("cgroup.subtree_control", "");
    assert_int_equal(cgroup_prepare(folder), 0);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    expect("daemon/cgroup.procs", pid);
    expect("cgroup.subtree_control", "+memory");
    /* What the daemon has started moves first; a file that is no group's keeps the rest of what was
     * longer. */
    char both[32];
    static const char child[] = "123456789";
    put("cgroup.procs", child);
    assert_int_equal(cgroup_prepare(folder), 0);
    snprintf(both, sizeof both, "%s%s", pid, child + strlen(pid));
    expect("daemon/cgroup.procs", both);
    drop("cgroup.procs");
    drop("daemon/cgroup.procs");
    drop("daemon");
    drop("cgroup.subtree_control");
}

static void says(const struct cgroup *s, const char *how, const char *sentence)
{
    char text[400];
    cgroup_why_ended(text, sizeof text, s, UINT64_C(2) << 30, UINT64_C(5) << 29, how);
    assert_string_equal(text, sentence);
}

static void a_stage_is_limited_and_its_end_explained(void **state)
{
    (void)state;
    struct cgroup *s;
    make("job-7-4711");
    put("job-7-4711/cgroup.procs", "");
    put("job-7-4711/memory.max", "max");
    assert_int_equal(cgroup_new(&s, folder, 7, 4711), 0); /* one left behind is used again */
    assert_int_equal(cgroup_add(s, 4711), 0);
    expect("job-7-4711/cgroup.procs", "4711");
    assert_int_equal(cgroup_limit(s, UINT64_C(12) << 30), 0);
    expect("job-7-4711/memory.max", "12884901888");
    cgroup_weigh(s, JOB_CLASS_TRAIN);
    assert_false(cgroup_is_weighed(s)); /* this kernel's groups have none */
    put("job-7-4711/cpu.weight", "100");
    put("job-7-4711/cpu.idle", "0");
    cgroup_weigh(s, JOB_CLASS_TRAIN);
    assert_true(cgroup_is_weighed(s));
    expect("job-7-4711/cpu.idle", "1");
    drop("job-7-4711/cpu.idle");
    cgroup_weigh(s, JOB_CLASS_SERVE);
    expect("job-7-4711/cpu.weight", "10000");
    drop("job-7-4711/cpu.weight");
    assert_false(cgroup_ran_out(s));
    put("job-7-4711/memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 0\noom_group_kill 0\n");
    assert_false(cgroup_ran_out(s));
    says(s, "was killed by signal 9", "the stage process was killed by signal 9");
    says(s, "", "the stage process ended before the job did");
    put("job-7-4711/memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n");
    assert_true(cgroup_ran_out(s));
    says(s, "was killed by SIGKILL: by whom",
         "the stage process was killed: out of memory, 2.0 GiB were planned and it had 2.5 GiB of at most "
         "2.5 GiB; "
         "another split, a smaller --seq-len or --micro-batch-size, or --memory-limit helps");
    says(NULL, "was killed by SIGKILL: by whom", /* nobody knows */
         "the stage process was killed by SIGKILL: by whom; 2.0 GiB were planned and it had 2.5 GiB; if "
         "memory ran out, "
         "another split, a smaller --seq-len or --micro-batch-size, or --memory-limit helps");
    drop("job-7-4711/memory.events");
    drop("job-7-4711/memory.max");
    assert_int_equal(cgroup_remove(s), -EBUSY); /* to be tried again */
    drop("job-7-4711/cgroup.procs");
    assert_int_equal(cgroup_remove(s), 0);
    cgroup_free(s);
}

static pid_t sleeper(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    return pid;
}

static void all_processes_of_a_group_end(void **state)
{
    (void)state;
    struct cgroup *s;
    char list[64];
    int status[2];
    const pid_t pid[2] = {sleeper(), sleeper()};
    assert_int_equal(cgroup_new(&s, folder, 7, 4711), 0);
    snprintf(list, sizeof list, "0\n%d\n%d\n", (int)pid[0], (int)pid[1]);
    put("job-7-4711/cgroup.procs", list);
    put("job-7-4711/cgroup.kill", "");
    cgroup_kill(s);
    expect("job-7-4711/cgroup.kill", "1"); /* the kernel's to do */
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(waitpid(pid[i], &status[i], WNOHANG), 0);
    drop("job-7-4711/cgroup.kill");
    cgroup_kill(s); /* an older kernel has no such file */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(waitpid(pid[i], &status[i], 0), pid[i]);
        assert_true(WIFSIGNALED(status[i]));
    }
    drop("job-7-4711/cgroup.procs");
    assert_int_equal(cgroup_remove(s), 0);
    cgroup_free(s);
}

static void without_a_group_nothing_is_claimed(void **state)
{
    (void)state;
    struct cgroup *s = NULL;
    char path[64];
    assert_int_equal(cgroup_new(&s, "/nonexistent/group", 1, 4711), -ENOENT);
    assert_null(s);
    assert_int_equal(cgroup_find_delegated(path, 4), -ENOENT); /* no room for any */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_daemon_makes_room_for_children, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stage_is_limited_and_its_end_explained, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_processes_of_a_group_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_group_nothing_is_claimed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
