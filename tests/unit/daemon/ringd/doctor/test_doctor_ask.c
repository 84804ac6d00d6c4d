/* SPDX-License-Identifier: MIT
 *
 * A round of questions: all that can be reached are asked, each is heard once, and only who still
 * owes an answer can draw it out. Messages and timers are the test's own: nothing here waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/doctor/doctor_answer.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/doctor/doctor_setup.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/timer.h"
#include "tests/unit/daemon/ringd/cluster/members_world.h"

enum { NODES = 3 };

/* --- what a doctor uses ----------------------------------------------------------------------- */

static struct {
    unsigned asked[NODES];
    json_int_t round;
    bool is_deep;
} sent;

int peers_send(struct peers *p, const uint8_t to[16], json_t *body)
{
    (void)p;
    assert_string_equal(json_string_value(json_object_get(body, "kind")), "doctor-ask");
    sent.asked[to[0] - 1]++;
    sent.round = json_integer_value(json_object_get(body, "round"));
    sent.is_deep = json_is_true(json_object_get(body, "deep"));
    json_decref(body);
    return 0;
}

const char *peers_last_words(struct peers *p, const uint8_t id[16])
{
    (void)p, (void)id;
    return "";
}

static struct timer {
    void (*fired)(void *owner);
    void *owner;
    uint64_t ms;
    unsigned sets;
} clock_of_round;

struct timer *timer_new(struct event_base *base, void (*fired)(void *owner), void *owner)
{
    (void)base;
    clock_of_round = (struct timer){fired, owner, 0, 0};
    return &clock_of_round;
}

void timer_free(struct timer *t)
{
    (void)t;
}

void timer_set_ms(struct timer *t, uint64_t ms)
{
    t->ms = ms;
    t->sets++;
}

void timer_set_us(struct timer *t, uint64_t us)
{
    timer_set_ms(t, us / 1000);
}

void timer_stop(struct timer *t)
{
    (void)t;
}

struct doctor_answers *doctor_answers_new(const struct doctor_setup *setup)
{
    (void)setup;
    return NULL;
}

void doctor_answers_free(struct doctor_answers *a)
{
    (void)a;
}

void doctor_answers_yield(struct doctor_answers *a)
{
    (void)a;
}

void doctor_answer(struct doctor_answers *a, const uint8_t to[16], const json_t *ask)
{
    (void)a, (void)to, (void)ask;
}

int64_t doctor_wall_us(void)
{
    return 1000000;
}

/* --- a ring of three -------------------------------------------------------------------------- */

struct world {
    struct members *members;
    struct doctor *doctor;
    unsigned answers;
    json_t *answer; /* owned: the last; NULL: the daemon ended */
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    memset(&sent, 0, sizeof sent);
    w->members = row_of(NODES, true);
    w->doctor = doctor_new(&(struct doctor_setup){.members = w->members});
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    doctor_free(w->doctor);
    members_free(w->members);
    json_decref(w->answer);
    free(w);
    return 0;
}

static void on_answer(void *owner, json_t *answer)
{
    struct world *w = owner;
    w->answers++;
    json_decref(w->answer);
    w->answer = answer;
}

static void examine(struct world *w, const char *model)
{
    struct err err = {""};
    if (doctor_examine(w->doctor, model, model != NULL, on_answer, w, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < NODES; i++)
        assert_int_equal(sent.asked[i], 1);
    assert_int_equal(sent.is_deep, model != NULL);
}

static void id_of(uint8_t ret[16], unsigned node)
{
    memset(ret, 0, 16);
    ret[0] = (uint8_t)(node + 1);
}

static void tell(struct world *w, unsigned node, json_int_t round)
{
    uint8_t from[16];
    id_of(from, node);
    json_t *body = json_pack("{s:s s:I s:{}}", "kind", "doctor-facts", "round", round, "facts");
    doctor_take_facts(w->doctor, from, body);
    json_decref(body);
}

static bool draws_out(struct world *w, unsigned node, json_int_t round)
{
    const unsigned before = clock_of_round.sets;
    uint8_t from[16];
    id_of(from, node);
    json_t *body =
        json_pack("{s:s s:I s:i s:i}", "kind", "doctor-reading", "round", round, "done", 1, "total", 2);
    doctor_take_reading(w->doctor, from, body);
    json_decref(body);
    return clock_of_round.sets > before;
}

static bool names(const struct world *w, const char *words)
{
    char *text = json_dumps(w->answer, JSON_COMPACT);
    const bool found = strstr(text, words) != NULL;
    free(text);
    return found;
}

static void all_answers_end_a_round(void **state)
{
    struct world *w = *state;
    examine(w, NULL);
    tell(w, 0, sent.round);
    tell(w, 1, sent.round);
    tell(w, 1, sent.round);     /* counts once */
    tell(w, 2, sent.round + 1); /* no such round */
    tell(w, 3, sent.round);     /* nobody asked it */
    assert_int_equal(w->answers, 0);
    tell(w, 2, sent.round);
    assert_int_equal(w->answers, 1);
    assert_string_equal(json_string_value(json_object_get(w->answer, "node")), "n0");
    assert_false(names(w, "did not answer"));
}

static void who_is_silent_is_named(void **state)
{
    struct world *w = *state;
    examine(w, NULL);
    tell(w, 0, sent.round);
    tell(w, 1, sent.round);
    clock_of_round.fired(clock_of_round.owner);
    assert_int_equal(w->answers, 1);
    assert_true(names(w, "n2"));
    assert_true(names(w, "did not answer within 2 s"));
    tell(w, 2, sent.round); /* too late: the round is gone */
    assert_int_equal(w->answers, 1);
}

static void only_who_owes_an_answer_draws_it_out(void **state)
{
    struct world *w = *state;
    examine(w, "/models/one");
    assert_true(draws_out(w, 1, sent.round));
    assert_false(draws_out(w, 3, sent.round));
    assert_false(draws_out(w, 1, sent.round + 1));
    tell(w, 1, sent.round);
    assert_false(draws_out(w, 1, sent.round)); /* it has read all */
    assert_true(draws_out(w, 2, sent.round));
    tell(w, 2, sent.round);
    tell(w, 0, sent.round);
    assert_int_equal(w->answers, 1);
}

static void a_round_without_reading_is_not_drawn_out(void **state)
{
    struct world *w = *state;
    examine(w, NULL);
    assert_false(draws_out(w, 1, sent.round));
}

static void a_daemon_that_ends_says_so(void **state)
{
    struct world *w = *state;
    examine(w, NULL);
    doctor_free(w->doctor);
    w->doctor = NULL;
    assert_int_equal(w->answers, 1);
    assert_null(w->answer);
}

static void so_many_rounds_at_once(void **state)
{
    struct world *w = *state;
    struct err err = {""};
    for (int i = 0; i < 4; i++)
        assert_int_equal(doctor_examine(w->doctor, NULL, false, on_answer, w, &err), 0);
    assert_int_equal(doctor_examine(w->doctor, NULL, false, on_answer, w, &err), -EBUSY);
    assert_non_null(strstr(err.text, "4 examinations are under way"));
    assert_int_equal(doctor_examine(w->doctor, "model", false, on_answer, w, &err), -EINVAL);
    assert_int_equal(w->answers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_answers_end_a_round, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_silent_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_who_owes_an_answer_draws_it_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_round_without_reading_is_not_drawn_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_daemon_that_ends_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(so_many_rounds_at_once, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
