/* SPDX-License-Identifier: MIT
 *
 * Who may head a job: what a node promises, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/ringd/job/deputy/ballots.h"
#include "daemon/ringd/store/store.h"

enum { NOW = 1000000 };
static const uint8_t a[16] = {1}, b[16] = {2}, c[16] = {3};
static const struct origin of = {.head = {1}, .job = 7};

/* --- a disk of notes -------------------------------------------------------------------------- */

static json_t *disk;

void store_put_note(struct store *s, const char *key, const char *json)
{
    (void)s;
    if (json)
        json_object_set_new(disk, key, json_loads(json, 0, NULL));
    else
        json_object_del(disk, key);
}

static json_t *notes(void)
{
    json_t *list = json_array(), *note;
    const char *key;
    json_object_foreach (disk, key, note)
        json_array_append_new(list, json_pack("[s, O]", key, note));
    return list;
}

static struct ballots *again(struct ballots *old, int64_t now)
{
    json_t *list = notes();
    ballots_free(old);
    struct ballots *x = ballots_new(NULL, list, now);
    json_decref(list);
    return x;
}

static int set_up(void **state)
{
    disk = json_object();
    *state = ballots_new(NULL, NULL, NOW);
    return 0;
}

static int tear_down(void **state)
{
    ballots_free(*state);
    json_decref(disk);
    return 0;
}

/* --- questions -------------------------------------------------------------------------------- */

static bool votes(struct ballots *x, const uint8_t by[16], const uint8_t from[16], uint32_t attempt)
{
    struct takeover wanted = {.attempt = attempt};
    char why[200];
    memcpy(wanted.from, from, sizeof wanted.from);
    const bool is_promised = ballots_vote(x, &of, by, &wanted, NOW, why, sizeof why);
    assert_int_equal(is_promised, !*why);
    return is_promised;
}

static bool opens(const struct ballots *x, const uint8_t by[16])
{
    char why[200] = "";
    return ballots_may_open(x, &of, by, NULL, why, sizeof why);
}

static bool opens_taken(const struct ballots *x, const uint8_t by[16], const uint8_t from[16],
                        uint32_t attempt)
{
    struct takeover taken = {.attempt = attempt};
    char why[200] = "";
    memcpy(taken.from, from, sizeof taken.from);
    return ballots_may_open(x, &of, by, &taken, why, sizeof why);
}

/* --- rules ------------------------------------------------------------------------------------ */

static void a_job_is_promised_to_its_deputy_alone(void **state)
{
    struct ballots *x = *state;
    assert_false(votes(x, b, a, 3)); /* this node has not taken part */
    ballots_open(x, &of, a, b, 3, NOW);
    assert_false(votes(x, c, a, 3));
    assert_false(votes(x, b, c, 3)); /* c does not head it */
    assert_true(votes(x, b, a, 3));
}

static void a_deputy_that_missed_an_attempt_gets_no_promise(void **state)
{
    struct ballots *x = *state;
    ballots_open(x, &of, a, b, 4, NOW);
    assert_false(votes(x, b, a, 3));
    assert_false(opens_taken(x, b, a, 3));
    assert_true(votes(x, b, a, 4));
}

static void a_promise_shuts_the_old_head_out_until_it_is_void(void **state)
{
    struct ballots *x = *state;
    ballots_open(x, &of, a, b, 3, NOW);
    assert_true(opens(x, a));
    assert_true(votes(x, b, a, 3));
    assert_false(opens(x, a));
    assert_true(opens(x, b));
    x = *state = again(x, NOW); /* a restart forgets none of it */
    assert_false(opens(x, a));
    ballots_release(x, &of, c, NOW); /* whom nothing was promised */
    assert_false(opens(x, a));
    ballots_release(x, &of, b, NOW);
    assert_true(opens(x, a));
    assert_false(opens(x, b));
}

static void who_took_it_over_heads_it(void **state)
{
    struct ballots *x = *state;
    ballots_open(x, &of, a, b, 3, NOW);
    assert_true(opens_taken(x, b, a, 3)); /* by hand, while this node was out of reach */
    assert_false(opens_taken(x, c, a, 3));
    ballots_open(x, &of, b, c, 259, NOW);
    assert_false(opens(x, a));
    assert_false(opens_taken(x, a, b, 3));
    assert_true(votes(x, c, b, 259)); /* and may be lost in its turn */
    ballots_release(x, &of, c, NOW);
    assert_true(opens(x, b));
}

/* A node that was not there hears it of the old head, and of nobody else. */
static void an_old_head_says_who_heads_its_job(void **state)
{
    struct ballots *x = *state;
    ballots_move(x, &of, c, b, NOW);
    assert_null(ballots_find(x, &of));
    ballots_move(x, &of, a, b, NOW);
    assert_true(opens(x, b));
    assert_false(opens(x, a));
    ballots_move(x, &of, a, c, NOW); /* it is not its to give any more */
    assert_false(opens(x, c));
    ballots_open(x, &of, b, c, 300, NOW);
    assert_true(votes(x, c, b, 300));
    ballots_move(x, &of, c, a, NOW); /* a promise stands */
    assert_false(opens(x, a));
    ballots_release(x, &of, c, NOW);
    ballots_move(x, &of, b, c, NOW);
    assert_true(opens(x, c));
    ballots_ended(x, &of, NOW);
    ballots_move(x, &of, c, a, NOW);
    assert_false(opens(x, a));
}

/* But its head may have lost the end with its power, and begins it again. */
static void a_job_that_has_ended_stays_so(void **state)
{
    struct ballots *x = *state;
    ballots_open(x, &of, a, b, 3, NOW);
    ballots_ended(x, &of, NOW);
    assert_false(votes(x, b, a, 3));
    assert_false(opens(x, b));
    assert_false(opens_taken(x, b, a, 3));
    assert_true(opens(x, a));
    x = *state = again(x, NOW + 1);
    assert_false(votes(x, b, a, 3));
    x = *state = again(x, NOW + (BALLOTS_DAYS + 1) * INT64_C(86400));
    assert_null(ballots_find(x, &of));
    assert_int_equal(json_object_size(disk), 0);
}

static void there_is_an_end_to_what_is_remembered(void **state)
{
    struct ballots *x = *state;
    struct origin one = {.head = {9}};
    for (one.job = 1; one.job <= BALLOTS_MAX + 10; one.job++)
        ballots_open(x, &one, a, b, 1, NOW + (int64_t)one.job);
    assert_int_equal(json_object_size(disk), BALLOTS_MAX);
    one.job = 10;
    assert_null(ballots_find(x, &one));
    one.job = 11;
    assert_non_null(ballots_find(x, &one));
}

static void nonsense_on_the_disk_goes(void **state)
{
    struct ballots *x = *state;
    ballots_open(x, &of, a, b, 3, NOW);
    const char *key = json_object_iter_key(json_object_iter(disk));
    json_object_set_new(json_object_get(disk, key), "attempt", json_integer(-1));
    json_object_set_new(disk, "ballot/zz/1", json_object());
    json_object_set_new(disk, "another/1", json_object());
    x = *state = again(x, NOW);
    assert_null(ballots_find(x, &of));
    assert_int_equal(json_object_size(disk), 1); /* what is not its own stays */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_is_promised_to_its_deputy_alone),
        TEST(a_deputy_that_missed_an_attempt_gets_no_promise),
        TEST(a_promise_shuts_the_old_head_out_until_it_is_void),
        TEST(who_took_it_over_heads_it),
        TEST(an_old_head_says_who_heads_its_job),
        TEST(a_job_that_has_ended_stays_so),
        TEST(there_is_an_end_to_what_is_remembered),
        TEST(nonsense_on_the_disk_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
