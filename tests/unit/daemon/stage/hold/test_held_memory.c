/* SPDX-License-Identifier: MIT
 *
 * Files of copies: which parts a rank has, what a later process finds of them, and what it makes of
 * a file that was cut or changed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stage/hold/held_memory.h"

enum { LAYERS = 3, UNITS = LAYERS + 2 };

/* Pieces as the parameters of some adapter might be cut: unit u has u + 1 values in two pieces, but
 * unit 2 none. */
static struct held_shape shape_of(size_t adapters)
{
    struct held_shape s = {.adapters = adapters, .units = UNITS};
    s.pieces = test_calloc(adapters, sizeof *s.pieces);
    s.bytes = test_calloc(adapters * UNITS, sizeof *s.bytes);
    for (size_t a = 0; a < adapters; a++)
        for (size_t u = 0; u < UNITS; u++)
            s.bytes[a * UNITS + u] = u == 2 ? 0 : (u + 1) * sizeof(float);
    return s;
}

static void done(struct held_shape *s)
{
    test_free(s->pieces);
    test_free(s->bytes);
}

static struct job_plan plan_of(size_t ranks)
{
    struct job_plan p = {.ranks = ranks, .stages = ranks, .copies = true};
    for (uint32_t s = 0; s < ranks; s++) {
        p.place[s] = s;
        p.first[s + 1] = (s + 1) * LAYERS / ranks;
    }
    return p;
}

static int file(void)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void a_rank_has_its_units_and_those_of_the_rank_before(void **state)
{
    (void)state;
    struct held_shape shape = shape_of(1);
    const struct job_plan plan = plan_of(3);
    struct held_memory m;
    struct err err;
    int fd = file();
    assert_int_equal(held_memory_make(&m, fd, &shape, &plan, 1, &err), 0);
    /* Rank 1 has layer 1, which is unit 2; rank 0 the embedding and layer 0. */
    for (size_t u = 0; u < UNITS; u++) {
        assert_int_equal(held_has(m.part[0].has, u), u == 2);
        assert_int_equal(held_has(m.part[2].has, u), u < 2);
    }
    assert_int_equal(m.part[0].bytes, 0);
    assert_int_equal(m.part[3].bytes, 3 * sizeof(float));
    assert_int_equal(held_offset(&shape, &m.part[2], 0, 1), sizeof(float));
    held_memory_done(&m);
    close(fd);
    done(&shape);
}

static void a_later_process_finds_what_is_whole(void **state)
{
    (void)state;
    struct held_shape shape = shape_of(2);
    const struct job_plan plan = plan_of(1);
    struct held_memory m, found;
    struct err err;
    int fd = file();
    assert_int_equal(held_memory_make(&m, fd, &shape, &plan, 0, &err), 0);
    assert_int_equal(m.part[0].bytes, 2 * (1 + 2 + 4 + 5) * sizeof(float));
    assert_int_equal(m.part[2].bytes, 0); /* there is no other rank */
    memset(held_memory_at(&m, 0), 7, m.part[0].bytes);
    held_memory_whole(&m, 0, 41);
    memset(held_memory_at(&m, 1), 8, m.part[1].bytes);
    held_memory_whole(&m, 1, 42);
    held_memory_empty(&m, 0); /* it was being written when the process was killed */
    held_memory_done(&m);
    held_memory_open(&found, fd, &shape);
    assert_int_equal(found.part[0].step, 0);
    assert_int_equal(found.part[1].step, 42);
    const size_t at = held_offset(&shape, &found.part[1], 1, 3);
    assert_int_equal(at, (1 + 2 + 4 + 5 + 1 + 2) * sizeof(float));
    assert_int_equal(held_memory_at(&found, 1)[at], 8);
    held_memory_done(&found);
    close(fd);
    done(&shape);
}

static void a_file_of_another_shape_has_nothing(void **state)
{
    (void)state;
    struct held_shape shape = shape_of(1), other = shape_of(1);
    const struct job_plan plan = plan_of(1);
    struct held_memory m, found;
    struct err err;
    int fd = file();
    held_memory_open(&found, fd, &shape); /* empty: nobody wrote it */
    assert_null(found.map);
    assert_int_equal(held_memory_make(&m, fd, &shape, &plan, 0, &err), 0);
    held_memory_whole(&m, 0, 5);
    other.bytes[1] += sizeof(float);
    held_memory_open(&found, fd, &other);
    assert_int_equal(found.part[0].step, 0);
    held_memory_done(&found);
    /* Cut short: no part may be looked for behind its end. */
    assert_int_equal(ftruncate(fd, 4096), 0);
    held_memory_open(&found, fd, &shape);
    for (size_t i = 0; i < HELD_PARTS; i++)
        assert_int_equal(found.part[i].step, 0);
    held_memory_done(&found);
    held_memory_done(&m);
    close(fd);
    done(&shape);
    done(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_has_its_units_and_those_of_the_rank_before),
        cmocka_unit_test(a_later_process_finds_what_is_whole),
        cmocka_unit_test(a_file_of_another_shape_has_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
