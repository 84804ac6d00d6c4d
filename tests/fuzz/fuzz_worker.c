/* SPDX-License-Identifier: MIT
 *
 * What a head may tell a worker, and what a stage may tell it, with any fields of any type. Input:
 * (u8 who, which message ‖ its fields)*. No process is started, and nothing is sent. */
#include "tests/fuzz/input.h"

#include <event2/event.h>

#include "daemon/common/conf.h"
#include "daemon/ringd/job/worker.c" /* for what its stage says */
#include "daemon/ringd/job/worker_lanes.c"

enum { MESSAGES = 16 };

/* --- the rest of the daemon --- */

struct spawn {
    int none;
};
static struct spawn a_stage;

int spawn_start(struct spawn **ret, struct event_base *base, const char *binary, int threads,
                const struct spawn_ops *ops, void *owner, struct err *err)
{
    (void)base, (void)binary, (void)threads, (void)ops, (void)owner, (void)err;
    *ret = &a_stage;
    return 0;
}

int spawn_send(struct spawn *s, json_t *message)
{
    (void)s;
    json_decref(message);
    return 0;
}

int spawn_send_lane(struct spawn *s, const struct ipc_lane *lane, int fd)
{
    (void)s, (void)lane, (void)fd;
    return 0;
}

void spawn_kill(struct spawn *s, int signal)
{
    (void)s, (void)signal;
}

const struct progress *spawn_progress(const struct spawn *s)
{
    static struct progress progress;
    (void)s;
    return &progress;
}

pid_t spawn_pid(const struct spawn *s)
{
    (void)s;
    return 0;
}

uint64_t spawn_peak(const struct spawn *s)
{
    (void)s;
    return 0;
}

uint64_t spawn_memory(const struct spawn *s)
{
    (void)s;
    return 0;
}

void spawn_free(struct spawn *s)
{
    (void)s;
}

struct lanes *lanes_new(struct node *node, const struct lanes_ops *ops, void *owner)
{
    (void)node, (void)ops, (void)owner;
    return NULL;
}

void lanes_free(struct lanes *l)
{
    (void)l;
}

void lanes_start(struct lanes *l, const uint8_t to[16], const struct link_hello *hello, bool relays)
{
    (void)l, (void)to, (void)relays;
    expect(memchr(hello->fingerprint, '\0', sizeof hello->fingerprint) != NULL);
}

void lanes_stop(struct lanes *l)
{
    (void)l;
}

void lanes_lost(struct lanes *l, uint64_t path)
{
    (void)l, (void)path;
}

void lanes_came(struct lanes *l, uint64_t path)
{
    (void)l, (void)path;
}

bool lanes_keeps(const struct lanes *l, uint64_t path)
{
    (void)l;
    return path % 2;
}

void lanes_changed(struct lanes *l)
{
    (void)l;
}

size_t paths_all(const struct members *members, struct peers *peers, uint64_t ret[PATHS_MAX])
{
    (void)members, (void)peers;
    ret[0] = 1;
    return 1;
}

uint64_t paths_at(const struct members *members, struct peers *peers, const char *address)
{
    (void)members, (void)peers, (void)address;
    return 1;
}

int peers_send(struct peers *p, const uint8_t to[16], json_t *body)
{
    (void)p, (void)to;
    json_decref(body);
    return 0;
}

void peers_flood_self(struct peers *p)
{
    (void)p;
}

void peers_path_turned(struct peers *p, const uint8_t from[16], uint64_t cable)
{
    (void)p, (void)from, (void)cable;
}

const char *peers_last_words(struct peers *p, const uint8_t id[16])
{
    (void)p, (void)id;
    return "";
}

uint64_t peers_path_of(struct peers *p, struct link *link, const uint8_t id[16])
{
    (void)p, (void)link, (void)id;
    return 1;
}

bool peers_path_name(struct peers *p, uint64_t path, struct path_name *ret)
{
    (void)p, (void)path;
    *ret = (struct path_name){.peer = "b"};
    return true;
}

json_t *peers_clocks(struct peers *p, const uint8_t (*nodes)[16], size_t n)
{
    (void)p, (void)nodes, (void)n;
    return json_array();
}

void cost_server_yield(struct cost_server *g)
{
    (void)g;
}

void doctor_yield(struct doctor *d)
{
    (void)d;
}

void plan_request_yield(struct plan_request *p)
{
    (void)p;
}

void cost_query_ask(struct cost_query *s, struct spawn *stage, const json_t *event)
{
    (void)s, (void)stage, (void)event;
}

void cost_query_forget(struct cost_query *s, const struct spawn *stage)
{
    (void)s, (void)stage;
}

void node_changed(struct node *n)
{
    (void)n;
}

void log_line(enum log_level priority, const char *fmt, ...)
{
    (void)priority, (void)fmt;
}

void log_about(enum log_level priority, const struct log_about *about, const char *fmt, ...)
{
    (void)priority, (void)about, (void)fmt;
}

/* --- messages --- */

static const char *const keys[] = {"job",   "rank",  "nodes", "plan", "fingerprint", "dim",
                                   "error", "event", "path",  "why",  "cause",       NULL};
static const char *const texts[] = {"01000000000000000000000000000000", "02000000000000000000000000000000",
                                    "f", "", NULL};
static const struct input_words words = {keys, texts};

static json_t *three_nodes(void)
{
    return json_pack("[s,s,s]", texts[0], texts[1], "03000000000000000000000000000000");
}

static void head_says(struct worker *w, uint8_t what, struct input *in)
{
    static const char *const kinds[] = {"job-open", "job-connect", "job-run", "job-stop", "lane-turn"};
    const uint8_t from[16] = {1 + what / 8 % 2};
    json_t *body = input_object(in, &words, 0);
    if (what & 16)
        json_object_set_new(body, "job", json_integer(1));
    if (what & 32)
        json_object_set_new(body, "nodes", three_nodes());
    worker_message(w, from, kinds[what % 5], body);
    json_decref(body);
}

static void stage_says(struct worker *w, uint8_t what, struct input *in)
{
    static const char *const kinds[] = {"planned", "ready", "done", "failed", "lane-lost", "step"};
    json_t *event = input_object(in, &words, 0);
    if (w->stage)
        stage_event(w, kinds[what / 8 % 6], event);
    json_decref(event);
}

static void neighbour_dials(struct worker *w, struct input *in)
{
    struct link_hello hello = {
        .job = input_u8(in), .from_rank = input_u8(in), .to_rank = input_u8(in), .dim = input_u8(in)};
    char why[200] = "";
    hello.head_id[0] = input_u8(in);
    hello.node_id[0] = input_u8(in);
    hello.fingerprint[0] = (char)input_u8(in);
    const int r = worker_data_hello(w, &hello, why, sizeof why);
    expect((r == 0) == (why[0] == '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct member self = {.id = {1}, .name = "self", .version = "1", .boot = 1, .seq = 1};
    static struct node node;
    struct input in = {data, n};
    struct member me = self;
    if (!node.base) {
        node.base = event_base_new();
        node.members = members_new(&self);
        node.opts = opts_new(conf_table);
    }
    struct worker *w = worker_new(&node);
    for (int i = 0; i < MESSAGES && in.left; i++) {
        const uint8_t what = input_u8(&in);
        if (what % 8 < 5)
            head_says(w, what, &in);
        else if (what % 8 == 5)
            stage_says(w, what, &in);
        else if (what % 8 == 6)
            neighbour_dials(w, &in);
        else
            event_base_loop(node.base, EVLOOP_NONBLOCK); /* a stage that was to end has ended */
        worker_describe(w, &me);
        expect(memchr(me.doing, '\0', sizeof me.doing) != NULL);
    }
    worker_free(w);
    return 0;
}
