/* SPDX-License-Identifier: MIT
 *
 * Messages about joining, as JSON from a member with a bug, to an authority. First byte: kind. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <event2/event.h>

#include "daemon/enrol.h"
#include "daemon/identity.h"

struct node {
    struct event_base *base;
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
    expect(node->base && auth_identity_generate(&node->id) == 0);
    expect(cluster_open(&node->cluster, fuzz_dir(), &node->id, &err) == 0);
    expect(cluster_init(node->cluster, "home", "self", now_s(NULL), &err) == 0);
    auth_node_id(node->node_id, node->id.pub);
    fuzz_dir_drop(files, sizeof files / sizeof *files); /* nothing below is worth keeping */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const kinds[] = {"tokens", "join-ask", "join-answer", "token-failed"};
    static struct node node;
    if (n < 1)
        return 0;
    if (!node.base)
        start(&node);
    json_t *body = json_loadb((const char *)data + 1, n - 1, 0, NULL);
    if (!body)
        return 0;
    const struct enrol_setup setup = {.base = node.base,
                                      .id = &node.id,
                                      .cluster = node.cluster,
                                      .version = "1",
                                      .send = send_message,
                                      .broadcast = broadcast,
                                      .changed = changed,
                                      .now_s = now_s};
    struct enrol *e = enrol_new(&setup);
    enrol_message(e, node.node_id, kinds[data[0] % 4], body);
    enrol_free(e);
    json_decref(body);
    return 0;
}
