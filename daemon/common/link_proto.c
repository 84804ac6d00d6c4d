/* SPDX-License-Identifier: MIT
 *
 * Packets between ringd and ringd-link. Pure. */
#include "daemon/common/link_proto.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "net/buf.h"

enum { HAS_PORT = 1, HAS_ADDR = 2, HAS_VALUE = 4 };

static const struct {
    const char *name;
    unsigned has;
    uint32_t min, max; /* of value */
} verbs[] = {
    [RLINK_SCOPE] = {"set the scope", HAS_ADDR, 0, 0},
    [RLINK_SET_UP] = {"set up", HAS_PORT, 0, 0},
    [RLINK_LINK_LOCAL] = {"set link-local address", HAS_PORT, 0, 0},
    [RLINK_SET_MTU] = {"set MTU", HAS_PORT | HAS_VALUE, RLINK_MIN_MTU, RLINK_MAX_MTU},
    [RLINK_ADDR_ADD] = {"add address", HAS_PORT | HAS_ADDR | HAS_VALUE, RLINK_MIN_LEASE_S, RLINK_MAX_LEASE_S},
    [RLINK_ADDR_DEL] = {"remove address", HAS_PORT | HAS_ADDR, 0, 0},
    [RLINK_LIST] = {"list addresses", 0, 0, 0},
};

const char *rlink_verb_name(enum rlink_verb verb)
{
    return (size_t)verb < sizeof verbs / sizeof *verbs ? verbs[verb].name : NULL;
}

bool rlink_is_scope(const struct prefix *p)
{
    if (!prefix_is_valid(p) || !prefix_is_network(p))
        return false;
    return p->family == AF_INET ? prefix_is_private_network(p) && p->plen <= 31
                                : p->plen == 48 && p->at[0] == 0xfd;
}

/* Both kinds of packet begin alike. Families have their own numbers: the wire is not the kernel's
 * header. */
static void put_head(struct buf_out *out, const struct rlink_request *r)
{
    buf_out_u8(out, RLINK_PROTO_VERSION);
    buf_out_u8(out, (uint8_t)r->verb);
    buf_out_u8(out, r->addr.family == AF_INET ? 4 : r->addr.family == AF_INET6 ? 6 : 0);
    buf_out_u8(out, r->addr.plen);
    buf_out_u32(out, r->seq);
    buf_out_u32(out, r->ifindex);
    buf_out_u32(out, r->value);
    buf_out_bytes(out, r->addr.at, sizeof r->addr.at);
}

static const char *get_head(struct buf_in *in, struct rlink_request *r)
{
    uint8_t version = buf_in_u8(in), family;

    r->verb = buf_in_u8(in);
    family = buf_in_u8(in);
    r->addr.family = family == 4 ? AF_INET : family == 6 ? AF_INET6 : 0;
    r->addr.plen = buf_in_u8(in);
    r->seq = buf_in_u32(in);
    r->ifindex = buf_in_u32(in);
    r->value = buf_in_u32(in);
    buf_in_bytes(in, r->addr.at, sizeof r->addr.at);
    if (in->bad)
        return "its size";
    if (version != RLINK_PROTO_VERSION)
        return "its version: ringd and ringd-link must be of one version";
    if (family != 0 && (r->addr.family == 0 || !prefix_is_valid(&r->addr)))
        return "its address";
    if (family == 0 && memcmp(&r->addr, &(struct prefix){0}, sizeof r->addr) != 0)
        return "an address without a family";
    if (r->ifindex > INT32_MAX)
        return "its interface";
    return NULL;
}

static const char *check_request(const struct rlink_request *r)
{
    unsigned has = verbs[r->verb].has;

    if ((r->ifindex != 0) != !!(has & HAS_PORT))
        return has & HAS_PORT ? "no interface" : "an interface where none belongs";
    if ((r->addr.family != 0) != !!(has & HAS_ADDR))
        return has & HAS_ADDR ? "no address" : "an address where none belongs";
    if (has & HAS_PORT && has & HAS_ADDR && r->addr.plen + 1u < (r->addr.family == AF_INET ? 32 : 128))
        return "its address: a cable has two, so only /31 and /127 are in order";
    if (r->value < verbs[r->verb].min || r->value > verbs[r->verb].max)
        return r->verb == RLINK_SET_MTU ? "its MTU: 1280 to 65535 are in order"
               : has & HAS_VALUE        ? "its lifetime: 1 to 3600 seconds are in order"
                                        : "a value where none belongs";
    if (r->verb == RLINK_SCOPE && !rlink_is_scope(&r->addr))
        return "its scope: only a /48 under fd00::/8 or a private IPv4 network is in order";
    return NULL;
}

void rlink_request_encode(const struct rlink_request *r, uint8_t out[static RLINK_REQUEST])
{
    struct buf_out b;

    buf_out_init(&b, out, RLINK_REQUEST);
    put_head(&b, r);
}

int rlink_request_decode(const uint8_t *data, size_t n, struct rlink_request *ret, const char **ret_what)
{
    struct rlink_request r = {0};
    const char *what;
    struct buf_in in;

    buf_in_init(&in, data, n);
    what = get_head(&in, &r);
    if (!what)
        what = !buf_in_is_done(&in) ? "its size" : !rlink_verb_name(r.verb) ? "its verb" : check_request(&r);
    if (what) {
        *ret_what = what;
        return -EPROTO;
    }
    *ret = r;
    return 0;
}

void rlink_reply_encode(const struct rlink_reply *r, uint8_t out[static RLINK_REPLY])
{
    size_t n = strnlen(r->text, RLINK_TEXT - 1);
    struct buf_out b;

    memset(out, 0, RLINK_REPLY);
    buf_out_init(&b, out, RLINK_REPLY);
    put_head(&b, &r->to);
    buf_out_u16(&b, (uint16_t)r->code);
    buf_out_u8(&b, r->more);
    buf_out_u8(&b, 0);
    buf_out_bytes(&b, r->text, n);
}

int rlink_reply_decode(const uint8_t *data, size_t n, struct rlink_reply *ret)
{
    struct rlink_reply r = {0};
    struct buf_in in;
    uint8_t more, zero;
    size_t len;

    buf_in_init(&in, data, n);
    if (get_head(&in, &r.to) || (r.to.verb != 0 && !rlink_verb_name(r.to.verb)))
        return -EPROTO;
    r.code = buf_in_u16(&in);
    more = buf_in_u8(&in);
    zero = buf_in_u8(&in);
    buf_in_bytes(&in, r.text, sizeof r.text);
    if (!buf_in_is_done(&in) || r.code > RLINK_DENIED || more > 1 || zero != 0)
        return -EPROTO;
    r.more = more;
    len = strnlen(r.text, sizeof r.text);
    for (size_t i = 0; i < sizeof r.text; i++)
        if (i < len ? (unsigned char)r.text[i] < ' ' || r.text[i] == 127 : r.text[i] != '\0')
            return -EPROTO;
    if (len == sizeof r.text || (r.to.verb == RLINK_LIST && r.more && r.to.addr.family == 0))
        return -EPROTO;
    *ret = r;
    return 0;
}
