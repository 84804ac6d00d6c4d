/* SPDX-License-Identifier: MIT
 *
 * What is shown of models that should have come: with a clock of its own, and a process that fails
 * or ends well as the test has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/hub_fetch.h"
#include "daemon/ringd/hub/pulls.h"
#include "daemon/ringd/hub/shelf.h"
#include "net/clock.h"

#define HOUR_US (UINT64_C(3600) * 1000000)

/* --- what is around it ------------------------------------------------------------------------ */

static struct instant now;
static const struct hub_fetch_ops *ops; /* of the process that was started last */
static void *owner;

struct instant clock_now(void)
{
    return now;
}

int hub_fetch_start(struct hub_fetch **ret, struct fetchers *f, const struct hub_order *order,
                    const struct hub_fetch_ops *its_ops, void *its_owner, struct err *err)
{
    (void)f, (void)order, (void)err;
    *ret = NULL;
    ops = its_ops;
    owner = its_owner;
    return 0;
}

void hub_fetch_stop(struct hub_fetch *f)
{
    (void)f;
}

void hub_fetch_say_room(struct hub_fetch *f, const char *why)
{
    (void)f, (void)why;
}

void carriers_take(struct carriers *c, const struct carry_order *order, const struct hub_fetch_ops *its_ops,
                   void *its_owner)
{
    (void)c, (void)order, (void)its_ops, (void)its_owner;
}

void carriers_say_room(struct carriers *c, const char *model, const char *why)
{
    (void)c, (void)model, (void)why;
}

void carriers_leave(struct carriers *c, const char *model)
{
    (void)c, (void)model;
}

int shelf_ask(struct aside *aside, const struct shelf_order *order,
              void (*done)(void *owner, const struct shelf_answer *answer), void *its_owner)
{
    (void)aside, (void)order, (void)done, (void)its_owner;
    return 0;
}

static void on_changed(void *its_owner, const struct pull *p)
{
    (void)its_owner, (void)p;
}

/* --- the tests -------------------------------------------------------------------------------- */

static void add(struct pulls *pulls, const char *why)
{
    struct pull *p;
    struct err err = {""};
    assert_int_equal(pulls_add(pulls, "local/x", "/x", "/kept", &p, &err), 0);
    ops->over(owner, why, FETCH_LASTS);
}

/* Why local/x has failed, as a list of models says it; "": it has not. */
static void assert_shown(const struct pulls *pulls, const char *why)
{
    json_t *none = json_array(), *all = pulls_show(pulls, none);
    const json_t *row = json_object_get(json_array_get(all, 0), "pull");
    const char *error = json_string_value(json_object_get(row, "error"));
    assert_int_equal(json_array_size(all), *why ? 1 : 0);
    assert_string_equal(error ? error : "", why);
    json_decref(all);
    json_decref(none);
}

static void a_failure_is_shown_for_an_hour_or_until_it_goes_well(void **state)
{
    (void)state;
    struct pulls *pulls = pulls_new(&(struct pulls_setup){.dir = "/models", .changed = on_changed});
    now.us = 5 * HOUR_US;
    add(pulls, "no such folder");
    now.us += HOUR_US - 1;
    assert_shown(pulls, "no such folder");
    now.us += 1;
    assert_shown(pulls, "");
    add(pulls, "no room");
    assert_shown(pulls, "no room");
    add(pulls, NULL);
    assert_shown(pulls, "");
    pulls_free(pulls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_is_shown_for_an_hour_or_until_it_goes_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
