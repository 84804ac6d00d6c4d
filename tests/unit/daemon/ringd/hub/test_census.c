/* SPDX-License-Identifier: MIT
 *
 * What is asked of other nodes about models, what is made of their answers for a list of models and
 * for a plan, and what this node answers: real records of nodes, a folder that only notes what it
 * was asked. */
#include "tests/unit/daemon/ringd/cluster/members_world.h"

#include <errno.h>
#include <event2/event.h>

#include "daemon/ringd/hub/census.h"
#include "daemon/ringd/hub/holders.h"
#include "daemon/ringd/hub/shelf.h"
#include "daemon/ringd/hub/travel_query.h"
#include "daemon/ringd/job/spawn.h"

#define MODEL "org/name@0123456789abcdef0123456789abcdef01234567"
#define DRAFT "org/draft@0123456789abcdef0123456789abcdef01234567"
#define ONE "1111111111111111111111111111111111111111111111111111111111111111"
#define TWO "2222222222222222222222222222222222222222222222222222222222222222"
#define ID(n) "0" #n "000000000000000000000000000000"

static struct event_base *base;
static struct members *members;
static struct model_census *census;
static json_t *sent;     /* owned: [[to, message], …] */
static json_t *heard;    /* owned: what came of a question */
static json_t *reply;    /* owned: the last reply to a stage */
static const char *here; /* what this node's folder has, as JSON; NULL: too much is under way */
static int heard_r;

/* --- what lies around ------------------------------------------------------------------------- */

struct look {
    void (*done)(void *owner, const struct shelf_answer *answer);
    void *owner;
};
static struct look looks[32];
static size_t nlooks;

int shelf_ask(struct aside *aside, const struct shelf_order *order,
              void (*done)(void *owner, const struct shelf_answer *answer), void *owner)
{
    (void)aside;
    assert_int_equal(order->what, SHELF_HAVE);
    if (!here || nlooks == sizeof looks / sizeof *looks)
        return -EAGAIN;
    looks[nlooks++] = (struct look){done, owner};
    return 0;
}

static void folder_answers(void)
{
    for (size_t i = 0; i < nlooks; i++) {
        struct shelf_answer a = {.list = json_loads(here, 0, NULL)};
        looks[i].done(looks[i].owner, &a);
        json_decref(a.list);
    }
    nlooks = 0;
}

int spawn_send_file(struct spawn *s, json_t *message, int fd)
{
    (void)s, (void)fd;
    json_decref(reply);
    reply = message;
    return 0;
}

void spawn_kill(struct spawn *s, const char *cause)
{
    (void)s, (void)cause;
    fail();
}

static int on_send(void *owner, const uint8_t to[16], json_t *message)
{
    (void)owner;
    json_array_append_new(sent, json_pack("[i,o]", to[0], message));
    return to[0] == 9 ? -EHOSTUNREACH : 0;
}

static json_t *on_ways(void *owner)
{
    (void)owner;
    return json_pack("[{s:s s:i s:i}]", "id", ID(2), "mbps", 1000, "rtt_us", 0);
}

static void on_heard(void *owner, const json_t *answers)
{
    (void)owner;
    json_decref(heard);
    heard = json_deep_copy(answers);
}

static void on_store(void *owner, const json_t *answer, int r, const char *why)
{
    (void)owner, (void)why;
    json_decref(heard);
    heard = json_deep_copy(answer);
    heard_r = r;
}

/* Nodes 1 to 3 in a row; this is 1. */
static int set_up(void **state)
{
    (void)state;
    base = event_base_new();
    members = row_of(3, false);
    sent = json_array();
    heard = reply = NULL;
    heard_r = 0;
    nlooks = 0;
    here = "{\"" MODEL "\": {\"content\": \"" ONE "\", \"whole\": true, \"here\": 9, \"bytes\": 9}}";
    census = census_new(&(struct census_setup){
        .base = base, .members = members, .dir = "/", .send = on_send, .ways = on_ways});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    census_free(census);
    members_free(members);
    event_base_free(base);
    json_decref(sent);
    json_decref(heard);
    json_decref(reply);
    return 0;
}

static void answers(unsigned node, json_int_t round, const char *text)
{
    uint8_t id[16] = {(uint8_t)node};
    json_t *body = json_loads(text, 0, NULL);
    assert_non_null(body);
    json_object_set_new(body, "round", json_integer(round));
    census_take_counted(census, id, body);
    json_decref(body);
    event_base_loop(base, EVLOOP_NONBLOCK);
}

static const char *text_of(const json_t *of, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(of, i), key));
}

static void ask(size_t n)
{
    const uint8_t ids[4][16] = {{1}, {2}, {3}, {9}};
    json_t *models = json_pack("[s]", MODEL);
    assert_int_equal(census_ask(census, ids, n, models, true, on_heard, sent), 0);
    json_decref(models);
    event_base_loop(base, EVLOOP_NONBLOCK);
}

#define PART                                                                                                 \
    "{\"models\": {\"" MODEL "\": {\"content\": \"" ONE "\", \"whole\": false, \"here\": 4, \"bytes\": 9}}}"

/* --- tests ------------------------------------------------------------------------------------ */

static void all_are_asked_and_what_they_say_is_in_order(void **state)
{
    (void)state;
    ask(4);
    assert_int_equal(json_array_size(sent), 3);
    const json_t *question = json_array_get(json_array_get(sent, 0), 1);
    assert_string_equal(json_string_value(json_object_get(question, "kind")), "model-census");
    assert_true(json_is_true(json_object_get(question, "blocks")));
    const json_int_t round = json_integer_value(json_object_get(question, "round"));
    answers(3, round, PART);
    answers(3, round, "{\"models\": {}}");
    answers(2, round + 1, PART); /* another question */
    answers(8, round, PART);     /* nobody asked it */
    folder_answers();
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_null(heard);
    answers(2, round, "{\"why\": \"is asked too \\u001b much\"}");
    assert_int_equal(json_array_size(heard), 4);
    assert_string_equal(text_of(heard, 0, "id"), ID(1));
    assert_non_null(json_object_get(json_object_get(json_array_get(heard, 0), "models"), MODEL));
    assert_null(strchr(text_of(heard, 1, "why"), '\033'));
    assert_null(text_of(heard, 2, "why"));
    assert_non_null(json_object_get(json_object_get(json_array_get(heard, 2), "models"), MODEL));
    assert_non_null(text_of(heard, 3, "why"));
}

static void who_is_gone_is_not_waited_for(void **state)
{
    (void)state;
    here = NULL;
    ask(3);
    struct member lost = make(1, 1, 2); /* it is linked with nobody any more */
    assert_int_equal(learn(members, &lost, 9), 1);
    census_changed(census);
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_string_equal(text_of(heard, 0, "why"), "is asked too much at once");
    assert_string_equal(text_of(heard, 1, "why"), "is gone");
    assert_string_equal(text_of(heard, 2, "why"), "is gone");
}

static void who_is_forgotten_hears_nothing(void **state)
{
    (void)state;
    ask(2);
    census_forget(census, sent);
    answers(2, 1, PART);
    folder_answers();
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_null(heard);
}

static void others_are_answered_a_few_at_once(void **state)
{
    const uint8_t from[16] = {3};
    json_t *body = json_pack("{s:i s:[s]}", "round", 5, "models", MODEL);
    (void)state;
    for (size_t i = 0; i < 9; i++)
        census_take_ask(census, from, body);
    assert_int_equal(json_array_size(sent), 1); /* the ninth, at once */
    const json_t *refusal = json_array_get(json_array_get(sent, 0), 1);
    assert_string_equal(json_string_value(json_object_get(refusal, "why")), "is asked too much at once");
    folder_answers();
    assert_int_equal(json_array_size(sent), 9);
    const json_t *answer = json_array_get(json_array_get(sent, 8), 1);
    assert_string_equal(json_string_value(json_object_get(answer, "kind")), "model-counted");
    assert_int_equal(json_integer_value(json_object_get(answer, "round")), 5);
    assert_int_equal(json_array_size(json_object_get(answer, "ways")), 1);
    census_take_ask(census, from, body);
    folder_answers();
    assert_int_equal(json_array_size(sent), 10);
    json_decref(body);
}

static void the_list_says_who_holds_how_much(void **state)
{
    struct holders *h = holders_new(census, members);
    json_t *store = json_pack("{s:[{s:s s:s}]}", "models", "model", MODEL, "content", ONE);
    (void)state;
    struct member far = make(5, 1, 1); /* linked with nobody */
    assert_int_equal(learn(members, &far, 9), 1);
    holders_ask(h, store, on_store, NULL);
    answers(2, 1, PART);
    answers(3, 1,
            "{\"models\": {\"" MODEL "\": {\"content\": \"" TWO
            "\", \"whole\": true, \"here\": 9, \"bytes\": -1}}}");
    const json_t *list = json_object_get(json_array_get(json_object_get(heard, "models"), 0), "holders"),
                 *one = json_array_get(list, 0), *two = json_array_get(list, 1);
    assert_int_equal(json_array_size(list), 2);
    assert_true(json_is_true(json_object_get(one, "same")) && json_is_false(json_object_get(one, "whole")));
    assert_int_equal(json_integer_value(json_object_get(one, "here")), 4);
    assert_true(json_is_false(json_object_get(two, "same")));
    assert_int_equal(json_integer_value(json_object_get(two, "bytes")), 0);
    assert_int_equal(json_array_size(json_object_get(heard, "unheard")), 1);
    holders_ask(h, store, on_store, NULL);
    holders_free(h);
    assert_int_equal(heard_r, -ECANCELED);
    json_decref(store);
}

static json_t *question_of_a_plan(void)
{
    return json_pack("{s:s s:[s,s] s:[[],[[s,i,i]]] s:{s:i}}", "model", MODEL, "nodes", ID(1), ID(2),
                     "shares", "f", 0, 2, "sizes", "f", 8 << 20);
}

static void a_stage_hears_what_its_nodes_lack(void **state)
{
    struct travel_queries *t = travel_queries_new(census, members);
    struct spawn *stage = (struct spawn *)&base;
    json_t *event = question_of_a_plan();
    (void)state;
    travel_query_ask(t, stage, event);
    assert_int_equal(json_array_size(sent), 2); /* node 3 as well, which has no share */
    folder_answers();
    answers(2, 1,
            "{\"models\": {\"" MODEL "\": {\"content\": \"" ONE
            "\", \"whole\": false, \"blocks\": [[\"f\",1,2]]}}}");
    assert_null(reply);
    answers(3, 1, "{\"why\": \"is asked too much at once\"}");
    const json_t *travel = json_object_get(reply, "travel"), *ranks = json_object_get(travel, "ranks");
    assert_string_equal(json_string_value(json_object_get(reply, "do")), "travel");
    assert_int_equal(json_integer_value(json_object_get(travel, "bytes")), 4 << 20);
    assert_true(json_number_value(json_object_get(travel, "mbps")) == 1000);
    assert_int_equal(json_array_size(ranks), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(ranks, 1), "lacks")), 4 << 20);

    travel_query_ask(t, stage, event); /* now nothing lacks */
    folder_answers();
    answers(2, 2, "{\"models\": {\"" MODEL "\": {\"content\": \"" ONE "\", \"whole\": true}}}");
    answers(3, 2, "{\"models\": {}}");
    assert_null(json_object_get(reply, "travel"));
    assert_string_equal(json_string_value(json_object_get(reply, "do")), "travel");

    json_decref(reply);
    reply = NULL;
    travel_query_ask(t, stage, event);
    travel_query_forget(t, stage);
    answers(2, 3, PART);
    answers(3, 3, PART);
    folder_answers();
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_null(reply);
    json_object_set_new(event, "units", json_pack("[[] [[s,i,i]]]", "f", 1, 2)); /* before it splits */
    travel_query_ask(t, stage, event);
    folder_answers();
    answers(2, 4,
            "{\"models\": {\"" MODEL "\": {\"content\": \"" ONE "\", \"whole\": false, \"blocks\": []}}}");
    answers(3, 4, "{\"models\": {}}");
    char *lacks = json_dumps(json_object_get(reply, "lacks"), JSON_COMPACT);
    assert_string_equal(lacks, "[[0,0],[0,4194304]]");
    free(lacks);
    json_decref(reply);
    reply = NULL;
    json_object_del(event, "nodes"); /* of a stage of another version */
    travel_query_ask(t, stage, event);
    assert_null(json_object_get(reply, "travel"));
    assert_non_null(reply);
    json_decref(event);
    travel_queries_free(t);
}

static void what_a_node_lacks_may_not_be_known(void **state)
{
    json_t *event = question_of_a_plan(),
           *said = json_pack("[{s:s s:s s:{s:{s:s s:b}} s:[]} {s:s s:s s:s}]", "id", ID(1), "node", "a",
                             "models", MODEL, "content", ONE, "whole", 1, "ways", "id", ID(2), "node", "b",
                             "why", "does not answer"),
           *travel = travel_show(members, event, said);
    (void)state;
    const json_t *rank = json_array_get(json_object_get(travel, "ranks"), 1);
    assert_int_equal(json_integer_value(json_object_get(rank, "share")), 8 << 20);
    assert_null(json_object_get(rank, "lacks"));
    assert_string_equal(json_string_value(json_object_get(rank, "why")), "does not answer");
    assert_null(json_object_get(travel, "seconds"));
    json_decref(travel);
    json_decref(said);
    json_decref(event);
}

/* The head lacks half of that, and the other node of its layers. */
static void a_draft_model_travels_too(void **state)
{
    json_t *event = question_of_a_plan(),
           *said = json_pack("[{s:s s:s s:{s:{s:s s:b} s:{s:s s:b s:[[s,i,i]]}} s:[]}"
                             " {s:s s:s s:{s:{s:s s:b s:[]} s:{s:s s:b}} s:[]}]",
                             "id", ID(1), "node", "a", "models", MODEL, "content", ONE, "whole", 1, DRAFT,
                             "content", ONE, "whole", 0, "blocks", "d", 0, 1, "ways", "id", ID(2), "node",
                             "b", "models", MODEL, "content", ONE, "whole", 0, "blocks", DRAFT, "content",
                             ONE, "whole", 1, "ways");
    (void)state;
    json_object_set_new(event, "draft",
                        json_pack("{s:s s:[[[s,i,i]],[]] s:{s:i}}", "model", DRAFT, "shares", "d", 0, 2,
                                  "sizes", "d", 8 << 20));
    json_t *travel = travel_show(members, event, said);
    const json_t *ranks = json_object_get(travel, "ranks"), *head = json_array_get(ranks, 0);
    assert_int_equal(json_integer_value(json_object_get(head, "lacks")), 4 << 20);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(head, "from"), 0), "node")), "b");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(ranks, 1), "lacks")), 8 << 20);
    assert_int_equal(json_integer_value(json_object_get(travel, "bytes")), 12 << 20);
    json_decref(travel);
    json_decref(said);
    json_decref(event);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_are_asked_and_what_they_say_is_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_gone_is_not_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_forgotten_hears_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(others_are_answered_a_few_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_list_says_who_holds_how_much, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stage_hears_what_its_nodes_lack, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_node_lacks_may_not_be_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_draft_model_travels_too, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
