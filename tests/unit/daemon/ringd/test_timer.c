/* SPDX-License-Identifier: MIT
 *
 * Timers: set, set again, stopped, and freed by their own callback. The order of what fires is
 * asserted, not the time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <event2/event.h>
#include <string.h>

#include "daemon/ringd/timer.h"

static char fired[16];
static struct timer *own;

static void on_a(void *owner)
{
    assert_ptr_equal(owner, &own);
    strcat(fired, "a");
}

static void on_b(void *owner)
{
    (void)owner;
    strcat(fired, "b");
    if (strlen(fired) < 3)
        timer_set_us(own, 0); /* again */
}

static void on_c(void *owner)
{
    (void)owner;
    strcat(fired, "c");
    timer_free(own);
    own = NULL;
}

static void each_fires_once_when_it_is_due(void **state)
{
    (void)state;
    struct event_base *base = event_base_new();
    struct timer *a = timer_new(base, on_a, &own);
    own = timer_new(base, on_b, NULL);
    *fired = '\0';
    timer_set_ms(a, 20);
    assert_true(timer_is_pending(a));
    timer_set_us(own, 10000);
    timer_set_ms(a, 5); /* which counts from now on */
    event_base_dispatch(base);
    assert_string_equal(fired, "abb");
    assert_false(timer_is_pending(a));
    timer_set_us(a, 0);
    timer_stop(a);
    event_base_dispatch(base);
    assert_string_equal(fired, "abb");
    timer_free(a);
    timer_free(own);
    event_base_free(base);
}

static void a_timer_may_free_itself(void **state)
{
    (void)state;
    struct event_base *base = event_base_new();
    own = timer_new(base, on_c, NULL);
    *fired = '\0';
    timer_set_us(own, 0);
    assert_string_equal(fired, ""); /* from the loop, never at once */
    event_base_dispatch(base);
    assert_string_equal(fired, "c");
    timer_free(NULL);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fires_once_when_it_is_due),
        cmocka_unit_test(a_timer_may_free_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
