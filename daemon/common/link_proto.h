/* SPDX-License-Identifier: MIT
 *
 * PURE: what ringd and ringd-link say to each other over a Unix socket of packets: one request of
 * RLINK_REQUEST bytes, one reply of RLINK_REPLY bytes (LIST: one per address and a last one
 * without). Little-endian, fixed size, every unused byte zero. Used by cable_client.c in ringd and
 * by ringd-link; no sockets here.
 *
 *   request  u8 version ‖ u8 verb ‖ u8 family ‖ u8 plen ‖ u32 seq ‖ u32 ifindex ‖ u32 value ‖
 *   at[16]
 *   reply    u8 version ‖ u8 verb ‖ u8 family ‖ u8 plen ‖ u32 seq ‖ u32 ifindex ‖ u32 value ‖
 *   at[16]
 *            ‖ u16 code ‖ u8 more ‖ u8 0 ‖ text[RLINK_TEXT], padded with zeros */
#ifndef DAEMON_LINK_PROTO_H
#define DAEMON_LINK_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/prefix.h"

enum {
    RLINK_PROTO_VERSION = 1,
    RLINK_TEXT = 220,
    RLINK_REQUEST = 32,
    RLINK_REPLY = 36 + RLINK_TEXT,
    RLINK_MIN_MTU = 1280, /* what IPv6 needs */
    RLINK_MAX_MTU = 65535,
    RLINK_MIN_LEASE_S = 1,
    RLINK_MAX_LEASE_S = 3600,
};
#define RLINK_PATH "/run/ringd-link/sock"

enum rlink_verb {                  /* numbers are never reused */
                  RLINK_SCOPE = 1, /* addr: the /48 of the cluster, or the IPv4 pool; once per family and life
                                      of ringd-link */
                  RLINK_SET_UP = 2,   /* ifindex */
                  RLINK_SET_MTU = 3,  /* ifindex, value = bytes */
                  RLINK_ADDR_ADD = 4, /* ifindex, addr, value = seconds it lives unless added again */
                  RLINK_ADDR_DEL = 5, /* ifindex, addr */
                  RLINK_LIST = 6, /* what it added that is still there: a reply each with addr, ifindex, value
                                     = seconds left */
                  RLINK_LINK_LOCAL =
                      7, /* ifindex: the link-local address that the kernel still examines is there at once */
};
const char *rlink_verb_name(enum rlink_verb verb); /* "set up", "set MTU", ...; NULL: no such verb */

enum rlink_code { /* closed list: callers match on them */
                  RLINK_OK,
                  RLINK_BAD_REQUEST, /* not of this protocol, or a value out of its range */
                  RLINK_NO_SCOPE,    /* nothing was said yet about which addresses are in order */
                  RLINK_OUT_OF_SCOPE,
                  RLINK_SCOPE_FIXED, /* it is another one already */
                  RLINK_NO_PORT,     /* no such interface */
                  RLINK_NOT_CABLE,   /* loopback, bridge, enslaved, or not Ethernet at all */
                  RLINK_NOT_OURS,    /* the address is there, or is not, but not by our doing */
                  RLINK_KERNEL,      /* the kernel refused; the sentence says how */
                  RLINK_TOO_MANY,    /* clients or addresses */
                  RLINK_DENIED,      /* not the user it works for */
};

struct rlink_request {
    enum rlink_verb verb;
    uint32_t seq; /* comes back in the reply */
    uint32_t ifindex;
    uint32_t value;
    struct prefix addr; /* family 0: none */
};
struct rlink_reply {
    struct rlink_request to; /* the request; for LIST what it lists; verb 0: the request could not be read */
    enum rlink_code code;
    bool more; /* LIST: another follows */
    char text[RLINK_TEXT];
};

/* Encoders fill all bytes. Decoders take exactly one packet, check every field (which ones a verb
 * has, and their ranges), and leave *ret untouched on −EPROTO; for requests *ret_what then says
 * what is wrong. */
void rlink_request_encode(const struct rlink_request *r, uint8_t out[static RLINK_REQUEST]);
int rlink_request_decode(const uint8_t *data, size_t n, struct rlink_request *ret, const char **ret_what);
void rlink_reply_encode(const struct rlink_reply *r, uint8_t out[static RLINK_REPLY]);
int rlink_reply_decode(const uint8_t *data, size_t n, struct rlink_reply *ret);

/* May this be a scope? Only a /48 under fd00::/8, or a private IPv4 network: ringd-link is not to
 * be talked into giving out addresses of the world. */
bool rlink_is_scope(const struct prefix *p);

#endif
