/* SPDX-License-Identifier: MIT
 *
 * A keyed link: records in and out, frames from fragments, heartbeats. Called by link.c and
 * link_shake.c on the loop. */
#include "link_impl.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int send_fragment(struct link *link, const struct wire_frame *f, const uint8_t *body, size_t n)
{
    struct evbuffer *out = bufferevent_get_output(link->bev);
    size_t plain = WIRE_FRAME_HEAD + n, total = SEAL_HEAD + plain + SEAL_TAG;
    struct evbuffer_iovec room;
    uint8_t *at;
    int r;

    if (evbuffer_reserve_space(out, (ev_ssize_t)total, &room, 1) != 1)
        return -ENOMEM;
    at = room.iov_base;
    wire_frame_encode(f, at + SEAL_HEAD);
    if (n > 0)
        memcpy(at + SEAL_HEAD + WIRE_FRAME_HEAD, body, n);
    if ((r = seal_seal(&link->tx, at, at + SEAL_HEAD, plain)) < 0)
        return r;
    room.iov_len = total;
    if (evbuffer_commit_space(out, &room, 1) < 0)
        return -ENOMEM;
    link->tx_bytes += total;
    return 0;
}

int link_session_send(struct link *link, uint8_t type, const void *body, size_t n)
{
    struct wire_frame f = {.type = type, .length = (uint32_t)n};
    const uint8_t *at = body;
    int r;

    do {
        size_t part = n > WIRE_FRAGMENT_MAX ? WIRE_FRAGMENT_MAX : n;

        f.last = part == n;
        if ((r = send_fragment(link, &f, at, part)) < 0)
            return r;
        if (part > 0)
            at += part;
        n -= part;
    } while (!f.last);
    return 0;
}

void link_session_bye(struct link *link, uint8_t code, const char *text)
{
    uint8_t body[1 + WIRE_TEXT_MAX];
    int n = wire_bye_encode(code, text, body, sizeof body);

    if (n > 0) /* a goodbye that does not get out is a connection that was lost */
        (void)link_session_send(link, WIRE_BYE, body, (size_t)n);
}

int link_send(struct link *link, uint8_t type, const void *body, size_t n)
{
    struct evbuffer *out;
    int r;

    if (type < LINK_FRAME_USER)
        return -EINVAL;
    if (n > LINK_FRAME_MAX)
        return -EMSGSIZE;
    if (link->state != LINK_UP || link->kind == LINK_DATA || !link->bev)
        return -ENOTCONN;
    out = bufferevent_get_output(link->bev);
    if (evbuffer_get_length(out) + n > LINK_QUEUE_MAX)
        return -ENOBUFS;
    r = link_session_send(link, type, body, n);
    if (r < 0) { /* half a frame may be queued: this session cannot go on */
        link_close(link, LINK_END_LOCAL, "no memory to send to the other node");
        return r;
    }
    link->tx_frames++;
    return 0;
}

/* As link_session_send, for a frame of one small record. Waiting for the socket to become writable
 * takes more calls of the kernel and a turn of the loop. An idle node sends nothing but heartbeats,
 * and its sockets have room. */
static int send_at_once(struct link *link, uint8_t type, const void *body, size_t n)
{
    const struct wire_frame f = {.type = type, .last = true, .length = (uint32_t)n};
    uint8_t record[SEAL_HEAD + WIRE_FRAME_HEAD + WIRE_BEAT_HEAD + WIRE_BEAT_MAX + SEAL_TAG];
    const size_t plain = WIRE_FRAME_HEAD + n, total = SEAL_HEAD + plain + SEAL_TAG;
    ssize_t sent;
    int r;

    if (total > sizeof record || evbuffer_get_length(bufferevent_get_output(link->bev)) > 0)
        return link_session_send(link, type, body, n);
    wire_frame_encode(&f, record + SEAL_HEAD);
    memcpy(record + SEAL_HEAD + WIRE_FRAME_HEAD, body, n);
    if ((r = seal_seal(&link->tx, record, record + SEAL_HEAD, plain)) < 0)
        return r;
    link->tx_bytes += total;
    sent = send(link->fd, record, total, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) /* libevent tries again, and tells what is wrong */
        sent = 0;
    return (size_t)sent < total && bufferevent_write(link->bev, record + sent, total - (size_t)sent) < 0
               ? -ENOMEM
               : 0;
}

static void send_beat(struct link *link)
{
    uint8_t body[WIRE_BEAT_MAX], beat[WIRE_BEAT_HEAD + WIRE_BEAT_MAX];
    struct wire_beat b = {.body = body, .echo_us = link->beat_sent_us};
    struct instant now;
    int n;

    if (link->ops->beat) {
        b.n = link->ops->beat(link->owner, link, body, sizeof body);
        if (link->freed || link->state != LINK_UP)
            return;
    }
    now = clock_now();
    b.sent_us = now.us;
    b.hold_us = b.echo_us ? clock_since_us(now, link->beat_at) : 0;
    n = wire_beat_encode(&b, beat, sizeof beat);
    if (n < 0 || send_at_once(link, WIRE_BEAT, beat, (size_t)n) < 0) {
        link_fail(link, LINK_END_LOCAL, "cannot send a heartbeat to %s: out of memory", link->who);
        return;
    }
    link_arm(link, link->beat ? clock_until_beat_us(now, link->beat_us, *link->beat) : link->beat_us);
}

void link_beat_early(struct link *link)
{
    if (link->state == LINK_UP && link->kind != LINK_DATA && link->beat &&
        link->due.us <= clock_now().us + LINK_EARLY_US)
        event_active(link->timer, EV_TIMEOUT, 0);
}

void link_session_tick(struct link *link)
{
    struct instant now = clock_now();
    uint64_t late_us = clock_since_us(now, link->due);

    /* While our own loop stood still we could not hear anybody: that time is not the peer's
     * silence. */
    if (late_us > LINK_LATE_US) {
        link->last_heard.us += late_us;
        link->keyed_at.us += late_us;
        if (link->last_heard.us > now.us)
            link->last_heard = now;
        if (link->keyed_at.us > now.us)
            link->keyed_at = now;
    }
    if (clock_since_us(now, link->last_heard) > link->dead_us) {
        link_fail(link, LINK_END_SILENT,
                  "%s has been silent for %.1f s: switched off, asleep, or its cable is out", link->who,
                  (double)clock_since_us(now, link->last_heard) / 1e6);
        return;
    }
    if (link_rekey_tick(link, now))
        send_beat(link);
}

/* Up when both have said yes and our yes has left: a data link's socket must carry nothing of ours
 * when it is handed on. */
void link_session_try_up(struct link *link)
{
    if (link->state != LINK_HELLO || !link->said_accept || !link->heard_accept ||
        evbuffer_get_length(bufferevent_get_output(link->bev)) > 0)
        return;
    link->state = LINK_UP;
    link->up_since = link->last_heard = clock_now();
    link_rekey_begin(link);
    if (link->kind == LINK_DATA) {
        bufferevent_disable(link->bev, EV_READ | EV_WRITE);
        evtimer_del(link->timer);
    } else {
        link_limit_silence(link->fd, link->dead_us);
    }
    link->ops->up(link->owner, link);
    if (!link->freed && link->state == LINK_UP && link->kind != LINK_DATA)
        send_beat(link);
}

static void take_bye(struct link *link, const uint8_t *body, size_t n)
{
    struct wire_bye bye;
    enum link_end end;

    if (wire_bye_decode(body, n, &bye) < 0) {
        link_fail(link, LINK_END_PROTOCOL, "%s sent a malformed goodbye", link->who);
        return;
    }
    end = bye.code == WIRE_BYE_REFUSED   ? LINK_END_REFUSED
          : bye.code == WIRE_BYE_VERSION ? LINK_END_VERSION
          : bye.code == WIRE_BYE_ENDED   ? LINK_END_ENDED
                                         : LINK_END_PEER_LEFT;
    link_down(link, end, bye.text);
}

static void take_beat(struct link *link, const uint8_t *body, size_t n)
{
    struct instant now = clock_now();
    struct wire_beat beat;

    if (wire_beat_decode(body, n, &beat) < 0) {
        link_fail(link, LINK_END_PROTOCOL, "%s sent a malformed heartbeat", link->who);
        return;
    }
    if (beat.echo_us != 0 && beat.echo_us <= now.us && beat.hold_us <= now.us - beat.echo_us) {
        uint64_t rtt_us = now.us - beat.echo_us - beat.hold_us;

        link->rtt_us = rtt_us == 0           ? 1
                       : rtt_us > UINT32_MAX ? UINT32_MAX
                                             : (uint32_t)rtt_us; /* 0 says "none yet" */
        if (!link->least_rtt_us || link->rtt_us < link->least_rtt_us)
            link->least_rtt_us = link->rtt_us;
        if (beat.hold_us <= beat.sent_us) /* a clock that makes no sense is the peer's affair */
            (void)clock_offset_learn(&link->clock_offset,
                                     &(struct clock_offset_times){.sent = {beat.echo_us},
                                                                  .came = beat.sent_us - beat.hold_us,
                                                                  .left = beat.sent_us,
                                                                  .back = now});
    }
    link->beat_at = now;
    link->beat_sent_us = beat.sent_us;
    if (link->ops->beaten)
        link->ops->beaten(link->owner, link, beat.body, beat.n);
}

static void take_frame(struct link *link, uint8_t type, const uint8_t *body, size_t n)
{
    switch (type) {
    case WIRE_ACCEPT:
        if (link->heard_accept) {
            link_fail(link, LINK_END_PROTOCOL, "%s accepted twice", link->who);
            return;
        }
        link->heard_accept = true;
        link_session_try_up(link);
        return;
    case WIRE_BEAT: take_beat(link, body, n); return;
    case WIRE_REKEY: link_rekey_take(link, body, n); return;
    case WIRE_BYE: take_bye(link, body, n); return;
    }
    link->rx_frames++;
    link->ops->frame(link->owner, link, type, body, n);
}

/* Adds a fragment; the frame is complete in link->parts after its last one. */
static int add_part(struct link *link, const struct wire_frame *f, const uint8_t *body, size_t n)
{
    uint8_t *grown;

    grown = realloc(link->parts, link->parts_len + n);
    if (!grown) {
        link_fail(link, LINK_END_LOCAL, "no memory for a frame of %u bytes from %s", f->length, link->who);
        return -ENOMEM;
    }
    memcpy(grown + link->parts_len, body, n);
    link->parts = grown;
    link->parts_len += n;
    link->frame = *f;
    link->in_frame = true;
    return 0;
}

/* Fragments of one frame follow each other, agree, are not empty, and fill it exactly. Short
 * messages are not fragmented. */
static bool fits(const struct link *link, const struct wire_frame *f, size_t n)
{
    size_t have = link->parts_len + n;

    if (link->in_frame && (f->type != link->frame.type || f->length != link->frame.length))
        return false;
    if (f->last)
        return have == f->length && (n > 0 || !link->in_frame);
    return f->type >= LINK_FRAME_USER && n > 0 && have < f->length;
}

static void take_record(struct link *link, const uint8_t *plain, size_t n)
{
    const struct wire_message *message;
    uint8_t *parts;
    struct wire_frame f;
    const uint8_t *body = plain + WIRE_FRAME_HEAD;

    if (n < WIRE_FRAME_HEAD || wire_frame_decode(plain, WIRE_FRAME_HEAD, &f) < 0) {
        link_fail(link, LINK_END_PROTOCOL, "%s sent a record without a proper frame head", link->who);
        return;
    }
    n -= WIRE_FRAME_HEAD;
    message = wire_message_find(f.type);
    if (!message || !(message->states & 1u << link->state)) {
        link_fail(link, LINK_END_PROTOCOL, "%s sent %s (type %u) in state %s", link->who,
                  message ? message->name : "an unknown message", f.type, link_state_name(link->state));
        return;
    }
    if (f.length < message->min || f.length > message->max || !fits(link, &f, n)) {
        link_fail(link, LINK_END_PROTOCOL,
                  "%s sent a %s of %u bytes (%zu to %zu are allowed), which is malformed", link->who,
                  message->name, f.length, message->min, message->max);
        return;
    }
    if (f.last && !link->in_frame) {
        take_frame(link, f.type, body, n);
        return;
    }
    if (add_part(link, &f, body, n) < 0 || !f.last)
        return;
    parts = link->parts; /* ours during the callback, which may free the link */
    link->parts = NULL;
    link->parts_len = 0;
    link->in_frame = false;
    take_frame(link, f.type, parts, f.length);
    sodium_memzero(parts, f.length);
    free(parts);
}

bool link_session_pulls(const struct link *link)
{
    return link->keyed && link->in_body && link->need >= LINK_PULL_MIN;
}

bool link_session_pull(struct link *link)
{
    struct evbuffer *in = bufferevent_get_input(link->bev);

    while (link->got < link->need) {
        ssize_t n = evbuffer_remove(in, link->record + link->got, link->need - link->got);

        if (n <= 0) /* an end or an error is seen by libevent as well, which tells it */
            n = recv(link->fd, link->record + link->got, link->need - link->got, MSG_DONTWAIT);
        if (n <= 0)
            return false;
        link->got += (size_t)n;
    }
    return true;
}

void link_session_step(struct link *link)
{
    struct evbuffer *in = bufferevent_get_input(link->bev);
    uint8_t *record = link->record;
    size_t n;

    if (!link->in_body) {
        evbuffer_remove(in, link->head, SEAL_HEAD);
        if (seal_length(link->head, &n) < 0) {
            link_fail(link, LINK_END_PROTOCOL, "%s announced a record longer than %d bytes", link->who,
                      SEAL_MAX);
            return;
        }
        link->in_body = true;
        link_want(link, n + SEAL_TAG);
        return;
    }
    n = link->need - SEAL_TAG;
    evbuffer_remove(in, record + link->got, link->need - link->got);
    link->got = 0;
    link->in_body = false;
    link_want(link, SEAL_HEAD);
    if (seal_open(&link->rx, link->head, record, n, record + n) < 0) {
        link_fail(link, LINK_END_BAD_MAC,
                  "a record of %s was changed on its way: a bad cable or adapter, or an attack", link->who);
        return;
    }
    link->rx_bytes += SEAL_HEAD + n + SEAL_TAG;
    link->last_heard = clock_now();
    take_record(link, record, n);
    sodium_memzero(record, n); /* it may have been keys; link_enter keeps the memory */
}
