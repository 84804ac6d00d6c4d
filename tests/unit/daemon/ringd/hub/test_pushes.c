/* SPDX-License-Identifier: MIT
 *
 * A model that is copied to other nodes: what the node that pushes it says to whom and shows
 * (pushes.c), and what one does that hears so (push_takes.c), with pulls and a shelf that only note
 * what they were to do. */
#include "tests/unit/daemon/ringd/cluster/members_world.h"

#include <event2/event.h>

#include "daemon/ringd/hub/carry_order.h"
#include "daemon/ringd/hub/pulls.h"
#include "daemon/ringd/hub/push_takes.h"
#include "daemon/ringd/hub/pushes.h"
#include "daemon/ringd/hub/shelf.h"

#define MODEL "local/owl@1111111111111111111111111111111111111111"
#define ONE "1111111111111111111111111111111111111111111111111111111111111111"
#define TWO "2222222222222222222222222222222222222222222222222222222222222222"

/* --- what lies around ------------------------------------------------------------------------- */

struct pull {
    enum pull_state state;
    bool is_cut_off;
};

static struct event_base *base;
static struct members *members;
static struct pushes *pushes;
static struct push_takes *takes;
static struct pull pull;
static size_t begun; /* how often it was to be taken */
static struct carry_order wanted;
static const char *here; /* which files this node has */
static bool here_whole;
static int name_says;   /* what the shelf says of the name */
static size_t named;    /* how often it was asked */
static json_t *sent[5]; /* owned: the last message to each node */
static json_t *row;     /* owned: the last that was shown */

struct pull *pulls_find(const struct pulls *p, const char *name)
{
    (void)p, (void)name;
    return begun ? &pull : NULL;
}

int pulls_take(struct pulls *p, const struct carry_order *order, struct pull **ret, struct err *err)
{
    (void)p, (void)err;
    wanted = *order;
    pull = (struct pull){.state = PULL_RUNS};
    begun++;
    *ret = &pull;
    return 0;
}

enum pull_state pull_state(const struct pull *p)
{
    return p->state;
}

const char *pull_model(const struct pull *p)
{
    (void)p;
    return MODEL;
}

const char *pull_why(const struct pull *p)
{
    (void)p;
    return "the disk is full";
}

bool pull_was_cut_off(const struct pull *p)
{
    return p->is_cut_off;
}

void pull_amounts(const struct pull *p, uint64_t *ret_done, uint64_t *ret_total, double *ret_rate)
{
    (void)p;
    *ret_done = 100, *ret_total = 400, *ret_rate = 50;
}

int shelf_ask(struct aside *aside, const struct shelf_order *order,
              void (*done)(void *owner, const struct shelf_answer *answer), void *owner)
{
    const struct shelf_answer answer = {.r = name_says, .why = "the name is taken"};
    (void)aside;
    assert_int_equal(order->what, SHELF_NAME);
    assert_true(order->added);
    named++;
    done(owner, &answer);
    return 0;
}

static int on_send(void *owner, const uint8_t to[16], json_t *message)
{
    (void)owner;
    json_decref(sent[to[0]]);
    sent[to[0]] = message;
    return 0;
}

static void on_changed(void *owner, const json_t *shown)
{
    (void)owner;
    json_decref(row);
    row = json_deep_copy(shown);
}

static const char *content(void *owner, const char *model)
{
    (void)owner, (void)model;
    return here;
}

static bool is_whole(void *owner, const char *model)
{
    (void)owner, (void)model;
    return here && here_whole;
}

static void forget_sent(void)
{
    for (size_t i = 0; i < 5; i++) {
        json_decref(sent[i]);
        sent[i] = NULL;
    }
}

static int open_world(void **state)
{
    (void)state;
    base = event_base_new();
    members = row_of(4, false);
    pushes = pushes_new(
        &(struct pushes_setup){.base = base, .members = members, .send = on_send, .changed = on_changed});
    takes = push_takes_new(&(struct push_takes_setup){.base = base,
                                                      .members = members,
                                                      .dir = "/models",
                                                      .send = on_send,
                                                      .content = content,
                                                      .is_whole = is_whole});
    here = NULL;
    here_whole = false;
    begun = named = 0;
    name_says = 0;
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    forget_sent();
    json_decref(row);
    row = NULL;
    push_takes_free(takes);
    pushes_free(pushes);
    members_free(members);
    event_base_free(base);
    return 0;
}

/* --- one that pushes -------------------------------------------------------------------------- */

/* The node whose id begins with so much. */
static void id_of(uint8_t ret[16], size_t node)
{
    memset(ret, 0, 16);
    for (size_t i = 0; i < members_count(members); i++)
        if (members_at(members, i)->id[0] == node)
            memcpy(ret, members_at(members, i)->id, 16);
}

static int begin(const char *nodes)
{
    const struct push_model model = {.model = MODEL, .content = ONE, .added = true};
    struct err err = {""};
    json_t *list = json_loads(nodes, 0, NULL), *shown = NULL;
    const int r = pushes_begin(pushes, &model, list, &shown, &err);
    if (!r)
        on_changed(NULL, shown);
    json_decref(shown);
    json_decref(list);
    return r;
}

static void hear(size_t node, const char *more)
{
    uint8_t id[16];
    json_t *body = json_loads(more, 0, NULL);
    id_of(id, node);
    json_object_set(body, "round", json_object_get(sent[node], "round"));
    json_object_set_new(body, "model", json_string(MODEL));
    pushes_take_pushed(pushes, id, body);
    json_decref(body);
}

static const char *shown(size_t at, const char *key)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(row, "nodes"), at), key));
}

/* The first source that a node was given. */
static size_t source_of(size_t node)
{
    unsigned id = 0;
    assert_non_null(sent[node]);
    sscanf(json_string_value(json_array_get(json_object_get(sent[node], "from"), 0)), "%2x", &id);
    return id;
}

#define COMES "{\"ready\":false,\"done\":100,\"total\":400,\"rate\":50}"
#define READY "{\"ready\":true,\"done\":400,\"total\":400,\"rate\":0,\"place\":\"/models/owl\"}"
#define FULL "{\"ready\":false,\"done\":0,\"total\":400,\"rate\":0,\"why\":\"the disk is full\"}"

static void each_node_hears_from_whom_and_is_shown(void **state)
{
    (void)state;
    assert_int_equal(begin("[]"), 0);
    for (size_t node = 2; node <= 4; node++)
        assert_int_equal(source_of(node), node - 1);
    hear(2, COMES);
    assert_string_equal(shown(0, "state"), "coming");
    hear(2, READY);
    assert_string_equal(shown(0, "state"), "ready");
    assert_string_equal(shown(0, "place"), "/models/owl");
    assert_string_equal(json_string_value(json_object_get(row, "state")), "pushing");
    hear(3, READY);
    hear(4, READY);
    assert_string_equal(json_string_value(json_object_get(row, "state")), "done");
}

static void the_others_go_on_without_one_that_has_failed(void **state)
{
    (void)state;
    assert_int_equal(begin("[]"), 0);
    const json_t *before = sent[4];
    hear(3, FULL);
    assert_string_equal(shown(1, "error"), "the disk is full");
    assert_ptr_not_equal(sent[4], before);
    assert_int_equal(source_of(4), 2); /* the nearest on the way that takes it */
    hear(2, READY);
    hear(4, READY);
    assert_string_equal(json_string_value(json_object_get(row, "state")), "failed");
}

static void what_is_no_node_is_refused(void **state)
{
    char self[100];
    (void)state;
    snprintf(self, sizeof self, "[\"%s\"]", members_self(members)->name);
    assert_int_equal(begin("[\"nobody\"]"), -EINVAL);
    assert_int_equal(begin(self), -EINVAL);
    for (size_t i = 0; i < 5; i++)
        assert_null(sent[i]);
}

/* --- one that takes --------------------------------------------------------------------------- */

static void be_pushed_model(size_t by, const char *model, int round, const char *from)
{
    uint8_t id[16];
    char hex[33] = "";
    id_of(id, by);
    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", id[i]);
    json_t *body = json_pack("{s:i s:s s:s s:b s:[s]}", "round", round, "model", model, "content", ONE,
                             "added", 1, "from", from ? from : hex);
    push_takes_take(takes, id, body);
    json_decref(body);
}

static void be_pushed(size_t by, int round, const char *from)
{
    be_pushed_model(by, MODEL, round, from);
}

static const char *said(const char *key)
{
    return json_string_value(json_object_get(sent[2], key));
}

static bool is_ready(void)
{
    return json_is_true(json_object_get(sent[2], "ready"));
}

static void all_of_it_is_taken_and_gets_its_name(void **state)
{
    (void)state;
    be_pushed(2, 7, NULL);
    assert_int_equal(begun, 1);
    assert_true(wanted.whole && wanted.nodes && !wanted.hub);
    assert_int_equal(wanted.from[0][0], 2);
    assert_int_equal(json_integer_value(json_object_get(sent[2], "done")), 100);
    be_pushed(2, 7, NULL); /* asked again */
    assert_int_equal(begun, 1);
    pull.state = PULL_DONE;
    push_takes_changed(takes, &pull);
    assert_false(is_ready());
    be_pushed(2, 7, "03000000000000000000000000000000"); /* from one that has it since then */
    assert_int_equal(begun, 1);
    here = ONE;
    here_whole = true;
    push_takes_looked(takes);
    assert_true(is_ready());
    assert_int_equal(json_integer_value(json_object_get(sent[2], "total")), 400);
    assert_string_equal(said("place"), "/models/" MODEL);
    forget_sent();
    be_pushed(2, 7, NULL);
    assert_true(is_ready());
    assert_int_equal(named, 1);
}

static void what_is_in_the_way_is_said(void **state)
{
    (void)state;
    be_pushed(2, 1, NULL);
    pull.state = PULL_FAILED;
    push_takes_changed(takes, &pull);
    assert_string_equal(said("why"), "the disk is full");
    be_pushed(2, 2, NULL); /* a new push tries it again */
    assert_int_equal(begun, 2);
    assert_null(said("why"));
    here = ONE;
    here_whole = true;
    name_says = -EEXIST;
    be_pushed(2, 3, NULL);
    assert_string_equal(said("why"), "the name is taken");
    here = TWO;
    be_pushed(2, 4, NULL);
    assert_non_null(strstr(said("why"), "other files under this name"));
    assert_int_equal(begun, 2);
}

/* A process that ended without a word is no reason yet. */
static void one_that_was_cut_off_begins_again(void **state)
{
    (void)state;
    be_pushed(2, 1, NULL);
    forget_sent();
    pull = (struct pull){PULL_FAILED, true};
    push_takes_changed(takes, &pull);
    assert_null(sent[2]);
    event_base_loop(base, EVLOOP_ONCE);
    assert_int_equal(begun, 2);
    assert_null(said("why"));
}

static void what_makes_no_sense_is_passed_over(void **state)
{
    (void)state;
    be_pushed(2, 1, "00112233445566778899aabbccddeeff"); /* no member */
    assert_int_equal(begun, 0);
    assert_null(sent[2]);
}

/* More than any node pushes: what is remembered of others stays. */
static void one_that_pushes_much_pushes_out_its_own(void **state)
{
    enum { MUCH = 1000 };
    (void)state;
    be_pushed(2, 1, NULL);
    for (unsigned i = 0; i < MUCH; i++) {
        char model[100];
        snprintf(model, sizeof model, "local/m%u@%040u", i, i);
        be_pushed_model(3, model, 1, NULL);
    }
    forget_sent();
    pull.state = PULL_FAILED;
    push_takes_changed(takes, &pull);
    assert_string_equal(said("why"), "the disk is full");
    be_pushed_model(3, "local/m0@0000000000000000000000000000000000000000", 1, NULL);
    assert_int_equal(begun, MUCH + 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_node_hears_from_whom_and_is_shown),
        TEST(the_others_go_on_without_one_that_has_failed),
        TEST(what_is_no_node_is_refused),
        TEST(all_of_it_is_taken_and_gets_its_name),
        TEST(what_is_in_the_way_is_said),
        TEST(one_that_was_cut_off_begins_again),
        TEST(what_makes_no_sense_is_passed_over),
        TEST(one_that_pushes_much_pushes_out_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
