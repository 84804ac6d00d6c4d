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

#include "daemon/common/ipc.h"

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
    assert_int_equal(ipc_send(pair[0], json_incref(sent)), 0);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), 0);
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
    struct ipc_frame *frame;
    assert_int_equal(pipe(pipe_fd), 0);
    assert_int_equal(ipc_send(pair[0], json_object()), 0);
    assert_int_equal(ipc_frame_new(&frame, json_object(), pipe_fd[1]), 0);
    close(pipe_fd[1]);
    assert_int_equal(ipc_frame_push(frame, pair[0]), 0);
    assert_int_equal(ipc_frame_left(frame), 0);
    ipc_frame_free(frame);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), 0);
    assert_int_equal(fd, -1); /* it belongs to the second */
    json_decref(got);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), 0);
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(fd);
    close(pipe_fd[0]);
    json_decref(got);
}

static void count_call(void *owner)
{
    ++*(int *)owner;
}

/* As a job's files come: an object that names them, and then they. */
static void descriptors_come_together_or_not_at_all(void **state)
{
    int *pair = *state, pipe_fd[2], fds[IPC_FDS_MAX], got_fds[IPC_FDS_MAX], fd, calls = 0;
    json_t *got;
    struct ipc_frame *frame;
    assert_int_equal(pipe(pipe_fd), 0);
    for (size_t i = 0; i < IPC_FDS_MAX; i++)
        fds[i] = pipe_fd[i % 2];
    assert_int_equal(ipc_frame_new_fds(&frame, fds, 0, count_call, &calls), -E2BIG);
    assert_int_equal(ipc_frame_new_fds(&frame, fds, IPC_FDS_MAX + 1, count_call, &calls), -E2BIG);
    assert_int_equal(ipc_send(pair[0], json_object()), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ipc_frame_new_fds(&frame, fds, IPC_FDS_MAX, count_call, &calls), 0);
        assert_int_equal(calls, i);
        assert_int_equal(ipc_frame_push(frame, pair[0]), 0);
        assert_int_equal(calls, i + 1); /* when they have left */
        ipc_frame_free(frame);
        assert_int_equal(calls, i + 1); /* and once */
    }
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), 0);
    assert_int_equal(fd, -1);
    json_decref(got);
    assert_int_equal(ipc_receive_fds(pair[1], got_fds, IPC_FDS_MAX), 0);
    for (size_t i = 0; i < IPC_FDS_MAX; i++) {
        assert_true(fcntl(got_fds[i], F_GETFD) & FD_CLOEXEC);
        close(got_fds[i]);
    }
    const int free_fd = dup(0);
    close(free_fd);
    assert_int_equal(ipc_receive_fds(pair[1], got_fds, 2), -EBADMSG); /* other than were named */
    fd = dup(0);
    assert_int_equal(fd, free_fd); /* none stays */
    close(fd);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    assert_int_equal(ipc_frame_new_fds(&frame, fds, 1, count_call, &calls), 0);
    ipc_frame_free(frame); /* never sent */
    assert_int_equal(calls, 3);
    close(pair[0]);
    pair[0] = -1;
    assert_int_equal(ipc_receive_fds(pair[1], got_fds, 1), -EPIPE);
}

static void a_lane_is_no_object(void **state)
{
    int *pair = *state, fd;
    json_t *got;
    struct ipc_frame *frame;
    struct ipc_lane in, out;
    memset(&out, 0x5a, sizeof out);
    out.path = UINT64_C(1) << 63;
    out.rank = 3;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ipc_frame_new_lane(&frame, &out, pair[0]), 0);
        assert_int_equal(ipc_frame_push(frame, pair[0]), 0);
        ipc_frame_free(frame);
    }
    assert_int_equal(ipc_receive(pair[1], &got, &in, &fd), 1);
    assert_memory_equal(&in, &out, sizeof out);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), -EBADMSG); /* nobody wants one */
    close(fd);
}

/* Three megabytes, and one more message with a descriptor, through a socket that takes a fraction
 * of that at a time. */
static void what_the_socket_does_not_take_waits(void **state)
{
    static char text[3 << 20];
    int *pair = *state, fd, turns = 0;
    struct ipc_frame *large, *next;
    json_t *got;
    char piece[65536];
    size_t n = 0;
    memset(text, 'b', sizeof text - 1);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    assert_int_equal(ipc_frame_new(&large, json_pack("{s:s}", "text", text), -1), 0);
    assert_int_equal(ipc_frame_new(&next, json_object(), pair[0]), 0);
    size_t left = ipc_frame_left(large);
    while (ipc_frame_push(large, pair[0]) == -EAGAIN) {
        assert_true(ipc_frame_left(large) < left);
        ssize_t got_bytes = recv(pair[1], piece, sizeof piece, 0);
        assert_true(got_bytes > 0);
        n += (size_t)got_bytes;
        turns++;
    }
    assert_true(turns > 1);
    for (; n < left; n += (size_t)recv(pair[1], piece, left - n < sizeof piece ? left - n : sizeof piece, 0))
        ;
    assert_int_equal(ipc_frame_push(next, pair[0]), 0);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), 0);
    assert_true(fd >= 0);
    close(fd);
    json_decref(got);
    ipc_frame_free(large);
    ipc_frame_free(next);
}

static void *send_large(void *arg)
{
    static char text[3 << 20];
    memset(text, 'a', sizeof text - 1);
    int r = ipc_send(*(int *)arg, json_pack("{s:s}", "text", text));
    return r ? arg : NULL;
}

static void a_large_one_comes_in_pieces(void **state)
{
    int *pair = *state, fd;
    pthread_t sender;
    void *failed;
    json_t *got;
    assert_int_equal(pthread_create(&sender, NULL, send_large, &pair[0]), 0);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), 0);
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
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), -EPIPE);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), -EPIPE);
    assert_int_equal(ipc_send(pair[1], json_object()), -EPIPE);
}

static void nonsense_is_refused(void **state)
{
    int *pair = *state, fd;
    json_t *got;
    assert_int_equal(write(pair[0], "\x02\0\0\0{[", 6), 6);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), -EBADMSG);
    assert_int_equal(write(pair[0], "\0\0\0\0", 4), 4);
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), -EBADMSG);
    assert_int_equal(write(pair[0], "\1\0\0\4", 4), 4); /* more than IPC_MAX */
    assert_int_equal(ipc_receive(pair[1], &got, NULL, &fd), -EBADMSG);
}

/* The daemon does not wait for a stage that does not read. */
static void a_full_socket_is_told(void **state)
{
    int *pair = *state, r = 0;
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 100000 && !r; i++)
        r = ipc_send(pair[0], json_pack("{s:s}", "text", "something to fill it with"));
    assert_int_equal(r, -EAGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(objects_keep_their_digits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_descriptor_comes_along, set_up, tear_down),
        cmocka_unit_test_setup_teardown(descriptors_come_together_or_not_at_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lane_is_no_object, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_socket_does_not_take_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_large_one_comes_in_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_socket_is_told, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("ipc", tests, NULL, NULL);
}
