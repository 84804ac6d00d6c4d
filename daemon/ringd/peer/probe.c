/* SPDX-License-Identifier: MIT
 *
 * Measuring cables, step by step. Called by measure.c, on the loop. PROTOCOL.md §5.3 has the
 * bytes. */
#include "daemon/ringd/peer/probe.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

enum kind { ASK = 1, YES, NO, BURST, REPORT, TURN, DONE };
enum phase { REST, ASKED, SENDING, HEARING, TAKING };
/* ASKED: for leave · SENDING: a burst, until its report · HEARING: the other's bursts, until DONE ·
 * TAKING: the same, until TURN */

struct probe_way {
    uint64_t cable, path; /* path 0 = no connection */
    uint8_t peer[16];
    struct instant due;
    uint64_t retry_us;
    bool known;
    struct probe_result result;
};
struct probe {
    const struct probe_ops *ops;
    void *owner;
    uint8_t self[16];
    uint64_t random;
    size_t n;
    struct probe_way at[PROBE_WAYS];
    struct instant last_up,
        even; /* when the measurements so far will have been made up for, at one a PROBE_PACE_US */
    /* the one measurement under way */
    enum phase phase;
    struct probe_way *way;
    unsigned frames; /* of our burst */
    unsigned bursts; /* that said enough */
    uint32_t rates[PROBE_TIMES];
    bool asker;
    struct instant deadline, first;
    uint8_t *burst; /* owned: one frame of it */
};

struct probe *probe_new(const uint8_t self[16], uint64_t seed, const struct probe_ops *ops, void *owner)
{
    struct probe *p = xcalloc(1, sizeof *p);
    p->ops = ops;
    p->owner = owner;
    p->random = seed | 1;
    p->burst = xcalloc(1, PROBE_FRAME);
    memcpy(p->self, self, sizeof p->self);
    return p;
}

void probe_free(struct probe *p)
{
    if (!p)
        return;
    free(p->burst);
    free(p);
}

/* --- ways --- */

static struct probe_way *by_cable(const struct probe *p, uint64_t cable)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].cable == cable)
            return (struct probe_way *)&p->at[i];
    return NULL;
}

static struct probe_way *by_path(struct probe *p, uint64_t path)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].path == path && path)
            return &p->at[i];
    return NULL;
}

static struct probe_way *new_way(struct probe *p)
{
    if (p->n < PROBE_WAYS)
        return &p->at[p->n++];
    for (size_t i = 0; i < p->n; i++)
        if (!p->at[i].path)
            return &p->at[i];
    return NULL;
}

static bool asks(const struct probe *p, const struct probe_way *w)
{
    return memcmp(p->self, w->peer, sizeof p->self) < 0;
}

static size_t count_up(const struct probe *p)
{
    size_t up = 0;
    for (size_t i = 0; i < p->n; i++)
        up += p->at[i].path != 0;
    return up;
}

static struct instant later(struct instant a, struct instant b)
{
    return a.us > b.us ? a : b;
}

/* When we may take part in another. Few ways are measured as they come. */
static struct instant allowed_at(const struct probe *p)
{
    const uint64_t at_once = (PROBE_USUAL - 1) * (uint64_t)PROBE_PACE_US;
    if (count_up(p) <= PROBE_USUAL)
        return (struct instant){0};
    return later((struct instant){p->last_up.us + PROBE_FIRST_US},
                 (struct instant){clock_since_us(p->even, (struct instant){at_once})});
}

static void take_part(struct probe *p, struct instant now)
{
    p->even.us = later(p->even, now).us + PROBE_PACE_US;
}

/* Who was turned down at the same moment does not ask again at the same moment. */
static uint64_t scatter(struct probe *p, uint64_t us)
{
    p->random = p->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return us + (p->random >> 33) % (us + 1);
}

static void put_off(struct probe *p, struct probe_way *w, struct instant now)
{
    w->due.us = now.us + scatter(p, w->retry_us);
    w->retry_us = w->retry_us * 2 < PROBE_RETRY_MAX_US ? w->retry_us * 2 : PROBE_RETRY_MAX_US;
}

static void rest(struct probe *p)
{
    p->phase = REST;
    p->way = NULL;
    p->bursts = 0;
}

static void give_up(struct probe *p, struct instant now)
{
    struct probe_way *w = p->way;
    rest(p);
    if (w)
        put_off(p, w, now);
}

void probe_up(struct probe *p, uint64_t cable, uint64_t path, const uint8_t peer[16], struct instant now)
{
    struct probe_way *w = by_cable(p, cable);
    if (w && w->path == path)
        return;
    if (!w && !(w = new_way(p)))
        return;
    if (w == p->way)
        rest(p);
    if (w->cable != cable)
        *w = (struct probe_way){.cable = cable};
    memcpy(w->peer, peer, sizeof w->peer);
    w->path = path;
    w->retry_us = PROBE_RETRY_US;
    w->due.us = now.us + scatter(p, PROBE_FIRST_US);
    p->last_up = now;
}

void probe_down(struct probe *p, uint64_t path, struct instant now)
{
    struct probe_way *w = by_path(p, path);
    if (!w)
        return;
    if (w == p->way)
        give_up(p, now);
    w->path = 0;
}

void probe_again(struct probe *p, uint64_t cable, struct instant now)
{
    struct probe_way *w = by_cable(p, cable);
    if (!w)
        return;
    w->retry_us = PROBE_RETRY_US;
    w->due.us = now.us + scatter(p, PROBE_RETRY_US);
}

bool probe_is_up(const struct probe *p, uint64_t cable)
{
    const struct probe_way *w = by_cable(p, cable);
    return w && w->path;
}

bool probe_result(const struct probe *p, uint64_t cable, struct probe_result *ret)
{
    const struct probe_way *w = by_cable(p, cable);
    if (!w || !w->known)
        return false;
    *ret = w->result;
    return true;
}

/* --- what is said --- */

static void put32(uint8_t *to, uint32_t v)
{
    for (size_t i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get32(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

enum { SMALL = 9 }; /* kind and two numbers */

static void say(struct probe *p, uint64_t path, enum kind kind, uint32_t a, uint32_t b)
{
    uint8_t body[SMALL] = {(uint8_t)kind};
    put32(body + 1, a);
    put32(body + 5, b);
    p->ops->send(p->owner, path, body, sizeof body);
}

static void enter(struct probe *p, struct probe_way *w, enum phase phase, struct instant now)
{
    p->way = w;
    p->phase = phase;
    p->deadline.us = now.us + PROBE_ANSWER_US;
}

static void send_burst(struct probe *p, struct probe_way *w, unsigned frames, struct instant now)
{
    uint8_t *body = p->burst;
    p->frames = frames;
    enter(p, w, SENDING, now);
    body[0] = BURST;
    for (unsigned i = 0; i < frames && p->phase == SENDING; i++) {
        put32(body + 1, i);
        put32(body + 5, frames);
        if (p->ops->send(p->owner, w->path, body, PROBE_FRAME)) {
            give_up(p, now);
            return;
        }
    }
}

/* --- what is heard --- */

static uint32_t rate(uint32_t bytes, uint32_t us)
{
    uint64_t mbps = us ? (uint64_t)bytes * 8 / us : UINT32_MAX;
    return mbps < 1         ? 1
           : mbps < 1000000 ? (uint32_t)mbps
                            : 1000000; /* nobody's cable, and nobody's lie, is faster */
}

static uint64_t again_us(const struct probe *p)
{
    size_t up = count_up(p);
    return up > PROBE_USUAL ? (uint64_t)PROBE_AGAIN_US * up / PROBE_USUAL : PROBE_AGAIN_US;
}

static void finish(struct probe *p, struct instant now)
{
    struct probe_way *w = p->way;
    rest(p);
    w->known = true;
    w->result.at = now;
    w->retry_us = PROBE_RETRY_US;
    w->due.us = now.us + again_us(p);
    p->ops->measured(p->owner, w->cable);
}

_Static_assert(PROBE_TIMES == 3, "there is a middle one of three");

static uint32_t middle(const uint32_t r[PROBE_TIMES])
{
    uint32_t low = r[0] < r[1] ? r[0] : r[1], high = r[0] < r[1] ? r[1] : r[0];
    return r[2] < low ? low : r[2] > high ? high : r[2];
}

static void hear_report(struct probe *p, struct probe_way *w, uint32_t bytes, uint32_t us, struct instant now)
{
    bool enough = us >= PROBE_ENOUGH_US || p->frames >= PROBE_FRAMES || p->bursts;
    if (!enough) {
        send_burst(p, w, p->frames * 4 < PROBE_FRAMES ? p->frames * 4 : PROBE_FRAMES, now);
        return;
    }
    p->rates[p->bursts++] = rate(bytes, us);
    if (us >= PROBE_LONG_US) {
        p->rates[0] = p->rates[1] = p->rates[2] = rate(bytes, us);
    } else if (p->bursts < PROBE_TIMES) {
        send_burst(p, w, p->frames, now);
        return;
    }
    w->result.tx_mbps = middle(p->rates);
    say(p, w->path, p->asker ? TURN : DONE, w->result.tx_mbps, 0);
    if (p->asker)
        enter(p, w, HEARING, now);
    else
        finish(p, now);
}

static void hear_burst(struct probe *p, struct probe_way *w, uint32_t i, uint32_t frames, struct instant now)
{
    if (i == 0)
        p->first = now;
    enter(p, w, p->phase, now);
    if (frames < 2 || i + 1 != frames || frames > PROBE_FRAMES)
        return;
    uint64_t us = clock_since_us(now, p->first);
    say(p, w->path, REPORT, (frames - 1) * PROBE_FRAME, us < UINT32_MAX ? (uint32_t)us : UINT32_MAX);
}

static void hear_ask(struct probe *p, struct probe_way *w, struct instant now)
{
    if (p->phase != REST || asks(p, w) || now.us < allowed_at(p).us || !p->ops->idle(p->owner, w->peer)) {
        say(p, w->path, NO, 0, 0);
        return;
    }
    p->asker = false;
    take_part(p, now);
    enter(p, w, TAKING, now);
    say(p, w->path, YES, 0, 0);
}

/* What does not fit what we are doing is late, and dropped. */
void probe_frame(struct probe *p, uint64_t path, const uint8_t *body, size_t n, struct instant now)
{
    struct probe_way *w = by_path(p, path);
    if (!w || n < SMALL)
        return;
    uint32_t a = get32(body + 1), b = get32(body + 5);
    if (body[0] == ASK) {
        hear_ask(p, w, now);
        return;
    }
    if (w != p->way)
        return;
    if (!p->ops->idle(p->owner, w->peer)) {
        if (body[0] != NO)
            say(p, path, NO, 0, 0);
        give_up(p, now);
        return;
    }
    bool takes = p->phase == TAKING || p->phase == HEARING;
    switch (body[0]) {
    case NO: give_up(p, now); break;
    case YES:
        if (p->phase == ASKED) {
            take_part(p, now);
            send_burst(p, w, PROBE_FIRST, now);
        }
        break;
    case BURST:
        if (takes)
            hear_burst(p, w, a, b, now);
        break;
    case REPORT:
        if (p->phase == SENDING)
            hear_report(p, w, a, b, now);
        break;
    case TURN:
        if (p->phase == TAKING) {
            w->result.rx_mbps = a;
            send_burst(p, w, PROBE_FIRST, now);
        }
        break;
    case DONE:
        if (p->phase == HEARING) {
            w->result.rx_mbps = a;
            finish(p, now);
        }
        break;
    }
}

/* --- time --- */

static struct probe_way *next_way(const struct probe *p)
{
    struct probe_way *next = NULL;
    for (size_t i = 0; i < p->n; i++) {
        const struct probe_way *w = &p->at[i];
        if (w->path && asks(p, w) && (!next || w->due.us < next->due.us))
            next = (struct probe_way *)w;
    }
    return next;
}

struct instant probe_due(const struct probe *p)
{
    const struct probe_way *w = next_way(p);
    if (p->phase != REST)
        return p->deadline;
    return w ? later(w->due, allowed_at(p)) : (struct instant){UINT64_MAX};
}

void probe_tick(struct probe *p, struct instant now)
{
    struct probe_way *w;
    if (p->phase != REST && now.us >= p->deadline.us) {
        say(p, p->way->path, NO, 0, 0);
        give_up(p, now);
    }
    while (p->phase == REST && (w = next_way(p)) && now.us >= probe_due(p).us) {
        if (!p->ops->idle(p->owner, w->peer)) {
            put_off(p, w, now);
            continue;
        }
        p->asker = true;
        enter(p, w, ASKED, now);
        say(p, w->path, ASK, 0, 0);
    }
}
