/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/peer/peering.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
static const char *const state_names[] = {
    [WAY_IDLE] = "idle", [WAY_WAITING] = "waiting", [WAY_DIALING] = "dialing", [WAY_BACKING_OFF] = "backing-off",
    [WAY_FLAPPING] = "flapping", [WAY_UP] = "up", [WAY_OUT] = "out",
};
static const char *const timer_names[] = {
    [WAY_TIMER_NONE] = "", [WAY_TIMER_CALL] = "call", [WAY_TIMER_HANDSHAKE] = "handshake", [WAY_TIMER_BACKOFF] = "back-off",
    [WAY_TIMER_HOLD] = "hold", [WAY_TIMER_DEAD] = "silence", [WAY_TIMER_FORGET] = "forget",
};
/* clang-format on */

const char *way_state_name(enum way_state state)
{
    return state_names[state];
}

const char *way_timer_name(enum way_timer timer)
{
    return timer_names[timer];
}

void way_init(struct way *w, uint64_t seed, bool has_cluster, struct instant now)
{
    *w = (struct way){.random = seed, .since = now, .has_cluster = has_cluster, .backoff_ms = WAY_BACKOFF_MS};
}

static uint32_t draw(struct way *w)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w->random >> 32);
}

static void set_timer(struct way *w, enum way_timer timer, struct instant from, uint64_t us)
{
    w->timer = timer;
    w->due.us = from.us + us;
}

static uint64_t next_backoff(struct way *w)
{
    uint64_t us = (uint64_t)w->backoff_ms * 1000;
    w->backoff_ms = w->backoff_ms * 2 < WAY_BACKOFF_MAX_MS ? w->backoff_ms * 2 : WAY_BACKOFF_MAX_MS;
    return us * 3 / 4 + us / 2 * draw(w) / UINT32_MAX;
}

static bool is_trying(enum way_state state)
{
    return state == WAY_DIALING || state == WAY_BACKING_OFF;
}

/* All transitions pass here; what comes with a state is done on entering it. */
static enum way_action enter(struct way *w, enum way_state state, struct instant now)
{
    if (state != w->state && !(is_trying(state) && is_trying(w->state)))
        w->since = now;
    w->state = state;
    w->timer = WAY_TIMER_NONE;
    switch (state) {
    case WAY_IDLE: break;
    case WAY_WAITING: set_timer(w, WAY_TIMER_CALL, now, WAY_CALL_US); break;
    case WAY_DIALING: set_timer(w, WAY_TIMER_HANDSHAKE, now, WAY_HANDSHAKE_US); return WAY_DIAL;
    case WAY_BACKING_OFF: set_timer(w, WAY_TIMER_BACKOFF, now, next_backoff(w)); break;
    case WAY_FLAPPING: set_timer(w, WAY_TIMER_HOLD, w->flaps[WAY_FLAPS - 1], WAY_HOLD_US); break;
    case WAY_UP: w->timer = WAY_TIMER_DEAD; break;
    case WAY_OUT: set_timer(w, WAY_TIMER_FORGET, now, WAY_FORGET_US); break;
    }
    return WAY_NOTHING;
}

static bool is_flapping(const struct way *w, struct instant now)
{
    return !w->is_only && w->nflaps == WAY_FLAPS &&
           clock_since_us(w->flaps[WAY_FLAPS - 1], w->flaps[0]) <= WAY_FLAPS_US &&
           clock_since_us(now, w->flaps[WAY_FLAPS - 1]) < WAY_HOLD_US;
}

/* Where a way goes that has no connection. */
static enum way_action without(struct way *w, bool failed, struct instant now)
{
    w->session = 0;
    if (!w->has_cluster)
        return enter(w, WAY_IDLE, now);
    if (w->out)
        return enter(w, WAY_OUT, now);
    if (is_flapping(w, now))
        return enter(w, WAY_FLAPPING, now);
    if (w->waits)
        return enter(w, WAY_WAITING, now);
    return enter(w, failed ? WAY_BACKING_OFF : WAY_DIALING, now);
}

static void note_end(struct way *w, const struct way_news *news, struct instant now)
{
    snprintf(w->words, sizeof w->words, "%s", news->text);
    if (w->state != WAY_UP || news->is_silent)
        return;
    if (w->nflaps == WAY_FLAPS)
        memmove(w->flaps, w->flaps + 1, (WAY_FLAPS - 1) * sizeof *w->flaps);
    else
        w->nflaps++;
    w->flaps[w->nflaps - 1] = now;
}

/* What came and went with another life of the node is no fault of the way. */
static void note_boot(struct way *w, uint64_t boot)
{
    if (boot != w->boot)
        w->nflaps = 0;
    w->boot = boot;
}

static enum way_action on_plugged(struct way *w, uint64_t boot, struct instant now)
{
    note_boot(w, boot);
    w->out = false;
    switch (w->state) {
    case WAY_OUT:
    case WAY_BACKING_OFF:
    case WAY_FLAPPING: w->backoff_ms = WAY_BACKOFF_MS; return without(w, false, now);
    case WAY_IDLE: return without(w, false, now);
    case WAY_WAITING:
    case WAY_DIALING:
    case WAY_UP: break;
    }
    return WAY_NOTHING;
}

/* A dial that the other end's connection has overtaken would take that connection's place whenever
 * it is answered. */
static enum way_action on_connected(struct way *w, const struct way_news *news, struct instant now)
{
    const bool is_overtaken = w->state == WAY_DIALING && w->session && w->session != news->session;
    note_boot(w, news->boot);
    w->session = news->session;
    w->backoff_ms = WAY_BACKOFF_MS;
    enter(w, WAY_UP, now);
    return is_overtaken ? WAY_HANG_UP : WAY_NOTHING;
}

static enum way_action on_fired(struct way *w, struct instant now)
{
    switch (w->timer) {
    case WAY_TIMER_CALL: return enter(w, WAY_DIALING, now);
    case WAY_TIMER_HOLD: w->nflaps = 0; return without(w, false, now);
    case WAY_TIMER_BACKOFF: return without(w, false, now);
    case WAY_TIMER_HANDSHAKE:
        snprintf(w->words, sizeof w->words,
                 "the connection was not made in time: the other end may hang, or a firewall may drop its "
                 "packets");
        without(w, true, now);
        return WAY_DROP;
    case WAY_TIMER_FORGET: return WAY_FORGOTTEN;
    case WAY_TIMER_NONE:
    case WAY_TIMER_DEAD: break;
    }
    return WAY_NOTHING;
}

enum way_action way_step(struct way *w, const struct way_news *news, struct instant now)
{
    switch (news->event) {
    case WAY_OPENED:
        w->has_cluster = true;
        w->backoff_ms = WAY_BACKOFF_MS;
        return w->state == WAY_IDLE || w->state == WAY_BACKING_OFF ? without(w, false, now) : WAY_NOTHING;
    case WAY_CLOSED:
        w->has_cluster = false;
        return w->state == WAY_UP || w->state == WAY_DIALING ? WAY_NOTHING : without(w, false, now);
    case WAY_PLUGGED: return on_plugged(w, news->boot, now);
    case WAY_UNPLUGGED:
    case WAY_RESTARTED:
        note_end(w, news, now);
        w->out = true;
        without(w, true, now);
        return news->event == WAY_UNPLUGGED ? WAY_DROP : WAY_NOTHING;
    case WAY_CONNECTED: return on_connected(w, news, now);
    case WAY_STRANGER: w->key_age++; /* fall through */
    case WAY_FAILED:
    case WAY_LOST: note_end(w, news, now); return without(w, true, now);
    case WAY_NEEDED: return w->state == WAY_FLAPPING ? without(w, false, now) : WAY_NOTHING;
    case WAY_FIRED: return on_fired(w, now);
    }
    return WAY_NOTHING;
}

const char *way_why(const struct way *w)
{
    switch (w->state) {
    case WAY_IDLE: return "this node is in no cluster yet: `ringctl join TOKEN`, or `ringctl init`";
    case WAY_WAITING: return *w->words ? w->words : "the other end makes the connection";
    case WAY_DIALING: return *w->words ? w->words : "it is being called";
    case WAY_FLAPPING:
        return "the connection broke three times within a minute, so ringd waits for half a minute: check "
               "the plugs of this cable";
    case WAY_BACKING_OFF:
    case WAY_OUT: return w->words;
    case WAY_UP: break;
    }
    return "";
}

bool session_same_way(uint64_t cable, const char *host, uint64_t other_cable, const char *other_host)
{
    if (cable || other_cable)
        return cable == other_cable;
    return (!strchr(host, '%') && !strchr(other_host, '%')) || !strcmp(host, other_host);
}

/* Another boot: the old connection is with a daemon that is gone, though nobody may have noticed
 * yet. The same end dialling again: it would not, if it had not lost the old one; but our own
 * second dial found, under another address, whom we have already. Each end dialled: both keep what
 * the smaller id has dialled, unless nothing is heard over it: then the other end no longer has
 * it. */
enum session_choice session_choose(bool we_are_smaller, const struct session_view *old,
                                   const struct session_view *news)
{
    if (!old)
        return SESSION_TAKE;
    if (old->boot != news->boot)
        return SESSION_REPLACE;
    if (old->dialed == news->dialed)
        return news->dialed ? SESSION_REFUSE : SESSION_REPLACE;
    if (!news->dialed && old->silent_us > WAY_QUIET_US)
        return SESSION_REPLACE;
    return news->dialed == we_are_smaller ? SESSION_REPLACE : SESSION_REFUSE;
}
