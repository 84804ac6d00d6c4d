/* SPDX-License-Identifier: MIT
 *
 * Messages about joining from a member with a bug, to an authority. Input: (u8 kind ‖ its
 * fields)*. */
#include "tests/fuzz/lib/message.h"

#include <event2/event.h>

#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/cluster/identity.h"
#include "tests/lib/own_keys.h"

enum { MESSAGES = 16 };

struct node {
    struct event_base *base;
    struct keeper keeper;
    struct keys *keys;
    struct auth_identity id;
    struct cluster *cluster;
    uint8_t node_id[CERT_ID];
};

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    (void)owner, (void)to;
    expect(message != NULL);
    json_decref(message);
    return -EHOSTUNREACH;
}

static void broadcast(void *owner, json_t *message)
{
    (void)owner;
    json_decref(message);
}

static void changed(void *owner)
{
    (void)owner;
}

static uint64_t now_s(void *owner)
{
    (void)owner;
    return 1000;
}

static void start(struct node *node)
{
    static const char *const files[] = {"cluster", "tokens"};
    struct err err;
    node->base = event_base_new();
    node->keys = own_keys(&node->keeper, (const uint8_t[AUTH_SEED]){1});
    expect(node->base && node->keys);
    node->id = *keys_identity(node->keys);
    expect(cluster_open(&node->cluster, fuzz_dir(), node->keys, &err) == 0);
    expect(cluster_init(node->cluster, "home", "self", now_s(NULL), &err) == 0);
    auth_node_id(node->node_id, node->id.pub);
    fuzz_dir_drop(files, sizeof files / sizeof *files); /* nothing below is worth keeping */
}

static void tell(struct enrol *e, const uint8_t from[16], enum message_kind kind, struct input *in,
                 const struct input_words *words)
{
    json_t *body = message_of(in, kind, words);
    if (!body)
        return;
    switch (kind) {
    case MESSAGE_TOKENS: enrol_take_tokens(e, from, body); break;
    case MESSAGE_JOIN_ASK: enrol_take_join_ask(e, from, body); break;
    default: enrol_take_join_answer(e, body);
    }
    json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const keys[] = {"id", "psk", "question", "answer", "claim", "ttl", NULL};
    static const char *const texts[] = {"01020304",
                                        "0102030405060708",
                                        "000102030405060708090a0b0c0d0e0f",
                                        "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f",
                                        "n",
                                        "",
                                        NULL};
    static const struct input_words words = {keys, texts};
    static struct node node;
    struct input in = {data, n};
    if (!node.base)
        start(&node);
    const struct enrol_setup setup = {.base = node.base,
                                      .id = &node.id,
                                      .cluster = node.cluster,
                                      .version = "1",
                                      .send = send_message,
                                      .broadcast = broadcast,
                                      .changed = changed,
                                      .now_s = now_s};
    struct enrol *e = enrol_new(&setup);
    for (int i = 0; i < MESSAGES && in.left; i++) {
        tell(e, node.node_id, (enum message_kind)(MESSAGE_TOKENS + input_u8(&in) % 3), &in, &words);
    }
    enrol_free(e);
    return 0;
}
