/* SPDX-License-Identifier: MIT
 *
 * What systemd is told and hands over, with a socket in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/ringd/systemd.h"

/* At that path, or with '@' first at a name without a file. */
static int hear_at(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const size_t n = strlen(path);
    memcpy(a.sun_path, path, n);
    if (*path == '@')
        a.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)),
                     0);
    return fd;
}

static void tells(const char *path)
{
    char heard[64] = "";
    int fd = hear_at(path);
    setenv("NOTIFY_SOCKET", path, 1);
    systemd_notify("STOPPING=1\nSTATUS=stopping");
    assert_true(recv(fd, heard, sizeof heard - 1, MSG_DONTWAIT) > 0);
    assert_string_equal(heard, "STOPPING=1\nSTATUS=stopping");
    close(fd);
    unsetenv("NOTIFY_SOCKET");
}

static void systemd_is_told(void **state)
{
    char path[64], name[64];
    (void)state;
    snprintf(path, sizeof path, "/tmp/ringd-systemd-%d", (int)getpid());
    snprintf(name, sizeof name, "@ringd-systemd-%d", (int)getpid());
    tells(path);
    unlink(path);
    tells(name);
}

static void nobody_is_told_without_systemd(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    systemd_notify("READY=1");
    setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
    systemd_notify("READY=1");
    setenv("NOTIFY_SOCKET", "relative", 1);
    systemd_notify("READY=1");
    unsetenv("NOTIFY_SOCKET");
}

static void the_watchdog_is_for_this_process(void **state)
{
    char pid[16];
    (void)state;
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    assert_int_equal(systemd_watchdog_us(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_int_equal(systemd_watchdog_us(), 30000000);
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(systemd_watchdog_us(), 0);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(systemd_watchdog_us(), 30000000);
    setenv("WATCHDOG_USEC", "-1", 1);
    assert_int_equal(systemd_watchdog_us(), 0);
}

/* In a child, whose descriptors from 3 on are systemd's. */
static int child_of_systemd(const char *pid, const char *names, const char *name)
{
    fflush(NULL);
    const pid_t child = fork();
    int status = 0;
    if (!child) {
        char own[16];
        snprintf(own, sizeof own, "%d", (int)getpid());
        int fd = open("/dev/null", O_RDONLY);
        for (int at = 3; at < 5; at++)
            if (at != fd && dup2(fd, at) != at)
                _exit(99);
        setenv("LISTEN_PID", pid ? pid : own, 1);
        setenv("LISTEN_FDS", "2", 1);
        if (names)
            setenv("LISTEN_FDNAMES", names, 1);
        else
            unsetenv("LISTEN_FDNAMES");
        const int found = systemd_socket(name);
        if (found >= 0 && (fcntl(3, F_GETFD) != FD_CLOEXEC || fcntl(4, F_GETFD) != FD_CLOEXEC))
            _exit(98);
        _exit(found < 0 ? 0 : found);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
}

static void a_socket_is_found_by_its_name(void **state)
{
    (void)state;
    assert_int_equal(child_of_systemd(NULL, "peer:control", "peer"), 3);
    assert_int_equal(child_of_systemd(NULL, "peer:control", "control"), 4);
    assert_int_equal(child_of_systemd(NULL, "peer:control", "cont"), 0);
    assert_int_equal(child_of_systemd(NULL, "control", "control"), 3);
    assert_int_equal(child_of_systemd(NULL, NULL, "control"), 0);
    assert_int_equal(child_of_systemd("1", "peer:control", "peer"), 0);
}

static void an_entry_has_the_form_of_the_journal(void **state)
{
    static const struct systemd_field fields[] = {{"MESSAGE", "one\ntwo"}, {"PRIORITY", "6"}};
    static const char expected[] = "MESSAGE\n\7\0\0\0\0\0\0\0one\ntwo\nPRIORITY=6\n";
    char entry[64];
    (void)state;
    assert_int_equal(systemd_encode(fields, 2, entry, sizeof entry), sizeof expected - 1);
    assert_memory_equal(entry, expected, sizeof expected - 1);
    assert_int_equal(systemd_encode(fields, 2, entry, sizeof expected - 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(systemd_is_told),
        cmocka_unit_test(nobody_is_told_without_systemd),
        cmocka_unit_test(the_watchdog_is_for_this_process),
        cmocka_unit_test(a_socket_is_found_by_its_name),
        cmocka_unit_test(an_entry_has_the_form_of_the_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
