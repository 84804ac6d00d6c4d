/* SPDX-License-Identifier: MIT
 *
 * The process that has the keys, as ringd sees it: the real one, and ones that die in the middle
 * of a request, speak unasked, or say what is no answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/ringd/cluster/keys_process.h"
#include "tests/lib/own_keys.h"

struct place {
    char dir[64], path[128];
    struct keys_process *process;
    struct keys *keys;
    struct event_base *base;
    unsigned lost;
    char why[300];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/ringd-keys-XXXXXX");
    p->base = event_base_new();
    *state = p;
    return !mkdtemp(p->dir);
}

static int teardown(void **state)
{
    static const char *const files[] = {"identity", "socket", "keeper"};
    struct place *p = *state;
    keys_close(p->keys);
    keys_process_close(p->process);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(p->path, sizeof p->path, "%s/%s", p->dir, files[i]);
        unlink(p->path);
    }
    rmdir(p->dir);
    event_base_free(p->base);
    free(p);
    return 0;
}

static const char *program(void)
{
    static char path[PATH_MAX];
    own_program(path, "ringd-keys");
    return path;
}

static void lost(void *owner, const char *why)
{
    struct place *p = owner;
    p->lost++;
    snprintf(p->why, sizeof p->why, "%s", why);
    event_base_loopbreak(p->base);
}

static int begin(struct place *p, const char *binary, struct err *err)
{
    int r = keys_process_start(&p->process, binary, p->dir, err);
    return r ? r : keys_open(&p->keys, &(struct keys_setup){keys_process_ask, p->process}, err);
}

static int sign(struct place *p)
{
    const struct auth_identity *id = keys_identity(p->keys);
    uint8_t signature[AUTH_SIGNATURE];
    int r = id->sign(id->holder, AUTH_RECORD, "text", 4, signature);
    if (!r)
        assert_true(auth_verify(id->sign_pub, AUTH_RECORD, "text", 4, signature));
    return r;
}

static pid_t child_of_ours(void)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    fclose(f);
    return pid;
}

/* Its keys are the same when it is started again. */
static void test_the_real_one(void **state)
{
    struct place *p = *state;
    uint8_t pub[AUTH_KEY];
    struct err err;
    assert_int_equal(begin(p, program(), &err), 0);
    memcpy(pub, keys_identity(p->keys)->pub, sizeof pub);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(sign(p), 0);
    keys_close(p->keys);
    keys_process_close(p->process);
    p->keys = NULL;
    p->process = NULL;
    assert_int_equal(begin(p, program(), &err), 0);
    assert_memory_equal(pub, keys_identity(p->keys)->pub, sizeof pub);
}

static void test_killed(void **state)
{
    struct place *p = *state;
    struct err err;
    assert_int_equal(begin(p, program(), &err), 0);
    keys_process_watch(p->process, p->base, lost, p);
    assert_int_equal(kill(child_of_ours(), SIGKILL), 0);
    event_base_dispatch(p->base); /* while nothing is asked */
    assert_int_equal(p->lost, 1);
    assert_non_null(strstr(p->why, "was killed by SIGKILL"));
    assert_int_equal(sign(p), -EPIPE);
    assert_int_equal(p->lost, 1);
    assert_string_equal(keys_process_trouble(p->process), p->why);
}

static void write_program(struct place *p, const char *text)
{
    snprintf(p->path, sizeof p->path, "%s/keeper", p->dir);
    FILE *f = fopen(p->path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(p->path, 0700), 0);
}

static void test_sentences(void **state)
{
    struct place *p = *state;
    struct err err;
    assert_int_equal(begin(p, "/nowhere/ringd-keys", &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/ringd-keys: No such file"));
    write_program(p, "#!/bin/sh\nexit 0\n");
    assert_true(begin(p, p->path, &err) < 0);
    assert_non_null(strstr(err.text, "same version of both"));
    keys_process_close(p->process);
    snprintf(p->path, sizeof p->path, "%s/identity", p->dir);
    FILE *f = fopen(p->path, "w");
    fputs("short", f);
    fclose(f);
    chmod(p->path, 0600);
    assert_true(begin(p, program(), &err) < 0);
    assert_non_null(strstr(err.text, "identity is damaged"));
}

/* --- one whose bytes the test writes ----------------------------------------- */

/* ends[0] is ringd's. */
static void connect_both(int ends[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

/* It takes a request, and is gone. */
static void test_killed_in_the_middle_of_a_request(void **state)
{
    struct place *p = *state;
    struct err err;
    int ends[2];
    connect_both(ends);
    const pid_t keeper = fork();
    if (!keeper) {
        static uint8_t bytes[KEYS_REQUEST_MAX];
        const int far = ends[1];
        close(ends[0]);
        const bool asked = recv(far, bytes, sizeof bytes, 0) == 1;
        memset(bytes, 0, sizeof bytes);
        const bool told = asked && send(far, bytes, KEYS_ERROR + 2 * AUTH_KEY, 0) > 0;
        _exit(!told || recv(far, bytes, sizeof bytes, 0) <= 0);
    }
    close(ends[1]);
    p->process = keys_process_on(ends[0], 0);
    assert_int_equal(keys_open(&p->keys, &(struct keys_setup){keys_process_ask, p->process}, &err), 0);
    keys_process_watch(p->process, p->base, lost, p);
    assert_int_equal(sign(p), -EPIPE);
    assert_int_equal(p->lost, 1);
    assert_non_null(strstr(p->why, "ended"));
    int status;
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
    assert_int_equal(status, 0);
}

/* Answers are there before they are asked for: the test has one thread. */
static void test_answers_that_are_none(void **state)
{
    struct place *p = *state;
    static const uint8_t hello[KEYS_ERROR + 2 * AUTH_KEY], longest[KEYS_ANSWER_MAX + 1];
    static const struct {
        size_t n;
        int error;
    } answers[] = {{1, -EPROTO}, {KEYS_ERROR, -EPROTO}, {KEYS_ERROR + 63, -EPROTO}, {sizeof longest, -EPIPE}};
    struct err err;
    int ends[2];
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        connect_both(ends);
        const int far = ends[1];
        p->process = keys_process_on(ends[0], 0);
        assert_int_equal(send(far, hello, sizeof hello, 0), sizeof hello);
        assert_int_equal(keys_open(&p->keys, &(struct keys_setup){keys_process_ask, p->process}, &err), 0);
        assert_int_equal(send(far, longest, answers[i].n, 0), answers[i].n);
        assert_int_equal(sign(p), answers[i].error);
        assert_int_equal(!keys_process_trouble(p->process), answers[i].error == -EPROTO);
        keys_close(p->keys);
        keys_process_close(p->process);
        close(far);
    }
    connect_both(ends);
    const int far = ends[1];
    p->process = keys_process_on(ends[0], 0);
    keys_process_watch(p->process, p->base, lost, p);
    assert_int_equal(send(far, hello, 3, 0), 3);
    event_base_dispatch(p->base);
    assert_non_null(strstr(p->why, "without being asked"));
    p->keys = NULL;
    close(far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_real_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed_in_the_middle_of_a_request, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sentences, setup, teardown),
        cmocka_unit_test_setup_teardown(test_answers_that_are_none, setup, teardown),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
