/* SPDX-License-Identifier: MIT
 *
 * How fast ranks compute, of what their stages count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "daemon/ringd/job/survive/pace.h"
#include "tests/lib/small_plan.h"

enum { RANKS = 2 };

static int open_pace(struct pace **ret, json_t *planned)
{
    const struct job_plan plan = small_plan(JOB_TRAIN, RANKS);
    struct err err = {""};
    const int r = pace_new(ret, planned, &plan, &err);
    assert_true(!r || *err.text);
    json_decref(planned);
    return r;
}

static struct pace *usual_pace(void)
{
    struct pace *p;
    assert_int_equal(
        open_pace(&p, json_pack("{s:[i,f,i,i], s:[i,f]}", "units", 0, 1.5, 1, 0, "speeds", 1, 0.5)), 0);
    return p;
}

static int hear(struct pace *p, size_t rank, json_int_t microbatches, json_int_t computed_us, json_int_t us)
{
    json_t *made = json_pack("[I,I,I]", microbatches, computed_us, us);
    const int r = pace_hear(p, rank, made);
    json_decref(made);
    return r;
}

/* A span of 1 s on each rank: `n` microbatches, of which the second rank computes half the time. */
struct sums {
    json_int_t microbatches, computed_us, us;
};
static void pass(struct pace *p, struct sums *s, json_int_t n, json_int_t us)
{
    *s = (struct sums){s->microbatches + n, s->computed_us + us / 2, s->us + us};
    assert_int_equal(hear(p, 0, s->microbatches, s->us / 4, s->us), 0);
    assert_int_equal(hear(p, 1, s->microbatches, s->computed_us, s->us), 0);
}

static void the_middle_of_some_spans_counts(void **state)
{
    (void)state;
    struct pace *p = usual_pace();
    struct sums s = {0};
    double computes[RANKS], takes;
    pass(p, &s, 1, 30000000); /* the first one reads the model: it is no span */
    for (int i = 0; i < PACE_SPANS; i++) {
        assert_false(pace_read(p, computes, &takes));
        pass(p, &s, 100, 1000000);
    }
    assert_true(pace_read(p, computes, &takes));
    assert_float_equal(computes[1], 0.005, 1e-9);
    assert_float_equal(takes, 0.01, 1e-9);
    for (int i = 0; i < PACE_SPANS / 2; i++) /* stalls */
        pass(p, &s, 1, 2000000);
    assert_true(pace_read(p, computes, &takes));
    assert_float_equal(computes[1], 0.005, 1e-9);
    pass(p, &s, 1, 2000000); /* more than half of all spans */
    assert_true(pace_read(p, computes, &takes));
    assert_float_equal(computes[1], 1, 1e-9);
    assert_float_equal(takes, 2, 1e-9);
    pace_free(p);
}

/* Where every step is told, a span has many of them. */
static void short_steps_are_added_up(void **state)
{
    (void)state;
    struct pace *p = usual_pace();
    struct sums s = {0};
    double computes[RANKS], takes;
    pass(p, &s, 1, 10000);
    for (int i = 0; i < 100 * PACE_SPANS - 1; i++)
        pass(p, &s, 1, 10000);
    assert_false(pace_read(p, computes, &takes));
    pass(p, &s, 1, 10000);
    assert_true(pace_read(p, computes, &takes));
    assert_float_equal(computes[1], 0.005, 1e-9);
    pace_free(p);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    struct pace *p = usual_pace();
    assert_int_equal(hear(p, RANKS, 1, 1, 1), -EBADMSG);
    assert_int_equal(hear(p, 0, -1, 1, 1), -EBADMSG);
    assert_int_equal(hear(p, 0, 1, 2, 1), -EBADMSG); /* it computed for longer than it ran */
    assert_int_equal(pace_hear(p, 0, NULL), -EBADMSG);
    assert_int_equal(hear(p, 0, 5, 5, 5), 0);
    assert_int_equal(hear(p, 0, 4, 5, 5), -EBADMSG); /* sums do not shrink */
    pace_free(p);
    assert_int_equal(open_pace(&p, json_pack("{s:[i,i,i], s:[i,i]}", "units", 0, 1, 0, "speeds", 1, 1)),
                     -EBADMSG);
    assert_int_equal(open_pace(&p, json_pack("{s:[i,i,i,i], s:[i,i]}", "units", 0, 1, 1, 0, "speeds", 1, 0)),
                     -EBADMSG);
    assert_int_equal(
        open_pace(&p, json_pack("{s:[i,i,i,s], s:[i,i]}", "units", 0, 1, 1, "x", "speeds", 1, 1)), -EBADMSG);
    assert_int_equal(open_pace(&p, json_object()), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_middle_of_some_spans_counts),
        cmocka_unit_test(short_steps_are_added_up),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
