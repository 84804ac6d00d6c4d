/* SPDX-License-Identifier: MIT
 *
 * A whole node on one loop, but for its stage processes, and others around it that say all that a
 * test wants. What the node is may be looked at as its users see it: by the HTTP API, and by what
 * it keeps on disk. Words of others come in where the frames of their connections do. */
#ifndef TESTS_UNIT_BYZANTINE_WORLD_H
#define TESTS_UNIT_BYZANTINE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <limits.h>
#include <cmocka.h>

#include <event2/event.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/ringd/api/api.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/cluster/envelope.h"
#include "daemon/ringd/cluster/record.h"
#include "daemon/ringd/http/http_inside.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/message_table.h"
#include "daemon/ringd/messages.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/peers_impl.h"
#include "daemon/ringd/store/store.h"
#include "net/link_impl.h"
#include "tests/lib/small_plan.h"
#include "tests/unit/daemon/ringd/job/no_stage.h"
#include "tests/lib/own_keys.h"

/* Of the node under test: */
enum byz_mate {
    PEER,    /* a neighbour; in all jobs, as are */
    FAR,     /* who is behind PEER, and */
    AUTHOR,  /* a neighbour, and an authority */
    OTHER,   /* a neighbour, in no job */
    REMOVED, /* was a member */
    STRANGER,
    MATES
};
enum byz_role { IDLE, HEADS, WORKS, ROLES }; /* what the node does */
enum { JOB = 7, RANKS = 4, BYZ_TURNS = 40 };

struct mate {
    struct auth_identity id;
    uint8_t node_id[16], cert[CERT_BYTES];
    struct members *members;
    struct envelopes *envelopes;
    struct records *records;
    struct link *link; /* owned: to the node; NULL: none */
    bool is_up;
};
struct byz {
    char dir[64];
    struct opts *opts;
    struct node *node;
    struct mate at[MATES];
    enum byz_role role;
    size_t cases;
    /* an answer of the API */
    bool is_answered;
    int status;
    char *text; /* owned */
};

/* --- the node --------------------------------------------------------------------------------- */

static inline void byz_turn(const struct byz *w)
{
    for (int i = 0; i < BYZ_TURNS; i++)
        event_base_loop(w->node->base, EVLOOP_NONBLOCK);
}

static inline void byz_heard_kept(void *arg, const char *error)
{
    if (error)
        fail_msg("%s", error);
    *(bool *)arg = true;
}

/* What was changed in the cluster is on the disk, and others may hear of it. */
static inline void byz_settle(const struct byz *w)
{
    bool heard = false;
    cluster_when_kept(w->node->cluster, byz_heard_kept, &heard);
    while (!heard)
        event_base_loop(w->node->base, EVLOOP_ONCE);
    byz_turn(w);
}

static inline void byz_open_node(struct byz *w)
{
    char config[80], link_socket[80], socket[80], keys[PATH_MAX];
    struct err err = {""};
    bool help;
    snprintf(config, sizeof config, "%s/ringd.conf", w->dir);
    snprintf(link_socket, sizeof link_socket, "%s/none", w->dir);
    snprintf(socket, sizeof socket, "%s/ringd.sock", w->dir);
    own_program(keys, "ringd-keys");
    char *argv[] = {"ringd",         "--config",   config,          "--state-dir",  w->dir,
                    "--socket",      socket,       "--listen",      "127.0.0.1:0",  "--http-listen",
                    "none",          "--discover", "off",           "--dead-after", "3600",
                    "--link-socket", link_socket,  "--keys-binary", keys,           NULL};
    FILE *f = fopen(config, "we");
    assert_non_null(f);
    fclose(f);
    if (conf_load(&w->opts, (int)(sizeof argv / sizeof *argv) - 1, argv, &help, &err) ||
        node_open(&w->node, w->opts, (int)(sizeof argv / sizeof *argv) - 1, argv, &err))
        fail_msg("%s", err.text);
    node_changed(w->node);
}

static inline void byz_close_node(struct byz *w)
{
    for (size_t i = 0; i < MATES; i++) {
        link_free(w->at[i].link);
        w->at[i].link = NULL;
    }
    node_close(w->node);
    opts_free(w->opts);
    w->node = NULL;
}

/* --- mates ------------------------------------------------------------------------------------ */

static inline int byz_hello(void *owner, struct link *link, const struct link_hello *peer, char *why,
                            size_t size)
{
    (void)owner, (void)link, (void)peer, (void)why, (void)size;
    return 0;
}

static inline void byz_up(void *owner, struct link *link)
{
    struct mate *m = owner;
    (void)link;
    m->is_up = true;
}

static inline void byz_frame(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    (void)owner, (void)link, (void)type, (void)body, (void)n;
}

static inline void byz_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct mate *m = owner;
    (void)end, (void)text;
    link_free(link);
    m->link = NULL;
    m->is_up = false;
}

/* The node's end of its connection. */
static inline struct session *byz_session(const struct byz *w, enum byz_mate who)
{
    struct session *s;
    LIST_FOREACH (s, &w->node->peers->sessions, next)
        if (s->up && !memcmp(link_peer(s->link)->node_id, w->at[who].node_id, 16))
            return s;
    return NULL;
}

/* Of a control connection to the node; `psk` is written. */
static inline struct link_setup byz_link_setup(struct byz *w, enum byz_mate who, uint8_t psk[AUTH_PSK])
{
    static const struct link_ops ops = {
        .hello = byz_hello, .up = byz_up, .frame = byz_frame, .down = byz_down};
    struct mate *m = &w->at[who];
    struct link_setup s = {.base = w->node->base,
                           .id = &m->id,
                           .psk = psk,
                           .kind = LINK_CONTROL,
                           .hello = {.proto_min = 1, .proto_max = 1, .boot = 1000 + who, .listen_port = 9},
                           .ops = &ops,
                           .owner = m};
    struct cert cert;
    assert_int_equal(cluster_psk(w->node->cluster, 0, psk), 0);
    assert_int_equal(cert_open(m->cert, CERT_BYTES, cluster_key(w->node->cluster), &cert), 0);
    snprintf(s.hello.name, sizeof s.hello.name, "%s", cert.name);
    strcpy(s.hello.version, "0");
    memcpy(s.hello.cert, m->cert, CERT_BYTES);
    return s;
}

static inline void byz_connect(struct byz *w, enum byz_mate who)
{
    uint8_t psk[AUTH_PSK];
    const struct link_setup s = byz_link_setup(w, who, psk);
    assert_int_equal(link_dial(&w->at[who].link, &s, "127.0.0.1", peers_port(w->node->peers)), 0);
    for (int i = 0; i < 2000 && !byz_session(w, who); i++)
        event_base_loop(w->node->base, EVLOOP_ONCE);
    assert_non_null(byz_session(w, who));
}

/* A frame of its connection, as the node takes it. */
static inline void byz_give(struct byz *w, enum byz_mate by, uint8_t type, const void *body, size_t n)
{
    struct session *s = byz_session(w, by);
    assert_non_null(s);
    s->link->ops->frame(s->link->owner, s->link, type, body, n);
    w->cases++;
}

static inline void byz_link(struct member *m, const uint8_t id[16])
{
    memcpy(m->links[m->nlinks++].id, id, 16);
}

static inline void byz_learn_self(const struct byz *w, struct mate *m)
{
    json_t *self = member_encode(members_self(w->node->members));
    members_learn(m->members, self, (struct instant){1});
    json_decref(self);
}

/* Its record, which the node hears through that neighbour. */
static inline void byz_say_record(struct byz *w, enum byz_mate who, enum byz_mate by)
{
    uint8_t body[RECORD_MAX];
    struct mate *m = &w->at[who];
    members_touch(m->members);
    records_sign_self(m->records, clock_now());
    const size_t n = records_write(m->records, m->node_id, clock_now(), body, sizeof body);
    assert_true(n > 0);
    byz_give(w, by, FRAME_RECORD, body, n);
}

static inline void byz_mate_members(struct byz *w, enum byz_mate who)
{
    struct mate *m = &w->at[who];
    struct member self = {.boot = 1000 + who, .seq = 1, .cores = 1, .threads = 1};
    memcpy(self.id, m->node_id, 16);
    snprintf(self.name, sizeof self.name, "m%d", (int)who);
    strcpy(self.version, "0");
    for (enum byz_mate o = PEER; o <= AUTHOR && who <= AUTHOR; o++) /* a ring: node, PEER, FAR, AUTHOR */
        if (o != who && (o == FAR || who == FAR))
            byz_link(&self, w->at[o].node_id);
    if (who == PEER || who == AUTHOR)
        byz_link(&self, members_self(w->node->members)->id);
    m->members = members_new(&self);
    m->envelopes = envelopes_new(&m->id, m->members);
    m->records = records_new(&m->id, m->members);
    byz_learn_self(w, m);
}

static inline void byz_admit(struct byz *w, enum byz_mate who)
{
    struct mate *m = &w->at[who];
    char name[8];
    struct err err = {""};
    snprintf(name, sizeof name, "m%d", (int)who);
    if (cluster_issue(w->node->cluster, m->id.pub, name, 1000, m->cert, &err))
        fail_msg("%s", err.text);
}

static inline void byz_enrol(struct byz *w, enum byz_mate who)
{
    struct mate *m = &w->at[who];
    uint8_t seed[AUTH_SEED] = {(uint8_t)(who + 1)};
    struct err err = {""};
    assert_int_equal(own_identity_from_seed(&m->id, seed), 0);
    auth_node_id(m->node_id, m->id.pub);
    if (who != STRANGER && who != OTHER)
        byz_admit(w, who);
    if ((who == AUTHOR && cluster_promote(w->node->cluster, m->node_id, &err)) ||
        (who == REMOVED && cluster_remove(w->node->cluster, m->node_id, &err)))
        fail_msg("%s", err.text);
}

static inline void byz_meet(struct byz *w)
{
    byz_connect(w, PEER);
    byz_connect(w, AUTHOR);
    for (enum byz_mate m = PEER; m <= AUTHOR; m++)
        byz_say_record(w, m, PEER);
    byz_turn(w);
    node_changed(w->node);
}

/* --- what it does ----------------------------------------------------------------------------- */

static inline void byz_heard_written(void *arg, const char *nothing)
{
    (void)nothing;
    *(bool *)arg = true;
}

/* The stage of the node says so; takes over `event`. A node is not ready before it is on the disk
 * that it takes part. */
static inline void byz_stage_says(struct byz *w, const char *kind, json_t *event)
{
    bool heard = false;
    assert_non_null(the_stage.ops);
    the_stage.ops->event(the_stage.owner, kind, event);
    json_decref(event);
    store_sync(w->node->store, byz_heard_written, &heard);
    while (!heard)
        event_base_loop(w->node->base, EVLOOP_ONCE);
    byz_turn(w);
}

/* With job and rank; takes over `fields`. */
static inline json_t *byz_of_job(const char *kind, uint64_t job, size_t rank, json_t *fields)
{
    json_object_set_new(fields, "kind", json_string(kind));
    json_object_set_new(fields, "job", json_integer((json_int_t)job));
    json_object_set_new(fields, "rank", json_integer((json_int_t)rank));
    return fields;
}

/* A neighbour's message; takes over `body`. */
static inline void byz_say(struct byz *w, enum byz_mate who, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    byz_give(w, who, FRAME_MESSAGE, text, strlen(text));
    free(text);
    json_decref(body);
}

static inline void byz_hex(char ret[33], const uint8_t id[16])
{
    sodium_bin2hex(ret, 33, id, 16);
}

/* The node is rank 1 of a job of PEER, which runs. */
static inline void byz_work(struct byz *w)
{
    char ids[RANKS][33];
    byz_hex(ids[0], w->at[PEER].node_id);
    byz_hex(ids[1], members_self(w->node->members)->id);
    byz_hex(ids[2], w->at[AUTHOR].node_id);
    byz_hex(ids[3], w->at[FAR].node_id);
    const struct job_plan plan = small_plan(JOB_TRAIN, RANKS);
    json_t *open = json_pack("{s:o, s:[s,s,s,s]}", "plan", job_plan_encode(&plan), "nodes", ids[0], ids[1],
                             ids[2], ids[3]);
    byz_say(w, PEER, byz_of_job("job-open", JOB, 1, open));
    byz_stage_says(w, "ready", json_pack("{s:[[i,i]]}", "layers", 1, 2));
    byz_say(w, PEER, byz_of_job("job-run", JOB, 1, json_object()));
    byz_turn(w);
}

static inline void byz_mates_say(struct byz *w, const struct job *job, const char *kind, bool layers)
{
    for (size_t r = 0; r < RANKS; r++) {
        json_t *body = layers ? json_pack("{s:[[i,i]]}", "layers", r, r + 1) : json_object();
        json_t *said = byz_of_job(kind, job->id, r, body);
        messages_receive(w->node, job_nodes(job)->id[r], said);
        json_decref(said);
    }
    byz_turn(w);
}

/* The node heads a job with PEER and FAR, as far as that state. */
static inline const struct job *byz_head(struct byz *w, enum job_state state)
{
    const struct job_plan plan = small_plan(JOB_TRAIN, RANKS);
    struct err err = {""};
    uint64_t id;
    if (coord_submit(w->node->coord, JOB_TRAIN,
                     json_pack("{s:s s:s s:s}", "model", "/m", "data", "/d", "adapter_out", "/o"), NULL, &id,
                     &err))
        fail_msg("%s", err.text);
    byz_turn(w);
    const struct job *job = coord_find(w->node->coord, id);
    assert_int_equal(job->state, JOB_PLANNING);
    assert_int_equal(job_nodes(job)->n, RANKS);
    if (state > JOB_PLANNING)
        byz_stage_says(w, "planned", small_plan_told(&plan, 5));
    if (state > JOB_OPENING) {
        byz_stage_says(w, "ready", json_pack("{s:[[i,i]]}", "layers", 0, 1));
        byz_mates_say(w, job, "job-ready", true);
    }
    if (state > JOB_CONNECTING)
        byz_mates_say(w, job, "job-connected", false);
    if (state > JOB_RUNNING)
        assert_int_equal(coord_cancel(w->node->coord, id), 0);
    byz_turn(w);
    assert_int_equal(job->state, state);
    return job;
}

/* --- what it is ------------------------------------------------------------------------------- */

static inline void byz_on_reply(void *owner, int status, const char *type, const char *body, size_t n)
{
    struct byz *w = owner;
    (void)type;
    free(w->text);
    w->text = strndup(body, n);
    w->status = status;
    w->is_answered = true;
}

static inline void byz_on_stream(void *owner, uint64_t job, uint64_t after)
{
    (void)owner, (void)job, (void)after;
    fail_msg("an answer was asked for, and not events");
}

/* What moves by itself, and counts of what was said. */
static inline bool byz_is_volatile(const char *key)
{
    static const char *const keys[] = {"memory_available", "seconds", "up_seconds",     "last_seen_seconds",
                                       "key_seconds",      "rtt_ms",  "rx_bytes",       "tx_bytes",
                                       "retransmits",      "suspect", "clock_ahead_us", "clock_error_us"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

static inline void byz_still(json_t *j)
{
    const char *key;
    json_t *value;
    void *next;
    size_t i;
    json_object_foreach_safe (j, next, key, value) {
        if (byz_is_volatile(key))
            json_object_del(j, key);
        else
            byz_still(value);
    }
    json_array_foreach (j, i, value)
        byz_still(value);
    for (i = json_array_size(j); i-- > 0;) { /* what was dropped is counted, and told */
        const char *text = json_string_value(json_array_get(j, i));
        if (text && !strncmp(text, "ringd dropped", strlen("ringd dropped")))
            json_array_remove(j, i);
    }
}

static inline json_t *byz_ask(struct byz *w, const char *path)
{
    const struct http_inside to = {
        .reply = byz_on_reply, .stream = byz_on_stream, .mailbox = w->node->mailbox, .owner = w};
    json_error_t error;
    w->is_answered = false;
    api_handle(w->node->api, http_inside_new("GET", path, NULL, NULL, &to));
    for (int i = 0; i < 5000 && !w->is_answered; i++)
        event_base_loop(w->node->base, EVLOOP_ONCE);
    assert_true(w->is_answered);
    if (w->status != 200 && w->status != 404)
        fail_msg("GET %s: %d %s", path, w->status, w->text);
    json_t *j = json_loads(w->text, 0, &error);
    if (!j)
        fail_msg("GET %s: %s in %s", path, error.text, w->text);
    byz_still(j);
    return j;
}

static inline json_t *byz_bytes(const uint8_t *data, size_t n)
{
    uint8_t sum[16];
    char text[33];
    crypto_generichash(sum, sizeof sum, data, n, NULL, 0);
    byz_hex(text, sum);
    return json_string(text);
}

static inline json_t *byz_file(const struct byz *w, const char *name)
{
    static uint8_t bytes[1 << 17];
    char path[100];
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    FILE *f = fopen(path, "re");
    const size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f)
        fclose(f);
    return byz_bytes(bytes, n);
}

/* All that a user of the node sees, what it keeps, and what it would let in. Queues count but for
 * those of the log and of what is on its way to the disk. */
static inline json_t *byz_state(struct byz *w)
{
    static const char *const routes[] = {"/v1/status", "/v1/nodes", "/v1/members", "/v1/ring",
                                         "/v1/links",  "/v1/jobs",  "/v1/jobs/1",  "/v1/model-paths"};
    static const char *const files[] = {"cluster", "tokens", "identity"};
    struct link_key keys[LINK_KEYS_MAX];
    struct member self = {.nstages = 0};
    json_t *all = json_object();
    byz_turn(w);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        json_object_set_new(all, routes[i], byz_ask(w, routes[i]));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        json_object_set_new(all, files[i], byz_file(w, files[i]));
    memset(keys, 0, sizeof keys);
    enrol_link_keys(w->node->enrol, keys, LINK_KEYS_MAX);
    json_object_set_new(all, "tokens heard", byz_bytes((const uint8_t *)keys, sizeof keys));
    workers_describe(w->node->workers, &self);
    for (size_t i = 0; i < self.nstages; i++)
        json_object_set_new(all, i ? "more work" : "work",
                            json_pack("{s:I s:i s:s s:I s:b}", "job", (json_int_t)self.stages[i].job, "rank",
                                      self.stages[i].rank, "doing", self.stages[i].doing, "told",
                                      (json_int_t)the_stage.told, "ending", the_stage.is_ending));
    for (const struct job *job = coord_first(w->node->coord); job; job = job->next)
        json_object_set_new(all, job->id == 1 ? "job 1" : "job", job_encode(job));
    byz_still(json_object_get(all, "job 1"));
    for (const struct ledger_queue *q = ledger_first(w->node->ledger); q; q = q->next)
        if (strcmp(q->name, "events") != 0 && strcmp(q->name, "store_writes") != 0)
            json_object_set_new(all, q->name, json_integer((json_int_t)q->bytes));
    return all;
}

/* Fails with what differs; takes over both. */
static inline void byz_expect_same(json_t *before, json_t *after, const char *after_what)
{
    const char *key;
    json_t *value;
    json_object_foreach (before, key, value)
        if (!json_equal(value, json_object_get(after, key))) {
            char *was = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS),
                 *is =
                     json_dumps(json_object_get(after, key), JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
            size_t at = 0; /* there is not room for all of it in a message of cmocka */
            while (is && was[at] && was[at] == is[at])
                at++;
            at = at > 200 ? at - 200 : 0;
            fail_msg("after %s, %s was …%.400s\nand is …%.400s", after_what, key, was + at,
                     is ? is + at : "gone");
        }
    assert_int_equal(json_object_size(before), json_object_size(after));
    json_decref(before);
    json_decref(after);
}

/* --- a test's --------------------------------------------------------------------------------- */

static inline struct byz *byz_open(enum byz_role role, enum job_state state)
{
    struct byz *w = calloc(1, sizeof *w);
    struct err err = {""};
    assert_true(sodium_init() >= 0);
    signal(SIGPIPE, SIG_IGN);
    log_set_level("error");
    strcpy(w->dir, "/tmp/ringd-byzantine-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    byz_open_node(w);
    if (cluster_init(w->node->cluster, "home", "self", 1000, &err))
        fail_msg("%s", err.text);
    for (enum byz_mate m = 0; m < MATES; m++)
        byz_enrol(w, m);
    byz_settle(w);
    node_membership_changed(w->node);
    for (enum byz_mate m = 0; m < MATES; m++)
        byz_mate_members(w, m);
    byz_meet(w);
    w->role = role;
    if (role == WORKS)
        byz_work(w);
    else if (role == HEADS)
        byz_head(w, state);
    byz_admit(w, OTHER); /* a job would wait for it, if it was a member before */
    byz_settle(w);
    node_membership_changed(w->node);
    byz_connect(w, OTHER);
    byz_turn(w);
    w->cases = 0;
    return w;
}

static inline void byz_close(struct byz *w)
{
    char command[100];
    if (!w)
        return;
    byz_close_node(w);
    for (size_t i = 0; i < MATES; i++) {
        envelopes_free(w->at[i].envelopes);
        records_free(w->at[i].records);
        members_free(w->at[i].members);
    }
    the_stage = (struct spawn){.ops = NULL};
    snprintf(command, sizeof command, "rm -r %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w->text);
    free(w);
}

#endif
