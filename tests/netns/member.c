/* SPDX-License-Identifier: MIT
 *
 * A member whose daemon somebody else has written: for tests/netns/floods.sh. It calls a node with
 * the identity and the certificate of a state directory, and says over its own control connection,
 * as fast as the node takes it, whatever members may say, or more. Where the node hangs up, it
 * calls again.
 *
 *   member STATE ADDRESS%INTERFACE SECONDS KIND
 *
 *   KIND: messages (of every kind, with all their fields), large (of 1 MiB), records, frames (that
 *   nobody knows), deaf (asks, and does not read the answers)
 *
 * Prints how many frames it has sent. One thread. */
#include <event2/event.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/keys/key_file.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/message_table.h"
#include "net/link.h"
#include "tests/lib/own_keys.h"

enum { PORT = 17464, FRAME_MESSAGE = 33, FRAME_RECORD = 34, BATCH = 64, AGAIN_MS = 300, LARGE = 1000000 };

struct liar {
    struct event_base *base;
    struct keeper keeper;
    struct keys *keys;
    struct cluster *cluster;
    const char *address, *kind;
    struct link *link; /* owned */
    bool is_up;
    uint64_t sent;
    size_t large; /* bytes of it in `frame`; 0: not made yet */
    uint8_t frame[LINK_FRAME_MAX];
};

/* --- what it says ----------------------------------------------------------------------------- */

static json_t *value_of(const struct field *f)
{
    switch (f->type) {
    case FIELD_WHOLE: return json_integer((json_int_t)f->min + 1);
    case FIELD_FLAG: return json_true();
    case FIELD_LIST: return json_array();
    case FIELD_OBJECT: return json_object();
    default: return json_string("00000000000000000000000000000000");
    }
}

static size_t put(struct liar *l, json_t *body)
{
    const size_t n = json_dumpb(body, (char *)l->frame, sizeof l->frame, JSON_COMPACT);
    json_decref(body);
    return n;
}

static size_t message(struct liar *l, enum message_kind kind)
{
    json_t *body = json_pack("{s:s}", "kind", message_row(kind)->name);
    for (const struct field *f = message_row(kind)->fields; f->name; f++)
        json_object_set_new(body, f->name, value_of(f));
    return put(l, body);
}

/* Once made it is said again and again. */
static size_t large(struct liar *l)
{
    json_t *list = json_array();
    for (size_t i = 0; !l->large && i < LARGE / 8; i++)
        json_array_append_new(list, json_pack("{s:i}", "a", 1));
    if (!l->large)
        l->large = put(l, json_pack("{s:s s:i s:i s:i s:O}", "kind", "jobs-told", "boot", 1, "version", 2,
                                    "since", 0, "jobs", list));
    json_decref(list);
    return l->large;
}

static size_t next(struct liar *l, uint8_t *ret_type)
{
    *ret_type = FRAME_MESSAGE;
    if (!strcmp(l->kind, "messages"))
        return message(l, (enum message_kind)(l->sent % MESSAGE_KINDS));
    if (!strcmp(l->kind, "deaf"))
        return message(l, l->sent % 2 ? MESSAGE_JOBS_ASK : MESSAGE_DOCTOR_ASK);
    if (!strcmp(l->kind, "large"))
        return large(l);
    randombytes_buf(l->frame, 300);
    *ret_type = !strcmp(l->kind, "records") ? FRAME_RECORD : (uint8_t)(38 + l->sent % 200);
    return 300;
}

static void say(struct liar *l)
{
    uint8_t type;
    for (int i = 0; i < BATCH && l->is_up; i++) {
        const size_t n = next(l, &type);
        if (!n || n > sizeof l->frame || link_send(l->link, type, l->frame, n))
            return;
        l->sent++;
    }
}

/* --- its connection --------------------------------------------------------------------------- */

static int on_hello(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t size)
{
    (void)owner, (void)link, (void)peer, (void)why, (void)size;
    return 0;
}

static void on_up(void *owner, struct link *link)
{
    struct liar *l = owner;
    (void)link;
    l->is_up = true;
}

static void on_frame(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    (void)owner, (void)link, (void)type, (void)body, (void)n;
}

static void on_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct liar *l = owner;
    (void)end;
    fprintf(stderr, "member: %s\n", text);
    link_free(link);
    l->link = NULL;
    l->is_up = false;
}

static void call(struct liar *l)
{
    static const struct link_ops ops = {.hello = on_hello, .up = on_up, .frame = on_frame, .down = on_down};
    uint8_t psk[AUTH_PSK];
    struct link_setup s = {.base = l->base,
                           .id = keys_identity(l->keys),
                           .psk = psk,
                           .kind = LINK_CONTROL,
                           .hello = {.proto_min = 1, .proto_max = 1, .boot = 1, .listen_port = PORT},
                           .ops = &ops,
                           .owner = l};
    cluster_psk(l->cluster, 0, psk);
    snprintf(s.hello.name, sizeof s.hello.name, "%s", cluster_cert(l->cluster)->name);
    strcpy(s.hello.version, "0");
    memcpy(s.hello.cert, cluster_cert_bytes(l->cluster), CERT_BYTES);
    if (link_dial(&l->link, &s, l->address, PORT))
        l->link = NULL;
}

int main(int argc, char **argv)
{
    static struct liar liar;
    struct liar *l = &liar;
    struct err err = {""};
    if (argc != 5 || sodium_init() < 0) {
        fprintf(stderr, "usage: member STATE ADDRESS%%INTERFACE SECONDS KIND\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    l->base = event_base_new();
    l->address = argv[2];
    l->kind = argv[4];
    uint8_t seed[AUTH_SEED];
    if (key_file_load(seed, argv[1], &err) || !(l->keys = own_keys(&l->keeper, seed)) ||
        cluster_open(&l->cluster, argv[1], l->keys, &err) || cluster_state(l->cluster) != CLUSTER_MEMBER) {
        fprintf(stderr, "member: %s: %s\n", argv[1], err.text);
        return 1;
    }
    const struct instant begin = clock_now();
    const uint64_t us = (uint64_t)atoi(argv[3]) * 1000000;
    struct instant called = {0};
    while (clock_since_us(clock_now(), begin) < us) {
        if (!l->link && clock_since_us(clock_now(), called) > AGAIN_MS * 1000) {
            called = clock_now();
            call(l);
        }
        say(l);
        event_base_loopexit(l->base, &(struct timeval){.tv_usec = 20000});
        event_base_loop(l->base, EVLOOP_ONCE);
        while (l->is_up && !strcmp(l->kind, "deaf") && l->sent % 1000 > 900 &&
               clock_since_us(clock_now(), begin) < us)
            usleep(100000); /* reads nothing more of this connection */
    }
    link_free(l->link);
    cluster_close(l->cluster);
    keys_close(l->keys);
    event_base_free(l->base);
    printf("%llu\n", (unsigned long long)l->sent);
    return 0;
}
