/* SPDX-License-Identifier: MIT
 *
 * The search for the largest packet that gets over a cable, against cables that swallow larger
 * ones, lose some, or answer nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/packet_size.h"

/* Runs for so long against a cable that passes packets up to `limit`; how many probes were sent. */
static unsigned run(struct packet_search *s, struct instant *now, uint64_t us, uint32_t limit)
{
    const uint64_t end = now->us + us;
    unsigned sent = 0;
    while (s->due.us <= end) {
        if (now->us < s->due.us)
            now->us = s->due.us;
        uint32_t size = packet_search_next(s, *now);
        sent += size != 0;
        if (size && size <= limit)
            packet_search_answered(s, size, *now);
    }
    now->us = end;
    return sent;
}

static void a_whole_cable_takes_one_probe(void **state)
{
    (void)state;
    struct packet_search s = {0};
    struct instant now = {5000000};
    packet_search_begin(&s, 9000, now);
    assert_int_equal(run(&s, &now, PACKET_AGAIN_US - 1, 9000), 1);
    assert_int_equal(s.passes, 9000);
    assert_true(s.settled);
    assert_false(packet_search_is_narrow(&s));
    assert_int_equal(run(&s, &now, PACKET_AGAIN_US, 9000), 1); /* looked at again */
}

static void a_narrow_cable_is_found_and_its_mending(void **state)
{
    (void)state;
    static const uint32_t limits[] = {1280, 1300, 1400, 1499, 1500, 4100, 8999};
    static const uint32_t found[] = {1280, 1280, 1400, 1492, 1500, 4000, 8000};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct packet_search s = {0};
        struct instant now = {5000000};
        packet_search_begin(&s, 9000, now);
        run(&s, &now, 1500000, limits[i]);
        assert_true(packet_search_is_narrow(&s)); /* soon, so that connections can be made smaller */
        run(&s, &now, 2000000, limits[i]);
        assert_int_equal(s.passes, found[i]);
        assert_true(s.settled);
        assert_true(run(&s, &now, PACKET_AGAIN_US, limits[i]) <= PACKET_TRIES);
        assert_int_equal(s.passes, found[i]);
        run(&s, &now, 2 * PACKET_AGAIN_US, 9000);
        assert_int_equal(s.passes, 9000);
    }
}

static void what_has_passed_is_not_given_up_for_a_few_losses(void **state)
{
    (void)state;
    struct packet_search s = {0};
    struct instant now = {5000000};
    packet_search_begin(&s, 1500, now);
    run(&s, &now, 1000000, 1500);
    now = s.due;
    run(&s, &now, 5 * PACKET_TRY_US, 1300);
    assert_int_equal(s.passes, 1500);
    run(&s, &now, 10 * PACKET_TRY_US, 1300);
    assert_int_equal(s.passes, 1280);
}

static void silence_says_nothing(void **state)
{
    (void)state;
    struct packet_search s = {0};
    struct instant now = {5000000};
    packet_search_begin(&s, 1500, now);
    run(&s, &now, 100000000, 0);
    assert_int_equal(s.passes, 0);
    assert_false(s.settled);
    run(&s, &now, PACKET_AGAIN_US + 1000000, 1500);
    assert_int_equal(s.passes, 1500);
}

static void another_mtu_begins_the_search_at_once(void **state)
{
    (void)state;
    struct packet_search s = {0};
    struct instant now = {5000000};
    packet_search_begin(&s, 9000, now);
    run(&s, &now, 1000000, 9000);
    packet_search_begin(&s, 9000, now);
    assert_true(s.settled);
    packet_search_begin(&s, 1500, now);
    assert_int_equal(packet_search_next(&s, now), 1500);
    packet_search_answered(&s, 9000, now); /* of before */
    assert_int_equal(s.passes, 0);
    packet_search_begin(&s, 1280, now);
    run(&s, &now, 10000000, 1000);
    assert_int_equal(s.passes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_cable_takes_one_probe),
        cmocka_unit_test(a_narrow_cable_is_found_and_its_mending),
        cmocka_unit_test(what_has_passed_is_not_given_up_for_a_few_losses),
        cmocka_unit_test(silence_says_nothing),
        cmocka_unit_test(another_mtu_begins_the_search_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
