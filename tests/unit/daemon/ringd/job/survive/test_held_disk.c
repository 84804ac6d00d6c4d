/* SPDX-License-Identifier: MIT
 *
 * Files of copies on the disk: they get a name when a step is whole, outlive the daemon, go with
 * their job alone, and after a month by themselves. */
#include <dirent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/ringd/job/survive/held_disk.h"
#include "daemon/ringd/mailbox.h"

static const uint8_t a[16] = {0xa1}, b[16] = {0xb2};
#define OF_A "a1000000000000000000000000000000"

struct world {
    char dir[64];
    struct event_base *base;
    struct mailbox *mailbox;
    struct held_disk *disk;
    size_t removed;
    int kept; /* how often it was said */
};

static void on_kept(void *owner, json_t *event)
{
    struct world *w = owner;
    assert_null(json_object_get(event, "error"));
    w->kept++;
    event_base_loopbreak(w->base);
}

static void open_disk(struct world *w)
{
    struct err err;
    assert_int_equal(mailbox_new(&w->mailbox, w->base), 0);
    const struct held_disk_setup setup = {w->dir, w->mailbox, on_kept, w};
    assert_int_equal(held_disk_open(&w->disk, &setup, &w->removed, &err), 0);
}

static void close_disk(struct world *w)
{
    held_disk_free(w->disk);
    mailbox_free(w->mailbox);
}

static void begin(struct world *w)
{
    *w = (struct world){.dir = "/tmp/ringd-held-XXXXXX", .base = event_base_new()};
    assert_non_null(mkdtemp(w->dir));
    open_disk(w);
}

static void end(struct world *w)
{
    char command[100];
    close_disk(w);
    event_base_free(w->base);
    snprintf(command, sizeof command, "rm -r %s", w->dir);
    assert_int_equal(system(command), 0);
}

/* A process begins: how many files there were, and the new one, which the thread may still make. */
static size_t start(struct world *w, const uint8_t *head, uint64_t job, int *ret)
{
    int before[HELD_DISK_MAX];
    size_t n = held_disk_begin(w->disk, head, job, before, ret);
    while (*ret < 0) {
        event_base_loop(w->base, EVLOOP_ONCE);
        n = held_disk_begin(w->disk, head, job, before, ret);
    }
    return n;
}

static void keep(struct world *w)
{
    json_t *event = json_pack("{s:i}", "step", 5);
    const int before = w->kept;
    held_disk_kept(w->disk, event);
    json_decref(event);
    while (w->kept == before)
        event_base_dispatch(w->base);
}

static size_t files_of(const struct world *w, const char *job)
{
    char path[200];
    snprintf(path, sizeof path, "%s/held/%s", w->dir, job);
    DIR *dir = opendir(path);
    size_t n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += *e->d_name != '.';
    if (dir)
        closedir(dir);
    return n;
}

static void what_is_whole_outlives_the_daemon(void **state)
{
    struct world w;
    int fd;
    (void)state;
    begin(&w);
    assert_int_equal(start(&w, a, 7, &fd), 0);
    assert_int_equal(files_of(&w, OF_A "-7"), 0); /* nothing is whole in it */
    assert_int_equal(write(fd, "copies", 6), 6);
    keep(&w);
    assert_int_equal(files_of(&w, OF_A "-7"), 1);
    close_disk(&w);
    open_disk(&w);
    assert_int_equal(w.removed, 0);
    int before[HELD_DISK_MAX];
    assert_int_equal(held_disk_begin(w.disk, a, 7, before, &fd), 1);
    char text[6];
    assert_int_equal(pread(before[0], text, 6, 0), 6);
    assert_memory_equal(text, "copies", 6);
    /* The same number of another head is another job, and so is another number. */
    assert_int_equal(start(&w, b, 7, &fd), 0);
    assert_int_equal(start(&w, a, 8, &fd), 0);
    end(&w);
}

static void earlier_files_stay_until_all_ranks_have_a_later_step(void **state)
{
    struct world w;
    int fd;
    (void)state;
    begin(&w);
    for (size_t i = 0; i < 4; i++) { /* processes that end before it is settled */
        assert_int_equal(start(&w, a, 7, &fd), i < HELD_DISK_MAX ? i : HELD_DISK_MAX);
        keep(&w);
    }
    held_disk_settled(w.disk);
    assert_int_equal(start(&w, a, 7, &fd), 1);
    held_disk_settled(w.disk); /* of a file in which nothing is whole yet: it says nothing */
    assert_int_equal(start(&w, a, 7, &fd), 1);
    end(&w);
}

static void files_go_with_their_job(void **state)
{
    struct world w;
    int fd;
    (void)state;
    begin(&w);
    start(&w, a, 7, &fd);
    keep(&w);
    start(&w, b, 9, &fd);
    keep(&w);
    held_disk_drop(w.disk, b, 7); /* of a job that was never here */
    held_disk_drop(w.disk, a, 7);
    close_disk(&w); /* the thread does what waits */
    assert_int_equal(files_of(&w, OF_A "-7"), 0);
    open_disk(&w);
    assert_int_equal(start(&w, a, 7, &fd), 0);
    assert_int_equal(start(&w, b, 9, &fd), 1);
    end(&w);
}

static void what_nobody_asks_for_goes_after_a_month(void **state)
{
    struct world w;
    int fd;
    (void)state;
    begin(&w);
    start(&w, a, 7, &fd);
    keep(&w);
    const struct timespec old[2] = {{time(NULL) - (HELD_DISK_DAYS + 1) * 86400, 0},
                                    {time(NULL) - (HELD_DISK_DAYS + 1) * 86400, 0}};
    assert_int_equal(futimens(fd, old), 0);
    start(&w, b, 9, &fd);
    keep(&w);
    close_disk(&w);
    open_disk(&w);
    assert_int_equal(w.removed, 1);
    assert_int_equal(files_of(&w, OF_A "-7"), 0);
    assert_int_equal(start(&w, b, 9, &fd), 1);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_whole_outlives_the_daemon),
        cmocka_unit_test(earlier_files_stay_until_all_ranks_have_a_later_step),
        cmocka_unit_test(files_go_with_their_job),
        cmocka_unit_test(what_nobody_asks_for_goes_after_a_month),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
