/* SPDX-License-Identifier: MIT
 *
 * Tickets and sessions of browsers: each ticket lets one in, once and for a while, and none of them
 * takes room without end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/ringd/http/http_session.h"

static struct instant at(uint64_t seconds)
{
    return (struct instant){(1000 + seconds) * 1000000};
}

static struct session_secrets enter(struct sessions *s, uint64_t seconds)
{
    char ticket[SECRET_ROOM];
    struct session_secrets in;
    sessions_ticket(s, at(seconds), ticket);
    assert_true(sessions_open(s, at(seconds), ticket, &in));
    return in;
}

static void a_ticket_lets_one_in_once(void **state)
{
    (void)state;
    struct sessions s;
    struct session_secrets in, again;
    char ticket[SECRET_ROOM];
    sessions_init(&s);
    sessions_ticket(&s, at(0), ticket);
    assert_int_equal(strlen(ticket), SECRET_ROOM - 1);
    assert_false(sessions_open(&s, at(1), "", &in));
    assert_false(sessions_open(&s, at(1), "00112233445566778899aabbccddeeff", &in));
    assert_true(sessions_open(&s, at(1), ticket, &in));
    assert_false(sessions_open(&s, at(1), ticket, &again));
    assert_true(sessions_check(&s, at(2), in.cookie, in.key));
}

static void a_session_needs_both_secrets(void **state)
{
    (void)state;
    struct sessions s;
    sessions_init(&s);
    const struct session_secrets one = enter(&s, 0), other = enter(&s, 0);
    assert_false(sessions_check(&s, at(0), one.cookie, NULL));
    assert_false(sessions_check(&s, at(0), NULL, one.key));
    assert_false(sessions_check(&s, at(0), one.cookie, one.cookie));
    assert_false(sessions_check(&s, at(0), one.cookie, other.key));
    assert_false(sessions_check(&s, at(0), "", ""));
    assert_true(sessions_check(&s, at(0), other.cookie, other.key));
}

static void both_end_with_time(void **state)
{
    (void)state;
    struct sessions s;
    struct session_secrets in;
    char ticket[SECRET_ROOM];
    sessions_init(&s);
    sessions_ticket(&s, at(0), ticket);
    assert_false(sessions_open(&s, at(TICKET_SECONDS + 1), ticket, &in));
    in = enter(&s, 0);
    /* Use keeps it. */
    assert_true(sessions_check(&s, at(SESSION_SECONDS - 1), in.cookie, in.key));
    assert_true(sessions_check(&s, at(2 * SESSION_SECONDS - 2), in.cookie, in.key));
    assert_false(sessions_check(&s, at(3 * SESSION_SECONDS), in.cookie, in.key));
}

static void the_oldest_makes_way(void **state)
{
    (void)state;
    struct sessions s;
    struct session_secrets in;
    char first[SECRET_ROOM], ticket[SECRET_ROOM];
    sessions_init(&s);
    sessions_ticket(&s, at(0), first);
    for (unsigned i = 1; i <= TICKETS_MAX; i++)
        sessions_ticket(&s, at(i), ticket);
    assert_false(sessions_open(&s, at(TICKETS_MAX), first, &in));
    assert_true(sessions_open(&s, at(TICKETS_MAX), ticket, &in));

    sessions_end_all(&s);
    const struct session_secrets used = enter(&s, 100), idle = enter(&s, 101);
    for (unsigned i = 2; i < SESSIONS_MAX; i++)
        enter(&s, 100 + i);
    assert_true(sessions_check(&s, at(1000), used.cookie, used.key));
    enter(&s, 1001);
    assert_true(sessions_check(&s, at(1002), used.cookie, used.key));
    assert_false(sessions_check(&s, at(1002), idle.cookie, idle.key));
    sessions_end_all(&s);
    assert_false(sessions_check(&s, at(1003), used.cookie, used.key));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ticket_lets_one_in_once),
        cmocka_unit_test(a_session_needs_both_secrets),
        cmocka_unit_test(both_end_with_time),
        cmocka_unit_test(the_oldest_makes_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
