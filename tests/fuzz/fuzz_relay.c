/* SPDX-License-Identifier: MIT
 *
 * A node that passes on connections, told anything about them: messages from the hop
 * before and the one behind, and connections that begin with any token. Input: (u8 what ‖ its
 * fields or bytes)*. Nothing is sent and nothing is dialled. */
#include "tests/fuzz/lib/message.h"

#include <event2/event.h>

static int no_socket(int domain, int type, int protocol);
#define socket(...) no_socket(__VA_ARGS__)
#include "daemon/ringd/peer/relay.c" /* a connection's first bytes are read off a socket */
#undef socket

static int no_socket(int domain, int type, int protocol)
{
    (void)domain, (void)type, (void)protocol;
    errno = ENETDOWN;
    return -1;
}

enum { MESSAGES = 24 };

static uint8_t asked[TOKEN]; /* the token in what was sent last */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    (void)owner;
    (void)read_id(asked, message, "token");
    json_decref(message);
    return to[0] == 9 ? -EHOSTUNREACH : 0;
}

static int next_hop(void *owner, const uint8_t to[16], struct relay_hop *ret)
{
    (void)owner;
    *ret = (struct relay_hop){.id = {to[0] == 4 ? 4 : 3}, .path = 1, .host = "127.0.0.1", .port = 1};
    return to[0] ? 0 : -EHOSTUNREACH;
}

static bool has_path(void *owner, uint64_t path)
{
    (void)owner, (void)path;
    return true;
}

static uint64_t path_at(void *owner, const char *address)
{
    (void)owner, (void)address;
    return 1;
}

static bool works(void *owner, const uint8_t id[16], const uint8_t head[16], uint64_t job)
{
    (void)owner, (void)id, (void)head;
    return job == 1;
}

static const char *name_of(void *owner, const uint8_t *id)
{
    (void)owner;
    return id ? "other" : "self";
}

static void no_log(void *owner, const char *text)
{
    (void)owner;
    expect(text != NULL);
}

static void message(struct relay *r, uint8_t what, struct input *in)
{
    static const char *const ends[] = {"from", "to", "head"}, *const keys[] = {NULL};
    static const char *const texts[] = {
        "01000000000000000000000000000000", "02000000000000000000000000000000",
        "04000000000000000000000000000000", "05000000000000000000000000000000", NULL};
    static const struct input_words words = {keys, texts};
    const uint8_t from[16] = {what / 4 % 8};
    const enum message_kind kind = (enum message_kind)(MESSAGE_RELAY_OPEN + what % 4);
    json_t *body = message_of(in, kind, &words);
    if (!body)
        return;
    if (what & 32) {
        char token[33];
        id_hex(token, asked);
        json_object_set_new(body, "token", json_string(token));
    }
    if (what & 64) /* most of a question that can be granted */
        for (size_t i = 0; i < 3; i++)
            json_object_set_new(body, ends[i], json_string(texts[(i + 1) % 3]));
    if (what & 128)
        json_object_set_new(body, "job", json_integer(1));
    if (kind == MESSAGE_RELAY_OPEN)
        relay_take_open(r, from, body);
    else if (kind == MESSAGE_RELAY_READY)
        relay_take_ready(r, from, body);
    else
        relay_take_refused(r, from, body);
    json_decref(body);
}

static void guest(struct relay *r, bool knows, struct input *in)
{
    struct guest *g = xcalloc(1, sizeof *g);
    *g = (struct guest){.r = r, .fd = -1, .path = 1, .n = sizeof g->said};
    g->event = event_new(r->s.base, -1, 0, on_guest, g);
    LIST_INSERT_HEAD(&r->guests, g, link);
    r->nguests++;
    memcpy(g->said, magic, sizeof magic);
    memcpy(g->said + TOKEN_AT, asked, TOKEN);
    if (!knows)
        input_bytes(in, g->said, sizeof g->said);
    admit(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct relay_setup setup = {.send = send_message,
                                       .next = next_hop,
                                       .has_path = has_path,
                                       .path_at = path_at,
                                       .works = works,
                                       .name = name_of,
                                       .log = no_log};
    struct input in = {data, n};
    setup.base = setup.base ? setup.base : event_base_new();
    struct relay *r = relay_new(&setup);
    for (int i = 0; i < MESSAGES && in.left; i++) {
        const uint8_t what = input_u8(&in);
        if (what % 4 < 3)
            message(r, what, &in);
        else
            guest(r, what & 4, &in);
        if (what & 8)
            event_base_loop(setup.base, EVLOOP_NONBLOCK);
        expect(relay_count(r) <= RELAY_MAX_LEGS && r->nguests == 0);
    }
    relay_changed(r);
    relay_free(r);
    return 0;
}
