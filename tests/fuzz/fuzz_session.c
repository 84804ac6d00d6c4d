/* SPDX-License-Identifier: MIT
 *
 * What a member with a bug may say on a control link: frames in whole and in fragments, in every
 * state that has a key. The session's step is called on plaintext, without a network. Input: u8
 * state and kind ‖ (u16 length ‖ plaintext of a record)*. */
#include "net/base/secret.h"
#include "tests/fuzz/lib/fuzz.h"

#include "net/link_session.c" /* its step behind the cipher is not for others */

struct seen {
    size_t frames, downs;
};

static void on_frame(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    struct seen *seen = owner;
    (void)link;
    expect(type >= LINK_FRAME_USER && n <= LINK_FRAME_MAX && (body || !n));
    seen->frames++;
}

static void on_beaten(void *owner, struct link *link, const uint8_t *body, size_t n)
{
    (void)owner, (void)link;
    expect(n <= WIRE_BEAT_MAX && (body || !n));
}

static void on_up(void *owner, struct link *link)
{
    (void)owner;
    expect(link->state == LINK_UP);
}

static void on_down(void *owner, struct link *link, enum link_end end, const char *text)
{
    struct seen *seen = owner;
    expect(link->state == LINK_DOWN && end != LINK_END_NONE && text && seen->downs++ == 0);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

static const struct link_ops ops = {.frame = on_frame, .beaten = on_beaten, .up = on_up, .down = on_down};

static struct link *make(struct event_base *base, uint8_t *record, struct seen *seen, uint8_t mode)
{
    static const uint8_t key[32] = {1};
    struct link *link = secret_new(sizeof *link);
    expect(link != NULL);
    link->base = base;
    link->ops = &ops;
    link->owner = seen;
    link->fd = -1;
    link->bev = bufferevent_socket_new(base, -1, 0);
    link->timer = evtimer_new(base, on_timer, link);
    link->record = record;
    expect(link->bev && link->timer && link->record);
    link->kind = LINK_CONTROL;
    link->state = mode & 1 ? LINK_UP : LINK_HELLO;
    link->keyed = true;
    link->beat_us = LINK_BEAT_US;
    link->said_accept = mode & 2;
    link->last_heard = clock_now();
    snprintf(link->who, sizeof link->who, "the other");
    seal_init(&link->tx, key, SEAL_CHACHA20_POLY1305);
    return link;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct event_base *base;
    static uint8_t record[SEAL_MAX + SEAL_TAG]; /* not taken for each run */
    struct seen seen = {0};
    base = base ? base : event_base_new();
    if (n < 1)
        return 0;
    struct link *link = make(base, record, &seen, data[0]);
    link_enter(link); /* as every entry from the loop has it */
    for (data++, n--; n >= 2 && link->state != LINK_DOWN && !link->reported;) {
        size_t length = data[0] + 256u * data[1];
        data += 2, n -= 2;
        length = length < n ? length : n;
        memcpy(link->record, data, length);
        take_record(link, link->record, length);
        data += length, n -= length;
    }
    expect(link->parts_len <= LINK_FRAME_MAX);
    link->record = NULL;
    link_free(link);
    link_exit(link); /* frees what a callback let go of */
    event_base_loop(base, EVLOOP_NONBLOCK);
    return 0;
}
