/* SPDX-License-Identifier: MIT
 *
 * The last words of a stage: what it says of memory that it does not get; lines of /proc/PID/maps
 * are read as the kernel writes them, and the sentence fits its place. The signal itself is in
 * tests/system/weights.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/stage/stage_faults.h"
#include "daemon/stage/plan/stage_memory.h"

static void lines(void **state)
{
    static const char *const wrong[] = {
        "", "7f", "7f-", "-7f r--p 0 0 0", "7f-80", "7f-80 r--p", "7f-80 r--p x 0:0 0"};
    struct fault_mapping m;
    (void)state;
    assert_true(fault_parse(
        &m, "7f01a0-7f01c0 r--p 00001000 fe:00 4711                     /models/a b.safetensors"));
    assert_int_equal(m.begin, 0x7f01a0);
    assert_int_equal(m.end, 0x7f01c0);
    assert_int_equal(m.offset, 4096);
    assert_string_equal(m.path, "/models/a b.safetensors");
    assert_true(fault_parse(&m, "7f01a0-7f01c0 rw-p 00000000 00:00 0 "));
    assert_null(m.path);
    assert_true(fault_parse(&m, "7f01a0-7f01c0 rw-p 00000000 00:00 0                          [heap]"));
    assert_null(m.path);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(fault_parse(&m, wrong[i]));
}

static void words(void **state)
{
    char text[300], tiny[12];
    (void)state;
    fault_describe(text, sizeof text, "/m", true);
    assert_string_equal(
        text, "had to end: /m became shorter while it was in use: copy it again, and start the job again");
    fault_describe(text, sizeof text, "/m", false);
    assert_non_null(strstr(text, "/m could not be read any more"));
    fault_describe(tiny, sizeof tiny, "/m", true);
    assert_string_equal(tiny, "had to end:");
}

/* What the system refuses is told with what was planned, what there is, and a way out. */
static void refused_memory(void **state)
{
    struct err err;
    (void)state;
    err_set(&err, -ENOMEM, "scratch needs 900 MiB, which the system refuses");
    memory_explain(&err, JOB_TRAIN, (size_t)5 << 30);
    assert_memory_equal(err.text, "scratch needs 900 MiB, which the system refuses: 5.0", 52);
    assert_non_null(strstr(err.text, " GiB were planned for this stage, it has 0.0"));
    assert_non_null(strstr(err.text, "iB available: use another split, or a smaller --seq-len"));
    err_set(&err, -ENOMEM, "out of memory");
    memory_explain(&err, JOB_TRAIN, 0);
    assert_memory_equal(err.text, "out of memory: nothing was planned yet, it has ", 47);
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(lines), cmocka_unit_test(words),
                                     cmocka_unit_test(refused_memory)};
    return cmocka_run_group_tests(all, NULL, NULL);
}
