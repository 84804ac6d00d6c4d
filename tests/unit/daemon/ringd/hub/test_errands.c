/* SPDX-License-Identifier: MIT
 *
 * What nodes are asked to do when a job needs a model, and what one does that is asked: errands.c
 * with real records of nodes, and pulls that only note what they were to begin. */
#include "tests/unit/daemon/ringd/cluster/members_world.h"

#include <event2/event.h>

#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/errands.h"
#include "daemon/ringd/hub/pulls.h"

#define MODEL "org/name@0123456789abcdef0123456789abcdef01234567"
#define ONE "1111111111111111111111111111111111111111111111111111111111111111"
#define TWO "2222222222222222222222222222222222222222222222222222222222222222"

/* --- what lies around ------------------------------------------------------------------------- */

struct pull {
    enum pull_state state;
};

static struct event_base *base;
static struct members *members;
static struct members_ring ring;
static struct errands *errands;
static const char *here; /* which files this node has; NULL: it lacks the model */
static const char *here_list;
static bool here_whole;
static struct pull pull;
static bool has_pull;
static char begun[8]; /* "outline" or "take" */
static uint8_t begun_from[16];
static char sent[4][400]; /* the last message to each node, as text */
static char why[600];

struct pull *pulls_find(const struct pulls *p, const char *name)
{
    (void)p, (void)name;
    return has_pull ? &pull : NULL;
}

static int begin(const char *how, struct pull **ret)
{
    snprintf(begun, sizeof begun, "%s", how);
    has_pull = true;
    pull.state = PULL_RUNS;
    *ret = &pull;
    return 0;
}

int pulls_begin(struct pulls *p, const char *what, const char *name, struct pull **ret, struct err *err)
{
    (void)p, (void)name, (void)err;
    return begin(what, ret);
}

int pulls_take(struct pulls *p, const struct carry_order *order, struct pull **ret, struct err *err)
{
    (void)p, (void)err;
    memcpy(begun_from, order->from[0], 16);
    return begin("take", ret);
}

enum pull_state pull_state(const struct pull *p)
{
    return p->state;
}

const char *pull_why(const struct pull *p)
{
    (void)p;
    return "the hub is out of reach";
}

bool pull_may_retry(const struct pull *p, bool has_source)
{
    (void)p, (void)has_source;
    return false;
}

void pull_amounts(const struct pull *p, uint64_t *ret_done, uint64_t *ret_total, double *ret_rate)
{
    (void)p;
    *ret_done = 100, *ret_total = 400, *ret_rate = 50;
}

static int on_send(void *owner, const uint8_t to[16], json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT | JSON_SORT_KEYS);
    (void)owner;
    snprintf(sent[to[0] - 1], sizeof *sent, "%s", text);
    free(text);
    json_decref(message);
    return 0;
}

static const char *content(void *owner, const char *model)
{
    (void)owner, (void)model;
    return here;
}

static const char *list(void *owner, const char *model)
{
    (void)owner, (void)model;
    return here_list;
}

static bool is_whole(void *owner, const char *model)
{
    (void)owner, (void)model;
    return here && here_whole;
}

static void on_changed(void *owner)
{
    (void)owner;
}

static int open_world(void **state)
{
    (void)state;
    base = event_base_new();
    members = row_of(4, true);
    members_ring(members, members_self(members)->id, &ring);
    assert_int_equal(ring.n, 4);
    errands = errands_new(&(struct errands_setup){.base = base,
                                                  .members = members,
                                                  .send = on_send,
                                                  .content = content,
                                                  .list = list,
                                                  .is_whole = is_whole,
                                                  .changed = on_changed});
    here = here_list = NULL;
    here_whole = true;
    has_pull = false;
    memset(begun, 0, sizeof begun);
    memset(sent, 0, sizeof sent);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    errands_free(errands);
    members_free(members);
    event_base_free(base);
    return 0;
}

static void say_more(unsigned node, bool ready, bool whole, const char *files, const char *reason)
{
    const uint8_t id[16] = {(uint8_t)(node + 1)};
    json_t *body = json_pack("{s:s s:b s:b s:i s:i s:i s:s* s:s*}", "model", MODEL, "ready", ready, "whole",
                             whole, "done", 0, "total", 0, "rate", 0, "content", files, "why", reason);
    errands_take_told(errands, id, body);
    json_decref(body);
}

static void say(unsigned node, bool ready, const char *files, const char *reason)
{
    say_more(node, ready, ready, files, reason);
}

static bool are_done(void)
{
    return errands_are_done(errands, MODEL, &ring, why, sizeof why);
}

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static void was_asked(unsigned node, const char *how, const char *from)
{
    char part[100];
    snprintf(part, sizeof part, "\"how\":\"%s\"", how);
    holds(sent[node], part);
    snprintf(part, sizeof part, "\"from\":[%s]", from);
    holds(sent[node], part);
}

static void was_asked_whether(unsigned node)
{
    holds(sent[node], "\"how\":\"ask\"");
    assert_null(strstr(sent[node], "\"from\""));
}

#define ID(n) "\"0" #n "000000000000000000000000000000\""

/* --- the head --------------------------------------------------------------------------------- */

static void all_are_asked_before_one_of_them_pulls(void **state)
{
    (void)state;
    assert_false(are_done());
    for (unsigned i = 1; i < 4; i++)
        was_asked(i, "ask", "");
    assert_string_equal(begun, "");
    for (unsigned i = 1; i < 4; i++)
        say(i, false, NULL, NULL);
    assert_false(are_done());
    assert_string_equal(begun, "outline");
    holds(why, "from the hub to node n0, and then to 3 more");
    holds(why, "6 s left");
}

static void what_one_has_goes_round_in_both_directions(void **state)
{
    (void)state;
    here = ONE;
    are_done();
    for (unsigned i = 1; i < 4; i++)
        say(i, false, NULL, NULL);
    assert_false(are_done());
    was_asked(1, "take", ID(1));
    was_asked(3, "take", ID(1));
    holds(sent[2], "\"how\":\"take\"");
    holds(sent[2], ID(2));
    holds(sent[2], ID(4));
    holds(sent[2], ONE);
    holds(why, "comes from node n0 to node n1");
    for (unsigned i = 1; i < 4; i++)
        say(i, true, ONE, NULL);
    assert_true(are_done());
}

static void this_node_takes_what_another_has(void **state)
{
    (void)state;
    are_done();
    for (unsigned i = 1; i < 4; i++)
        say(i, i == 3, i == 3 ? TWO : NULL, NULL);
    assert_false(are_done());
    assert_string_equal(begun, "take");
    assert_int_equal(begun_from[0], 4);
}

/* The next one may have the way outside that this one lacks. */
static void another_pulls_where_the_hub_refuses_one(void **state)
{
    (void)state;
    are_done();
    for (unsigned i = 1; i < 4; i++)
        say(i, false, NULL, NULL);
    are_done();
    pull.state = PULL_FAILED;
    assert_false(are_done());
    was_asked(1, "pull", "");
    was_asked(2, "ask", "");
    for (unsigned i = 1; i < 4; i++)
        say(i, false, NULL, "no such model");
    assert_false(are_done());
    for (unsigned i = 1; i < 4; i++)
        was_asked(i, "pull", "");
    holds(why, "the hub is out of reach");
}

static void hold(const char *ids, bool parts)
{
    bool is_parts;
    json_t *list = errands_holders(errands, MODEL, &is_parts);
    char *text = json_dumps(list, JSON_COMPACT);
    assert_string_equal(text, ids);
    assert_int_equal(is_parts, parts);
    free(text);
    json_decref(list);
}

/* An outline is enough to plan with; weights come from who has all of them, if somebody has. */
static void who_has_all_of_it_gives_the_weights(void **state)
{
    (void)state;
    here = ONE;
    here_whole = false;
    are_done();
    for (unsigned i = 1; i < 4; i++)
        say_more(i, true, i == 2, ONE, NULL);
    assert_true(are_done());
    hold("[" ID(3) "]", false);
    say_more(2, true, false, ONE, NULL);
    hold("[" ID(1) "," ID(2) "," ID(3) "," ID(4) "]", true);
    say_more(1, false, true, ONE, NULL); /* nonsense: it does not even have the outline */
    hold("[" ID(1) "," ID(3) "," ID(4) "]", true);
    here_whole = true;
    hold("[" ID(1) "]", false);
}

/* One that is drained is asked before the hub is, and gives what it has. */
static void a_node_beside_the_ring_may_have_it(void **state)
{
    (void)state;
    memmove(&ring.at[1], &ring.at[2], 2 * sizeof *ring.at); /* without n1 */
    ring.n = 3;
    are_done();
    say(2, false, NULL, NULL);
    say(3, false, NULL, NULL);
    assert_false(are_done());
    was_asked_whether(1);
    holds(why, "node n1 is asked whether it has");
    assert_string_equal(begun, "");
    say(1, true, ONE, NULL);
    assert_false(are_done());
    assert_string_equal(begun, "take");
    assert_int_equal(begun_from[0], 2);
    holds(why, "comes from node n1 to node n0, and then to 2 more");
    here = ONE;
    here_whole = false;
    say_more(2, true, false, ONE, NULL);
    say_more(3, true, false, ONE, NULL);
    assert_true(are_done());
    hold("[" ID(2) "]", false);
}

static void other_files_of_the_same_name_are_no_model(void **state)
{
    (void)state;
    here = ONE;
    are_done();
    say(1, true, ONE, NULL);
    say(2, true, TWO, NULL);
    say(3, true, ONE, NULL);
    assert_false(are_done());
    holds(why, "node n2 has other files under the name of");
}

static void what_nobody_asked_for_counts_for_nothing(void **state)
{
    (void)state;
    here = ONE;
    for (unsigned i = 1; i < 4; i++)
        say(i, true, ONE, NULL);
    assert_false(are_done());
    for (unsigned i = 1; i < 4; i++)
        say(i, true, i == 2 ? "../../etc" : ONE, NULL); /* it has it, and gives it to nobody */
    assert_true(are_done());
}

/* --- a node that is asked --------------------------------------------------------------------- */

static void want(const char *how, const char *files, const char *from)
{
    const uint8_t id[16] = {2};
    json_t *list = json_array();
    if (from)
        json_array_append_new(list, json_string(from));
    json_t *body =
        json_pack("{s:s s:s s:s* s:o}", "model", MODEL, "how", how, "content", files, "from", list);
    errands_take_want(errands, id, body);
    json_decref(body);
}

static void one_does_what_it_is_asked_to_do(void **state)
{
    (void)state;
    want("ask", NULL, NULL);
    assert_string_equal(begun, "");
    holds(sent[1], "\"ready\":false");
    want("take", ONE, "03000000000000000000000000000000");
    assert_string_equal(begun, "take");
    assert_int_equal(begun_from[0], 3);
    holds(sent[1], "\"done\":100");
    here = ONE;
    errands_tell(errands, MODEL);
    holds(sent[1], "\"ready\":true");
    holds(sent[1], ONE);
    here = NULL; /* it was removed: a head that counts on it must know */
    errands_tell(errands, MODEL);
    holds(sent[1], "\"ready\":false");
}

static void a_pull_is_begun_for_another(void **state)
{
    (void)state;
    want("pull", NULL, NULL);
    assert_string_equal(begun, "outline");
}

static void nonsense_is_not_obeyed(void **state)
{
    (void)state;
    want("take", ONE, "99000000000000000000000000000000"); /* no member */
    want("take", ONE, "03");
    want("take", "ONE", "03000000000000000000000000000000");
    assert_string_equal(sent[1], "");
    want("take", NULL, "03000000000000000000000000000000");
    want("take", ONE, NULL);
    want("dance", ONE, "03000000000000000000000000000000");
    assert_string_equal(begun, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_are_asked_before_one_of_them_pulls, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_one_has_goes_round_in_both_directions, open_world, close_world),
        cmocka_unit_test_setup_teardown(this_node_takes_what_another_has, open_world, close_world),
        cmocka_unit_test_setup_teardown(another_pulls_where_the_hub_refuses_one, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_node_beside_the_ring_may_have_it, open_world, close_world),
        cmocka_unit_test_setup_teardown(who_has_all_of_it_gives_the_weights, open_world, close_world),
        cmocka_unit_test_setup_teardown(other_files_of_the_same_name_are_no_model, open_world, close_world),
        cmocka_unit_test_setup_teardown(what_nobody_asked_for_counts_for_nothing, open_world, close_world),
        cmocka_unit_test_setup_teardown(one_does_what_it_is_asked_to_do, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_pull_is_begun_for_another, open_world, close_world),
        cmocka_unit_test_setup_teardown(nonsense_is_not_obeyed, open_world, close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
