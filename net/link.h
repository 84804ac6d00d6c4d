/* SPDX-License-Identifier: MIT
 *
 * One authenticated session over a TCP connection, on a libevent loop: handshake, hello, sealed
 * frames, heartbeats. Used as it is for control connections; for data connections the link does
 * handshake and hello and is then detached: the socket and the two `struct seal` go to another
 * process. A link in the hands of its owner ends exactly once, through `down`.
 *
 * Life:  DIALING → HANDSHAKE → HELLO → UP → (detached | down)       ACCEPTED starts at HANDSHAKE
 * Every state has a deadline (link_impl.h: enum link_limits) but UP of a data link, which waits for
 * its owner to detach it. After link_free no callback fires. Callbacks may free, close or detach
 * their link. The process ignores SIGPIPE. */
#ifndef NET_LINK_H
#define NET_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock_offset.h"
#include "auth.h"
#include "clock.h"
#include "seal.h"

struct event_base;
struct link;

/* A join link is a control link between a member and a node that is not one yet: its secret is a
 * token's. */
enum link_kind { LINK_CONTROL = 1, LINK_DATA = 2, LINK_JOIN = 3 };
enum link_state { LINK_DIALING, LINK_HANDSHAKE, LINK_HELLO, LINK_UP, LINK_DOWN };
const char *link_state_name(enum link_state s);

enum link_end { /* closed list: dashboards and tests match on the names */
                LINK_END_NONE,
                LINK_END_CONNECT,
                LINK_END_HANDSHAKE,
                LINK_END_TIMEOUT,
                LINK_END_BAD_MAC,
                LINK_END_PROTOCOL,
                LINK_END_VERSION,
                LINK_END_REFUSED,
                LINK_END_PEER_LEFT,
                LINK_END_LOST,
                LINK_END_ENDED, /* the other end's process has ended: it said so, or its kernel closed what was up */
                LINK_END_SILENT,
                LINK_END_LOCAL,
};
const char *link_end_name(enum link_end e); /* "timeout", "bad-mac", … */

enum { LINK_CERT = 200, LINK_CLUSTER_KEY = 32, LINK_KEYS_MAX = 160 };

/* What each end says of itself inside the handshake, compared before the link comes up. Strings are
 * NUL-terminated. */
struct link_hello {
    uint8_t node_id[16];
    char name[64], version[32];
    uint16_t proto_min, proto_max;
    struct seal_offer seal; /* records have the cipher that seal_choose finds for both */
    uint16_t listen_port;
    uint64_t boot;           /* random at daemon start: tells a restarted node from a lost connection */
    uint8_t cert[LINK_CERT]; /* why the cluster should believe us; all zero = none */
    uint8_t cluster_key[LINK_CLUSTER_KEY]; /* join links, the member's side: what cert was signed with */
    /* data connections only */
    uint64_t job;
    uint8_t head_id[16]; /* the job's head: job numbers are per head */
    uint16_t from_rank, to_rank;
    char fingerprint[33]; /* of the model */
    uint32_t dim;         /* width of activations */
};

struct link_ops {
    /* Dialed links, may be NULL: the peer's hello of message 2, before we show anything but message
     * 1: who we are, that we hold the secret. 0 goes on; otherwise `why` as below, and the peer is
     * told nothing. */
    int (*vet)(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t why_size);
    /* The peer's hello, before the link is up: 0 accepts; otherwise write why (a sentence naming
     * field and both values), which is sent to the peer and given to `down` on both ends. The
     * peer's key is proved at this point. */
    int (*hello)(void *owner, struct link *link, const struct link_hello *peer, char *why, size_t why_size);
    void (*up)(void *owner, struct link *link);
    /* A frame: `type` is LINK_FRAME_USER and above; body is valid during the call only. */
    void (*frame)(void *owner, struct link *link, uint8_t type, const uint8_t *body, size_t n);
    /* Body of the next heartbeat (≤ cap bytes; return its length), and the peer's. May be NULL. */
    size_t (*beat)(void *owner, struct link *link, uint8_t *body, size_t cap);
    void (*beaten)(void *owner, struct link *link, const uint8_t *body, size_t n);
    /* Accepted links, may be NULL: the peer began with LINK_RELAY instead of a handshake.
     * link_surrender gives the socket. */
    void (*relayed)(void *owner, struct link *link);
    /* The end: text is a sentence. The owner must call link_free, now or later. */
    void (*down)(void *owner, struct link *link, enum link_end end, const char *text);
};

/* A secret a dialer may have, and what its owner calls it. */
struct link_key {
    uint8_t psk[AUTH_PSK];
    uint64_t tag;
};

/* The first words of handshakes that were begun with a secret of ours, the last so many. A dialer
 * never says the same twice: who does plays a recording, and is met with silence before it costs
 * anything. Zero to begin with. */
enum { LINK_SEEN = 4096 };
struct link_seen {
    uint64_t words[LINK_SEEN];
    size_t n; /* ever */
};

enum {
    LINK_SEGMENT_HEADS = 60,
    LINK_SEGMENT_LEAST = 1280 - LINK_SEGMENT_HEADS
}; /* heads of IPv6 and TCP; every path passes packets of 1280 bytes */

struct link_setup {
    struct event_base *base;        /* borrowed */
    const struct auth_identity *id; /* borrowed */
    const uint8_t *psk;             /* [AUTH_PSK], borrowed; for dialing */
    const struct link_key *keys; /* borrowed; for accepting: tried in order on message 1. NULL = psk alone */
    size_t n_keys;               /* ≤ LINK_KEYS_MAX; keys without any: nobody is let in */
    struct link_seen *
        seen; /* borrowed, for as long as the link; for accepting with keys; NULL = recordings are not looked for */
    enum link_kind kind;
    const uint8_t *
        preamble; /* borrowed; dialing: LINK_PREAMBLE bytes for a relay, said before the handshake; NULL = none */
    struct link_hello hello; /* ours; node_id is filled in from id, seal.suites 0 = what this CPU does well */
    const struct link_ops *ops;
    void *owner;
    uint16_t
        max_segment; /* dialing: bytes of a TCP segment at most, both ways; 0 = as the ports' MTUs allow */
    uint64_t beat_us, suspect_us, dead_us; /* 0 = 1 s, 3 s, 10 s */
    const struct instant *beat;            /* borrowed, may be NULL: heartbeats keep step with it */
    uint64_t handshake_us;                 /* 0 = 10 s: handshake and hello together */
    uint64_t rekey_us; /* 0 = 120 s: age of keys that are changed; half more ends the link */
};

/* `host` is an address ("192.168.7.2", "fe80::1%3") or a name, which a thread looks up. Whatever
 * goes wrong with reaching it is told by `down`, from the loop. id, psk and keys are needed during
 * the call only. */
int link_dial(struct link **ret, const struct link_setup *setup, const char *host, uint16_t port);
/* Takes over fd, on failure too. The kind is learnt from the peer: `setup->kind` is ignored,
 * link_kind tells from `hello` on. */
int link_accept(struct link **ret, const struct link_setup *setup, int fd);
void link_free(struct link *link);  /* NULL is fine; closes without calling `down`; sends BYE if it can */
void link_leave(struct link *link); /* the same; what the peer hears is that this process ends */

/* What is said to a relay (PROTOCOL.md §8) begins with two bytes that, read as the length of a
 * handshake message, are none. */
enum { LINK_RELAY = 0x4e52, LINK_PREAMBLE = 20 };
/* Inside `relayed` only: frees the link and gives its socket (non-blocking), of which these two
 * bytes have been read and no more. */
int link_surrender(struct link *link);

enum { LINK_FRAME_USER = 32, LINK_FRAME_MAX = 1 << 20 };
/* Control and join links. Queues a frame of at most LINK_FRAME_MAX bytes (fragmented into records
 * inside). −ENOTCONN if not up, −ENOBUFS when more than 16 MiB wait: a peer that does not drain is
 * cut (LINK_END_SILENT) by its heartbeat anyway. */
int link_send(struct link *link, uint8_t type, const void *body, size_t n);
/* The keys of a control link that is up are changed now, not when they are old, if we dialed it:
 * the dialer asks. */
void link_rekey(struct link *link);
/* The heartbeat that is due within LINK_EARLY_US goes out in this turn of the loop, which is awake
 * anyway. Only of a link with a `beat` to keep step with. */
enum { LINK_EARLY_US = 5000 };
void link_beat_early(struct link *link);
/* Ends the link from this side: the peer gets BYE with the text; `down` is called here too (from
 * the loop, not from inside). */
void link_close(struct link *link, enum link_end end, const char *text);
/* Data connections in UP (else −ENOTCONN, and the link stays): gives the socket (non-blocking off)
 * and both directions' state to the caller and frees the link. */
int link_detach(struct link *link, int *ret_fd, struct seal *ret_tx, struct seal *ret_rx);

enum link_kind link_kind(const struct link *link);
enum link_state link_state(const struct link *link);
bool link_dialed(const struct link *link);
uint64_t
link_key_tag(const struct link *link); /* accepted: of the key that fitted; 0 before, and when dialed */
const uint8_t *link_peer_key(const struct link *link); /* X25519, proved; NULL before `vet` and `hello` */
const struct link_hello *link_peer(const struct link *link); /* NULL before `hello` */
/* [AUTH_HASH]: of the handshake, the same at both ends and nowhere else; from HELLO on. */
const uint8_t *link_hash(const struct link *link);
const char *link_address(const struct link *link); /* "127.0.0.1:1234", "[fe80::1%3]:17464" */

struct link_stats {
    uint64_t tx_bytes, rx_bytes, tx_frames, rx_frames;
    uint64_t retransmits;  /* segments the kernel sent again */
    uint32_t rtt_us;       /* of the last heartbeat, 0 = none yet */
    uint32_t least_rtt_us; /* of all of them: nearest to what the cable takes */
    uint32_t
        packet; /* bytes of the largest packet that this connection may send or get, with all heads of IPv6; 0 = not known */
    uint64_t silent_us; /* since the last word of the peer */
    uint64_t up_us;     /* since UP */
    uint64_t key_us;    /* age of the keys; 0 before UP */
    uint64_t rekeys;    /* changes of keys, but for those by counting bytes */
    enum seal_suite suite;
    bool suspect;
};
void link_stats(const struct link *link, struct link_stats *ret);
/* How far the peer's clock is ahead of ours, as its heartbeats tell. False: not known yet. */
bool link_clock_offset(const struct link *link, struct instant now, struct clock_offset_bound *ret);

#endif
