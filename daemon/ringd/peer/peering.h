/* SPDX-License-Identifier: MIT
 *
 * What to do about each way to another node: a configured peer, or the other end of a cable. PURE:
 * no sockets and no timers; it is told what happened and what time it is, and says what to do.
 * peers*.c carries that out on the loop thread; tests do it with a fake clock.
 *
 *   IDLE         this node is in no cluster: it calls nobody
 *   WAITING      the other end of the cable makes the connection; if it does not, we try ourselves
 *   CALL
 *   DIALING      connecting, handshake and hello are under way
 *   HANDSHAKE
 *   BACKING_OFF  the last attempt failed, or the connection was lost
 *   BACKOFF
 *   FLAPPING     it came and went too often: left alone for a while
 *   HOLD
 *   UP           a connection stands over it, whoever made it
 *   DEAD (the link's heartbeats)
 *   OUT          the cable is out; remembered, to be shown and for its flaps
 *   FORGET
 *
 * way_step is the only function that changes a state; every state but IDLE has its timer, named on
 * the right. */
#ifndef DAEMON_PEERING_H
#define DAEMON_PEERING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/clock.h"

enum way_limits {
    WAY_BACKOFF_MS = 200,      /* the first time */
    WAY_BACKOFF_MAX_MS = 5000, /* ± 25 %, so that nodes do not fall into step */
    WAY_HANDSHAKE_US =
        16000000, /* the link's own limits together: 5 s to connect, 10 s to shake hands, 1 s to say why not */
    WAY_CALL_US =
        1000000, /* for the end that has to call: it may not know that the connection is gone, or sit behind a firewall */
    WAY_QUIET_US = 1500000,  /* a connection without a heartbeat for so long may be gone for the other end */
    WAY_FLAPS = 3,           /* so often up and down again */
    WAY_FLAPS_US = 60000000, /* within this time */
    WAY_HOLD_US = 30000000,  /* costs it so long a pause, where there is another way to that node */
    WAY_FORGET_US = 600000000, /* a cable that is out: long enough for whoever looks why */
};

enum way_state { WAY_IDLE, WAY_WAITING, WAY_DIALING, WAY_BACKING_OFF, WAY_FLAPPING, WAY_UP, WAY_OUT };
const char *way_state_name(enum way_state state); /* "idle", "waiting", …: shown by the API */

enum way_timer {
    WAY_TIMER_NONE,
    WAY_TIMER_CALL,
    WAY_TIMER_HANDSHAKE,
    WAY_TIMER_BACKOFF,
    WAY_TIMER_HOLD,
    WAY_TIMER_DEAD, /* not in `due`: it begins again with every word of the peer, and runs in the link */
    WAY_TIMER_FORGET
};
const char *way_timer_name(enum way_timer timer);

enum way_event {
    WAY_OPENED,    /* we are in a cluster, or who belongs to it has changed: closed doors may be open */
    WAY_CLOSED,    /* we are in none */
    WAY_PLUGGED,   /* the cable is there, or something about it is new; with the boot of the other end */
    WAY_UNPLUGGED, /* it is out; with the reason */
    WAY_RESTARTED, /* it is out because the other end was started anew: its old connection ends by itself */
    WAY_CONNECTED, /* a connection over it is up; with its number and the peer's boot */
    WAY_FAILED,    /* the dial came to nothing; with the reason */
    WAY_STRANGER,  /* the same, in the handshake: the other end may hold other keys */
    WAY_LOST,      /* the connection that was up has ended; with the reason */
    WAY_NEEDED,    /* the last connection over another way to that node has ended */
    WAY_FIRED      /* the timer */
};
struct way_news {
    enum way_event event;
    uint64_t session, boot; /* where named above */
    bool is_silent; /* UNPLUGGED, LOST: the other end fell silent or went, which is no fault of the way */
    const char *text;
};

enum way_action {
    WAY_NOTHING,
    WAY_DIAL,     /* with the key of way->key_age; its number goes into way->session */
    WAY_DROP,     /* end whatever runs over the way */
    WAY_HANG_UP,  /* the other end was faster: end our own dial, unless it has been answered */
    WAY_FORGOTTEN /* free it */
};

struct way {
    enum way_state state;
    struct instant since; /* in this state; dialing and backing off count as one */
    enum way_timer timer;
    struct instant due; /* when it fires; after every step the owner sets its clock by this */
    bool waits;   /* set by the owner before WAY_PLUGGED: the other end has the smaller node id, and dials */
    bool is_only; /* set by the owner before every step: no connection over another way leads to that node */
    bool has_cluster, out;
    uint64_t session; /* of the connection, or of the dial under way; 0 = none */
    uint64_t boot;    /* of the other end, 0 = not known */
    unsigned backoff_ms;
    unsigned key_age; /* generations back: the other end may have been away while keys changed */
    unsigned nflaps;  /* of one life of the other end, the last WAY_FLAPS of them: */
    struct instant flaps[WAY_FLAPS];
    uint64_t random;
    char words[400]; /* why the last connection or attempt ended, "" = there was none */
};

/* `seed` only spreads the times of dialling. Then nothing happens until WAY_OPENED or
 * WAY_PLUGGED. */
void way_init(struct way *w, uint64_t seed, bool has_cluster, struct instant now);
enum way_action way_step(struct way *w, const struct way_news *news, struct instant now);
/* Why it is no link yet: a sentence, "" where it is one. Borrowed from the way. */
const char *way_why(const struct way *w);

/* Whether two connections with one node run over one way: `cable` as its id, 0 = not known (yet);
 * `host` as the address of the other end in text. A link-local address ("fe80::1%3") belongs to one
 * port; of all others one connection is enough. */
bool session_same_way(uint64_t cable, const char *host, uint64_t other_cable, const char *other_host);
/* Two connections with one node over one way. Both ends must come to the same end whatever each
 * sees first. */
enum session_choice { SESSION_TAKE, SESSION_REFUSE, SESSION_REPLACE };
struct session_view {
    bool dialed;        /* by us */
    uint64_t boot;      /* of the peer */
    uint64_t silent_us; /* since its last word */
};
/* What becomes of `news`, beside `old` (NULL = there is none). */
enum session_choice session_choose(bool we_are_smaller, const struct session_view *old,
                                   const struct session_view *news);

#endif
