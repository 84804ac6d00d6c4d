/* SPDX-License-Identifier: MIT
 *
 * Objects and descriptors between a daemon and its stage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ipc.h"

static int set_up(void **state)
{
    static int pair[2];
    *state = pair;
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
}

static int tear_down(void **state)
{
    int *pair = *state;
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    return 0;
}

static void objects_keep_their_digits(void **state)
{
    int *pair = *state, fd = 0;
    json_t *got, *sent = json_pack("{s:s s:f s:I s:[]}", "do", "open \xc3\xa9", "x", 0.1, "n",
                                   (json_int_t)INT64_MAX, "list");
    assert_int_equal(ipc_send(pair[0], json_incref(sent), -1), 0);
    assert_int_equal(ipc_receive(pair[1], &got, &fd), 0);
    assert_int_equal(fd, -1);
    assert_true(json_equal(sent, got));
    json_decref(got);
    json_decref(sent);
}

static void a_descriptor_comes_along(void **state)
{
    int *pair = *state, fd, pipe_fd[2];
    char byte = 0;
    json_t *got;
    assert_int_equal(pipe(pipe_fd), 0);
    assert_int_equal(ipc_send(pair[0], json_object(), -1), 0);
    assert_int_equal(ipc_send(pair[0], json_object(), pipe_fd[1]), 0);
    close(pipe_fd[1]);
    assert_int_equal(ipc_receive(pair[1], &got, &fd), 0);
    assert_int_equal(fd, -1); /* it belongs to the second */
    json_decref(got);
    assert_int_equal(ipc_receive(pair[1], &got, &fd), 0);
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(fd);
    close(pipe_fd[0]);
    json_decref(got);
}

static void *send_large(void *arg)
{
    static char text[3 << 20];
    memset(text, 'a', sizeof text - 1);
    int r = ipc_send(*(int *)arg, json_pack("{s:s}", "text", text), -1);
    return r ? arg : NULL;
}

static void a_large_one_comes_in_pieces(void **state)
{
    int *pair = *state, fd;
    pthread_t sender;
    void *failed;
    json_t *got;
    assert_int_equal(pthread_create(&sender, NULL, send_large, &pair[0]), 0);
    assert_int_equal(ipc_receive(pair[1], &got, &fd), 0);
    pthread_join(sender, &failed);
    assert_null(failed);
    assert_int_equal(json_string_length(json_object_get(got, "text")), (3 << 20) - 1);
    json_decref(got);
}

static void an_end_is_told(void **state)
{
    int *pair = *state, fd;
    json_t *got;
    assert_int_equal(write(pair[0], "\x08\0\0\0{", 5), 5); /* and never the rest */
    close(pair[0]);
    pair[0] = -1;
    assert_int_equal(ipc_receive(pair[1], &got, &fd), -EPIPE);
    assert_int_equal(ipc_receive(pair[1], &got, &fd), -EPIPE);
    assert_int_equal(ipc_send(pair[1], json_object(), -1), -EPIPE);
}

static void nonsense_is_refused(void **state)
{
    int *pair = *state, fd;
    json_t *got;
    assert_int_equal(write(pair[0], "\x02\0\0\0{[", 6), 6);
    assert_int_equal(ipc_receive(pair[1], &got, &fd), -EBADMSG);
    assert_int_equal(write(pair[0], "\0\0\0\0", 4), 4);
    assert_int_equal(ipc_receive(pair[1], &got, &fd), -EBADMSG);
    assert_int_equal(write(pair[0], "\1\0\0\4", 4), 4); /* more than IPC_MAX */
    assert_int_equal(ipc_receive(pair[1], &got, &fd), -EBADMSG);
}

/* The daemon does not wait for a stage that does not read. */
static void a_full_socket_is_told(void **state)
{
    int *pair = *state, r = 0;
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 100000 && !r; i++)
        r = ipc_send(pair[0], json_pack("{s:s}", "text", "something to fill it with"), -1);
    assert_int_equal(r, -EAGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(objects_keep_their_digits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_descriptor_comes_along, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_large_one_comes_in_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_socket_is_told, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("ipc", tests, NULL, NULL);
}
