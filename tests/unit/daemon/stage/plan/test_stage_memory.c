/* SPDX-License-Identifier: MIT
 *
 * What a stage says of its memory: the kernel's text read, and when it speaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/stage/plan/stage_memory.h"

enum { MIB = 1 << 20 };

static void the_kernels_text_is_read(void **state)
{
    (void)state;
    struct memory_use use = {1, 2, 3};
    static const char text[] = "Name:\tringd-stage\nVmPeak:\t  900 kB\nVmHWM:\t   300 kB\nVmRSS:\t   200 kB\n"
                               "RssAnon:\t   50 kB\nRssFile:\t  150 kB\n";
    assert_int_equal(memory_parse(&use, text), 0);
    assert_int_equal(use.rss, 200 * 1024);
    assert_int_equal(use.anon, 50 * 1024);
    assert_int_equal(use.peak, 300 * 1024);
    /* A peak that lags behind is at least what there is. */
    assert_int_equal(memory_parse(&use, "x\nVmHWM:\t1 kB\nVmRSS:\t2 kB\nRssAnon:\t1 kB\n"), 0);
    assert_int_equal(use.peak, 2048);
}

static void a_text_without_a_number_changes_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "Name:\tVmRSS: 1\n",
                                      "x\nVmHWM:\t1 kB\nVmRSS:\tkB\nRssAnon:\t1 kB\n",
                                      "x\nVmHWM:\t1 kB\nVmRSS:\t1 kB\n",
                                      "x\nVmHWM:\t1 kB\nVmRSS:\t18446744073709551615 kB\nRssAnon:\t1 kB\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct memory_use use = {1, 2, 3};
        assert_int_equal(memory_parse(&use, bad[i]), -EBADMSG);
        assert_true(use.rss == 1 && use.anon == 2 && use.peak == 3);
    }
}

static void this_process_has_memory(void **state)
{
    (void)state;
    struct memory_use use;
    assert_int_equal(memory_read(&use), 0);
    assert_true(use.anon > 0 && use.rss >= use.anon && use.peak >= use.rss);
}

static void it_is_looked_at_once_a_second(void **state)
{
    (void)state;
    struct memory_watch w = {0};
    assert_true(memory_due(&w, (struct instant){5}));
    assert_false(memory_due(&w, (struct instant){1000004}));
    assert_true(memory_due(&w, (struct instant){1000005}));
    assert_false(memory_due(&w, (struct instant){1500000}));
}

static void only_what_one_can_see_is_told(void **state)
{
    (void)state;
    struct memory_watch w = {0};
    struct memory_use use = {100 * MIB, 10 * MIB, 100 * MIB};
    assert_true(memory_changed(&w, &use));
    assert_false(memory_changed(&w, &use));
    use.rss += MIB; /* less than a 64th */
    assert_false(memory_changed(&w, &use));
    use.rss += MIB;
    assert_true(memory_changed(&w, &use));
    use.anon -= MIB; /* a small number, but a whole MiB */
    assert_true(memory_changed(&w, &use));
    use.anon += MIB / 2;
    assert_false(memory_changed(&w, &use));
    use.peak += 2 * MIB;
    assert_true(memory_changed(&w, &use));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_text_is_read),
        cmocka_unit_test(a_text_without_a_number_changes_nothing),
        cmocka_unit_test(this_process_has_memory),
        cmocka_unit_test(it_is_looked_at_once_a_second),
        cmocka_unit_test(only_what_one_can_see_is_told),
    };
    return cmocka_run_group_tests_name("stage_memory", tests, NULL, NULL);
}
