/* SPDX-License-Identifier: MIT
 *
 * What a head may tell a worker, and what a stage may tell it, with plans and events of any fields.
 * Input: (u8 who, which message ‖ its fields)*. No process is started, and there is no other
 * node. */
#include "tests/fuzz/lib/keys.h"
#include "tests/lib/small_plan.h"
#include "tests/fuzz/lib/message.h"

#include "daemon/ringd/log.h"
#include "tests/unit/daemon/ringd/job/no_stage.h"
#include "tests/unit/daemon/ringd/job/worker_world.h"

enum { MESSAGES = 16 };

/* --- messages --- */

static const char *keys[KEYS_MAX + 1];
static const char *const texts[] = {"01000000000000000000000000000000", "02000000000000000000000000000000",
                                    "f", "", NULL};
static const struct input_words words = {keys, texts};

static json_t *three_nodes(void)
{
    return json_pack("[s,s,s]", texts[0], texts[1], "03000000000000000000000000000000");
}

static void add_keys(void)
{
    static const char *const of_events[] = {"rank", "error", "event", "path", "why", "kept"};
    keys_add(keys, job_plan_fields());
    for (size_t i = 0; i < sizeof of_events / sizeof *of_events; i++)
        keys_add_one(keys, of_events[i]);
}

/* Fields of the input stand in place of those of a plan that can be read. */
static void complete_plan(json_t *plan)
{
    const struct job_plan small = small_plan(JOB_TRAIN, 3);
    json_t *all = job_plan_encode(&small);
    json_object_update_missing(plan, all);
    json_decref(all);
}

static void head_says(struct workers *ws, uint8_t what, struct input *in)
{
    static const enum message_kind kinds[] = {MESSAGE_JOB_OPEN, MESSAGE_JOB_CONNECT, MESSAGE_JOB_RUN,
                                              MESSAGE_JOB_STOP, MESSAGE_LANE_TURN,   MESSAGE_HEAD_ANSWER};
    const uint8_t from[16] = {1 + what / 8 % 2};
    json_t *body = message_of(in, kinds[what % 6], &words);
    if (!body)
        return;
    if (what & 16 && what % 6 < 4)
        json_object_set_new(body, "job", json_integer(1));
    if (what & 32)
        json_object_set_new(body, "nodes", three_nodes());
    if (what & 64)
        complete_plan(json_object_get(body, "plan"));
    struct worker *w = workers_of_head(ws, from, body);
    switch (kinds[what % 6]) {
    case MESSAGE_JOB_OPEN: workers_take_open(ws, from, body); break;
    case MESSAGE_HEAD_ANSWER: workers_take_head_answer(ws, from, body); break;
    case MESSAGE_LANE_TURN: workers_take_lane_turn(ws, from, body); break;
    case MESSAGE_JOB_STOP: w ? worker_take_stop(w, body) : workers_say_stopped(ws, from, body); break;
    case MESSAGE_JOB_CONNECT:
        if (w)
            worker_take_connect(w);
        break;
    default:
        if (w)
            worker_take_run(w, body);
    }
    json_decref(body);
}

static void stage_says(uint8_t what, struct input *in)
{
    static const char *const kinds[] = {"planned",   "ready", "done", "failed",
                                        "lane-lost", "step",  "left", "resting"};
    json_t *event = input_object(in, &words, 0);
    if (the_stage.ops)
        the_stage.ops->event(the_stage.owner, kinds[what / 8 % 8], event);
    json_decref(event);
}

static void stage_ends(void)
{
    const struct spawn_ops *ops = the_stage.ops;
    the_stage.ops = NULL;
    if (ops)
        ops->ended(the_stage.owner, the_stage.is_ending ? "" : "was killed by SIGKILL");
}

static void neighbour_dials(struct workers *ws, struct input *in)
{
    struct link_hello hello = {
        .job = input_u8(in), .from_rank = input_u8(in), .to_rank = input_u8(in), .dim = input_u8(in)};
    char why[200] = "";
    hello.head_id[0] = input_u8(in);
    hello.node_id[0] = input_u8(in);
    hello.fingerprint[0] = (char)input_u8(in);
    const int r = workers_data_hello(ws, &hello, why, sizeof why);
    expect((r == 0) == (why[0] == '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct alone node;
    struct input in = {data, n};
    struct member me = {0};
    struct err err;
    if (!node.base) {
        log_set_level("error");
        add_keys();
        expect(alone_open(&node, &err));
    }
    struct workers *ws = alone_workers(&node);
    for (int i = 0; i < MESSAGES && in.left; i++) {
        const uint8_t what = input_u8(&in);
        if (what % 8 < 5)
            head_says(ws, what, &in);
        else if (what % 8 == 5)
            stage_says(what, &in);
        else if (what % 8 == 6)
            neighbour_dials(ws, &in);
        else if (the_stage.is_ending || what > 200)
            stage_ends();
        else
            event_base_loop(node.base, EVLOOP_NONBLOCK);
        workers_describe(ws, &me);
        for (size_t k = 0; k < me.nstages; k++)
            expect(memchr(me.stages[k].doing, '\0', sizeof me.stages[k].doing) != NULL);
    }
    workers_free(ws);
    return 0;
}
