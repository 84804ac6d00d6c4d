/* SPDX-License-Identifier: MIT
 *
 * Copies on the disk: what a later process finds of them, two turns, and what it makes of a file
 * that a crash has torn, of another shape, or of another job. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stage/hold/held_file.h"

enum { UNITS = 4, PAGE = 4096, HEADS = 2 * PAGE, JOB = 77 };

/* A rank that trains units 2 and 3; the one before it units 0 and 1. A unit has u + 1 values. */
struct written {
    struct held_shape shape;
    size_t bytes[UNITS];
    struct held_part own, previous;
    uint8_t values[HELD_OF][64];
    struct held_turn turn;
    int fd;
};

static bool is_torn_now;

static bool is_torn(void *owner)
{
    (void)owner;
    return is_torn_now;
}

static void begin(struct written *w)
{
    *w = (struct written){.fd = memfd_create("test", MFD_CLOEXEC)};
    assert_true(w->fd >= 0);
    for (size_t u = 0; u < UNITS; u++)
        w->bytes[u] = (u + 1) * sizeof(float);
    w->shape = (struct held_shape){.adapters = 1, .units = UNITS, .bytes = w->bytes};
    w->own.has[0] = 12;
    w->own.bytes = w->bytes[2] + w->bytes[3];
    w->previous.has[0] = 3;
    w->previous.bytes = w->bytes[0] + w->bytes[1];
    w->turn = (struct held_turn){.job = JOB,
                                 .part = {&w->own, &w->previous},
                                 .values = {w->values[0], w->values[1]},
                                 .is_torn = is_torn};
    is_torn_now = false;
}

static int put(struct written *w, size_t turn, uint64_t step)
{
    memset(w->values, (int)step, sizeof w->values);
    w->turn.step = step;
    return held_file_write(w->fd, turn, &w->turn);
}

/* The steps of both turns: own parts first, then those of the rank before. */
static void assert_found(struct written *w, uint64_t job, uint64_t first, uint64_t second)
{
    struct held_memory m;
    assert_true(held_file_open(&m, w->fd, &w->shape, job));
    for (size_t i = 0; i < HELD_PARTS; i++)
        assert_int_equal(m.part[i].step, i % HELD_TURNS ? second : first);
    for (size_t i = 0; i < HELD_PARTS; i++)
        for (size_t at = 0; m.part[i].step && at < m.part[i].bytes; at++)
            assert_int_equal(held_memory_at(&m, i)[at], m.part[i].step);
    held_memory_done(&m);
}

static void the_last_two_steps_are_found(void **state)
{
    struct written w;
    (void)state;
    begin(&w);
    assert_int_equal(put(&w, 0, 5), 0);
    assert_found(&w, JOB, 5, 0);
    assert_int_equal(put(&w, 1, 8), 0);
    assert_found(&w, JOB, 5, 8);
    assert_int_equal(put(&w, 0, 11), 0);
    assert_found(&w, JOB, 11, 8);
    close(w.fd);
}

/* Each byte of a turn that is not as it was written; the other turn stays whole. */
static void a_torn_turn_counts_as_empty(void **state)
{
    struct written w;
    (void)state;
    begin(&w);
    assert_int_equal(put(&w, 0, 5), 0);
    assert_int_equal(put(&w, 1, 8), 0);
    const off_t own = HEADS, previous = own + (off_t)w.own.bytes, end = previous + (off_t)w.previous.bytes;
    const off_t places[] = {0, 8, 16, 24, 40, own, previous - 1, previous, end - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint8_t byte;
        assert_int_equal(pread(w.fd, &byte, 1, places[i]), 1);
        byte ^= 1;
        assert_int_equal(pwrite(w.fd, &byte, 1, places[i]), 1);
        assert_found(&w, JOB, 0, 8);
        byte ^= 1;
        assert_int_equal(pwrite(w.fd, &byte, 1, places[i]), 1);
        assert_found(&w, JOB, 5, 8);
    }
    /* Cut short within the second turn. */
    assert_int_equal(ftruncate(w.fd, end + 3), 0);
    assert_found(&w, JOB, 5, 0);
    close(w.fd);
}

static void memory_that_changed_meanwhile_is_not_kept(void **state)
{
    struct written w;
    (void)state;
    begin(&w);
    assert_int_equal(put(&w, 0, 5), 0);
    assert_int_equal(put(&w, 1, 8), 0);
    is_torn_now = true;
    assert_int_equal(put(&w, 0, 11), -ECANCELED);
    assert_found(&w, JOB, 0, 8);
    close(w.fd);
}

static void another_job_and_another_shape_have_nothing(void **state)
{
    struct written w;
    struct held_memory m;
    (void)state;
    begin(&w);
    assert_false(held_file_open(&m, w.fd, &w.shape, JOB)); /* nobody has written it */
    assert_int_equal(put(&w, 0, 5), 0);
    assert_found(&w, JOB + 1, 0, 0);
    w.bytes[3] += sizeof(float);
    assert_found(&w, JOB, 0, 0);
    close(w.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_two_steps_are_found),
        cmocka_unit_test(a_torn_turn_counts_as_empty),
        cmocka_unit_test(memory_that_changed_meanwhile_is_not_kept),
        cmocka_unit_test(another_job_and_another_shape_have_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
