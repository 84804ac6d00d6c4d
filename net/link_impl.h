/* SPDX-License-Identifier: MIT
 *
 * Inside a link: shared by link.c (life), link_events.c (what libevent reports), link_dial.c
 * (sockets), link_shake.c (handshake and hello), link_session.c (records, frames, heartbeats) and
 * link_rekey.c (changes of keys),
 * and by nobody else. Everything runs on the loop of setup->base.
 *
 * Callbacks of the owner may free, close or detach the link. So every entry from the loop is
 * bracketed by link_enter and link_exit, which keep the memory, and after every callback the code
 * looks at `freed` and `state` before going on. */
#ifndef NET_LINK_IMPL_H
#define NET_LINK_IMPL_H

#include "clock_offset.h"
#include "link.h"
#include "wire.h"

enum link_limits {
    LINK_DIAL_US =
        5000000, /* a cable's other end answers in milliseconds; a missing one should not hold up retries */
    LINK_LOOKUP_US =
        14000000, /* of a name; a resolver whose one name server is silent gives up after 10 s, and says so */
    LINK_HANDSHAKE_US =
        10000000, /* handshake and hello together: a loaded machine has seconds, a silent stranger no more */
    LINK_AHEAD = 4096,         /* bytes that are read at once, where more than the next step needs may be */
    LINK_BEAT_US = 1000000,    /* heartbeats: often enough to show progress */
    LINK_SUSPECT_US = 3000000, /* three missed: worth showing, not worth acting on */
    LINK_DEAD_US = 10000000,   /* loops were late by 0.13 s under the worst load seen; 10 s is no load */
    LINK_LATE_US = 500000,     /* our own lateness from which on we do not blame the peer for it */
    LINK_LINGER_US = 1000000,  /* for the last words to leave, and again while they do, */
    LINK_LINGERS = 10,         /* so many times at most */
    LINK_REKEY_US = 120000000, /* age of a control link's keys, from which on the dialer changes them;
                                  half as much more ends the link, as in WireGuard */
    LINK_QUEUE_MAX = 16 << 20, /* bytes waiting to be sent */
    LINK_PULL_MIN = 8192,      /* records from here on are read straight from the socket */
    LINK_SHAKE_MIN = 48,       /* the shortest handshake message: a key and a tag */
};

/* A change of keys under way. */
struct link_rekey {
    bool asked, answered;
    uint8_t secret[AUTH_KEY], own[AUTH_KEY]; /* our pair for it */
    uint8_t mix[32];                         /* with answered: for the direction that is still to change */
};

struct addrinfo;
struct auth;
struct bufferevent;
struct event;
struct lookup;

struct link {
    struct event_base *base;    /* borrowed */
    const struct link_ops *ops; /* borrowed */
    void *owner;                /* borrowed */
    struct bufferevent *bev;    /* owned; NULL without a connection */
    struct event *timer;        /* owned: the state's deadline, the heartbeat, or the end of lingering */
    struct instant due;         /* when it should fire */
    int fd;                     /* owned; −1 without a connection */
    struct lookup *lookup;      /* owned: while its name is being resolved */
    struct addrinfo *addresses; /* owned: what the name resolved to */
    const struct addrinfo *next_address;
    uint16_t port, max_segment;
    char address[80], who[160]; /* who: address, with the name once it is known; for sentences */

    enum link_kind kind;
    enum link_state state;
    bool dialed;
    unsigned depth;   /* of link_enter */
    size_t unsent;    /* of the last words, in bytes, when the timer was set */
    unsigned lingers; /* times that it may still be set */
    bool freed;       /* by the owner, inside a callback */
    bool reported;    /* `down` has been called */
    enum link_end end;
    char text[WIRE_TEXT_MAX + 1]; /* why it ended */
    uint64_t handshake_us, beat_us, suspect_us, dead_us;
    const struct instant *beat; /* borrowed, or NULL */

    size_t need;               /* bytes of input the next step takes; of a data link no more is read */
    bool in_body;              /* the prefix has been read, `need` is the rest */
    struct auth *auth;         /* owned; until the session has its keys */
    uint8_t (*psks)[AUTH_PSK]; /* owned; accepted: secrets to try on message 1, then wiped */
    uint64_t *tags;            /* owned; theirs */
    size_t n_psks;
    struct link_seen *seen;     /* borrowed, or NULL */
    uint64_t tag;               /* of the one that fitted */
    uint8_t peer_key[AUTH_KEY]; /* with has_peer */
    bool has_preamble;
    uint8_t preamble[LINK_PREAMBLE]; /* dialed */
    struct wire_opening opening;
    struct link_hello mine, peer;
    bool has_peer, said_accept, heard_accept;

    bool keyed; /* tx and rx are in force */
    uint8_t hash[AUTH_HASH];
    enum seal_suite suite;
    struct seal tx, rx;
    struct link_rekey rekey;
    struct instant keyed_at;
    uint64_t rekey_us, rekeys;
    uint8_t head[SEAL_HEAD];
    uint8_t *record;         /* owned: SEAL_MAX + SEAL_TAG bytes */
    size_t got;              /* bytes of it that have been pulled */
    struct wire_frame frame; /* being put together from fragments */
    bool in_frame;
    uint8_t *parts; /* owned: its bytes so far, grown by what has arrived, never by what was announced */
    size_t parts_len;

    struct instant last_heard, up_since, beat_at; /* beat_at: arrival of the peer's last heartbeat */
    uint64_t beat_sent_us;                        /* its send time, to be echoed */
    uint32_t rtt_us, least_rtt_us;
    struct clock_offset clock_offset; /* the peer's clock */
    uint64_t tx_bytes, rx_bytes, tx_frames, rx_frames;
};

/* link.c */
void link_enter(struct link *link);
void link_exit(struct link *link); /* frees it if the owner has let go of it meanwhile */
void link_arm(struct link *link, uint64_t us);
void link_want(struct link *link, size_t n);
void link_stop(struct link *link); /* closes the connection; no callback follows from it */
void link_name_peer(struct link *link);
/* Ends the link: with a goodbye, and then `down` from the loop, if one can be said; else `down` at
 * once. Callers return. */
void link_fail(struct link *link, enum link_end end, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same without a goodbye: the peer said it, or there is no peer. */
void link_down(struct link *link, enum link_end end, const char *text);
/* The end, told from the loop by the timer. */
void link_end_later(struct link *link, enum link_end end, const char *text, uint64_t us);
/* The timer of lingering has fired: whether the last words are still leaving; then it is set
 * again. */
bool link_lingers(struct link *link);

/* link_events.c */
int link_set_timer(struct link *link);
int link_attach(struct link *link, int fd); /* takes over fd, makes the bufferevent */

/* link_dial.c */
/* Of a control link that is up: bytes that nobody acknowledges for so long end it. */
void link_limit_silence(int fd, uint64_t us);
void link_resolve(struct link *link, const char *host, uint16_t port); /* and on to the first address */
void link_try_next(struct link *link, int error); /* error: errno of the attempt before, 0 = first */
void link_tune_socket(int fd);
void link_name_address(struct link *link, int fd);

/* link_shake.c */
void link_shake_start(struct link *link);
void link_shake_step(struct link *link);
void link_shake_forget(struct link *link); /* wipes the secrets that were to be tried */

/* link_rekey.c */
void link_rekey_begin(struct link *link); /* the keys are new */
void link_rekey_forget(struct link *link);
void link_rekey_take(struct link *link, const uint8_t *body, size_t n);
/* False: the link has ended. */
bool link_rekey_tick(struct link *link, struct instant now);

/* link_session.c */
void link_session_step(struct link *link);
/* Long records are read straight into their place, for libevent would take 4 KiB at a time. Never
 * more than is needed. True: it is all here. */
bool link_session_pulls(const struct link *link);
bool link_session_pull(struct link *link);
void link_session_try_up(struct link *link);
void link_session_tick(struct link *link);
int link_session_send(struct link *link, uint8_t type, const void *body, size_t n);
void link_session_bye(struct link *link, uint8_t code, const char *text);

#endif
