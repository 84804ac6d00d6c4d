/* SPDX-License-Identifier: MIT
 *
 * Sockets and timers around beacons. Owns one socket per port and the beacons; everything on the
 * loop of setup->base. */
#include "finder.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BITE = 64,          /* datagrams read before the loop gets its turn */
    MOUTHFUL = 4,       /* and of them with one call of the kernel */
    RETRY_US = 1000000, /* for a socket that could not be opened: an address may not be ready yet */
    HOPS = 255,         /* no router has touched it */
    PACKET_HEADS = 48,  /* of IPv6 and UDP, before a datagram */
    PACKET_MAX = 65535,
    PROBES_PER_S = 50,
    LATE_US = 20000, /* a timer so late may have overtaken what waits in sockets */
};

static const struct in6_addr group = {{{0xff, 0x02, [12] = 0x72, [13] = 0x69, [14] = 0x6e, [15] = 0x67}}};

struct finder_port {
    struct finder *finder; /* borrowed */
    struct port port;
    int fd;             /* owned; −1: see error */
    struct event *read; /* owned */
    int error;
    bool is_behind;             /* more waits in its socket than was read */
    struct instant probes_even; /* when the probes sent back so far will have been made up for */
    struct finder_port *next;
};

struct finder {
    struct event_base *base; /* borrowed */
    struct ports *ports;     /* borrowed */
    const struct finder_ops *ops;
    void *owner;
    struct beacons *beacons;  /* owned */
    struct event *timer;      /* owned */
    struct finder_port *list; /* owned */
    struct instant due;       /* when the timer should go off */
    uint16_t udp_port;
    struct finder_stats stats;
};

/* --- sockets --- */

static int set_int(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value) < 0 ? -errno : 0;
}

static int set_up_socket(int fd, const struct port *port, uint16_t udp_port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(udp_port)};
    struct ipv6_mreq join = {.ipv6mr_multiaddr = group, .ipv6mr_interface = port->ifindex};
    int index = (int)port->ifindex, r;

    /* an old kernel wants privilege for this; then every socket hears every port, and take_datagram
     * sorts it out */
    if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, port->name, (socklen_t)strlen(port->name) + 1) < 0 &&
        errno != EPERM)
        return -errno;
    if ((r = set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1)) < 0 ||
        (r = set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)) < 0 ||
        (r = set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, index)) < 0 ||
        (r = set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 0)) < 0 ||
        (r = set_int(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, HOPS)) < 0 ||
        (r = set_int(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, HOPS)) < 0 ||
        (r = set_int(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1)) < 0 || /* a probe is one packet, or none */
        (r = set_int(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1)) < 0 ||
        (r = set_int(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)) < 0)
        return r;
    if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0 ||
        setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, sizeof join) < 0)
        return -errno;
    return 0;
}

static void on_read(evutil_socket_t fd, short what, void *arg);

static int open_socket(struct finder_port *p)
{
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), r;

    if (fd < 0)
        return -errno;
    r = set_up_socket(fd, &p->port, p->finder->udp_port);
    if (r == 0) {
        p->read = event_new(p->finder->base, fd, EV_READ | EV_PERSIST, on_read, p);
        if (!p->read || event_add(p->read, NULL) < 0)
            r = -ENOMEM;
    }
    if (r < 0) {
        if (p->read)
            event_free(p->read);
        p->read = NULL;
        close(fd);
        return r;
    }
    p->fd = fd;
    return 0;
}

/* From the address that the beacon is sealed with: a port may have several. */
static int send_to(struct finder_port *p, const struct in6_addr *whom, const uint8_t *data, size_t n)
{
    struct finder_stats *stats = &p->finder->stats;
    struct sockaddr_in6 to = {.sin6_family = AF_INET6,
                              .sin6_port = htons(p->finder->udp_port),
                              .sin6_addr = *whom,
                              .sin6_scope_id = p->port.ifindex};
    struct in6_pktinfo from = {.ipi6_addr = p->port.link_local, .ipi6_ifindex = p->port.ifindex};
    union {
        struct cmsghdr head;
        uint8_t room[CMSG_SPACE(sizeof from)];
    } control = {.room = {0}};
    struct iovec iov = {(void *)data, n};
    struct msghdr msg = {.msg_name = &to,
                         .msg_namelen = sizeof to,
                         .msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};

    control.head.cmsg_level = IPPROTO_IPV6;
    control.head.cmsg_type = IPV6_PKTINFO;
    control.head.cmsg_len = CMSG_LEN(sizeof from);
    memcpy(CMSG_DATA(&control.head), &from, sizeof from);
    if (p->fd < 0 || sendmsg(p->fd, &msg, 0) < 0) {
        stats->failed++; /* the next one is due soon; ports reports a port that is gone */
        return -ENETUNREACH;
    }
    stats->out++;
    stats->out_bytes += n;
    return 0;
}

static int send_datagram(struct finder_port *p, const uint8_t *data, size_t n)
{
    return send_to(p, &group, data, n);
}

static int send_probe(struct finder_port *p, const struct in6_addr *to, enum beacon_type type,
                      uint64_t number, size_t n)
{
    uint8_t *data = calloc(1, n);
    int r;

    if (!data)
        return -ENOMEM;
    beacon_size_encode(type, number, data);
    r = send_to(p, to, data, n);
    free(data);
    return r;
}

/* --- time --- */

static void arm(struct finder *f)
{
    uint64_t now = clock_now().us, due = beacons_due(f->beacons).us, us;
    struct timeval tv;

    for (const struct finder_port *p = f->list; p; p = p->next)
        if (p->fd < 0 && now + RETRY_US < due)
            due = now + RETRY_US;
    us = due > now ? due - now : 0;
    if (us > UINT64_C(3600000000)) /* nothing is due: an hour is as good as never, and fits in every time_t */
        us = UINT64_C(3600000000);
    tv = (struct timeval){(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
    f->due.us = now + us;
    event_add(f->timer, &tv);
}

static void send_due(struct finder *f)
{
    uint8_t data[BEACON_MAX], nonce[BEACON_NONCE];

    if (beacons_due(f->beacons).us > clock_now().us + BEACON_EARLY_US)
        return;
    for (struct finder_port *p = f->list; p; p = p->next) {
        int n;

        if (getentropy(nonce, sizeof nonce) < 0)
            return; /* rather silent than a nonce used twice */
        n = beacons_next_send(f->beacons, p->port.ifindex, clock_now(), nonce, data, sizeof data);
        if (n > 0)
            send_datagram(p, data, (size_t)n);
    }
}

static void settle(struct finder *f)
{
    send_due(f);
    arm(f);
}

/* --- receiving --- */

struct finder_arrival {
    struct in6_addr from;
    unsigned ifindex;
    int hops;
    bool is_whole;
    size_t n, read; /* bytes of the datagram, and those of them that are in data */
    uint8_t data[BEACON_MAX];
};

union control {
    struct cmsghdr head;
    uint8_t room[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(int))];
};

/* Of ret, all but the data, which is there already. */
static void take_head(struct mmsghdr *from, struct finder_arrival *ret)
{
    struct msghdr *msg = &from->msg_hdr;

    ret->n = from->msg_len;
    ret->read = ret->n < sizeof ret->data ? ret->n : sizeof ret->data;
    ret->from = ((const struct sockaddr_in6 *)msg->msg_name)->sin6_addr;
    ret->is_whole = !(msg->msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    ret->hops = -1;
    ret->ifindex = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT) {
            memcpy(&ret->hops, CMSG_DATA(c), sizeof ret->hops);
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;

            memcpy(&info, CMSG_DATA(c), sizeof info);
            ret->ifindex = info.ipi6_ifindex;
        }
    }
}

/* How many there were. Fewer than there is room for: no more were there. */
static size_t receive(int fd, struct finder_arrival ret[static MOUTHFUL])
{
    struct sockaddr_in6 from[MOUTHFUL];
    union control control[MOUTHFUL];
    struct iovec iov[MOUTHFUL];
    struct mmsghdr all[MOUTHFUL];
    int n;

    for (size_t i = 0; i < MOUTHFUL; i++) {
        from[i] = (struct sockaddr_in6){.sin6_family = AF_UNSPEC};
        iov[i] = (struct iovec){ret[i].data, sizeof ret[i].data};
        all[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &from[i],
                                              .msg_namelen = sizeof from[i],
                                              .msg_iov = &iov[i],
                                              .msg_iovlen = 1,
                                              .msg_control = &control[i],
                                              .msg_controllen = sizeof control[i]}};
    }
    n = recvmmsg(fd, all, MOUTHFUL, MSG_TRUNC, NULL); /* how long each was, however much of it is read */
    for (int i = 0; i < n; i++)
        take_head(&all[i], &ret[i]);
    return n > 0 ? (size_t)n : 0;
}

/* False: it is no probe. */
static bool take_probe(struct finder_port *p, const struct finder_arrival *a)
{
    const uint64_t now = clock_now().us, even = p->probes_even.us > now ? p->probes_even.us : now;
    uint64_t number;
    int type = beacon_size_decode(a->data, a->read, &number);

    if (type < 0)
        return false;
    if (type == BEACON_SIZE_BACK && p->finder->ops->sized)
        p->finder->ops->sized(p->finder->owner, a->ifindex, number, (uint32_t)a->n + PACKET_HEADS);
    if (type == BEACON_SIZE && even + 1000000 / PROBES_PER_S <= now + 1000000) {
        p->probes_even.us = even + 1000000 / PROBES_PER_S;
        send_probe(p, &a->from, BEACON_SIZE_BACK, number, a->n);
    }
    return true;
}

static void take_datagram(struct finder_port *p, const struct finder_arrival *a)
{
    struct finder *f = p->finder;
    int r;

    f->stats.in++;
    f->stats.in_bytes += a->n;
    if (a->hops != HOPS || a->ifindex != p->port.ifindex || !IN6_IS_ADDR_LINKLOCAL(&a->from)) {
        f->stats.dropped++;
        return;
    }
    if (take_probe(p, a))
        return;
    if (!a->is_whole) {
        f->stats.dropped++;
        return;
    }
    r = beacons_receive(f->beacons, a->ifindex, &a->from, a->data, a->n, clock_now());
    if ((r == -ENOKEY || r == -EKEYREJECTED) && f->ops->sealed)
        f->ops->sealed(f->owner, a->ifindex, beacon_generation(a->data));
    if (r == 1 && f->ops->ask)
        f->ops->ask(f->owner, a->ifindex, &a->from, (enum beacon_type)beacon_peek(a->data, a->n),
                    a->data + BEACON_HEAD, a->n - BEACON_HEAD);
}

static void read_port(struct finder_port *p)
{
    struct finder_arrival at[MOUTHFUL];
    size_t n = MOUTHFUL;

    for (int i = 0; i < BITE / MOUTHFUL && n == MOUTHFUL && p->fd >= 0; i++) {
        n = receive(p->fd, at);
        for (size_t k = 0; k < n; k++)
            take_datagram(p, &at[k]);
    }
    p->is_behind = n == MOUTHFUL;
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    struct finder_port *p = arg;

    (void)fd, (void)what;
    read_port(p);
    settle(p->finder);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct finder *f = arg;
    const bool is_late = clock_since_us(clock_now(), f->due) > LATE_US;

    (void)fd, (void)what;
    for (struct finder_port *p = f->list; p; p = p->next) {
        if (p->fd < 0)
            p->error = open_socket(p);
        if (is_late || p->is_behind) /* what proves the neighbours alive is already waiting */
            read_port(p);
    }
    beacons_expire(f->beacons, clock_now());
    settle(f);
}

/* --- ports --- */

static void free_port(struct finder_port *p)
{
    if (p->read)
        event_free(p->read);
    if (p->fd >= 0)
        close(p->fd);
    free(p);
}

static struct finder_port *find_port(const struct finder *f, unsigned ifindex)
{
    struct finder_port *p = f->list;

    while (p && p->port.ifindex != ifindex)
        p = p->next;
    return p;
}

static void drop_unusable(struct finder *f)
{
    for (struct finder_port **at = &f->list, *p; (p = *at);) {
        const struct port *port = ports_find(f->ports, p->port.ifindex);

        if (port && port_is_usable(port) && strcmp(port->name, p->port.name) == 0) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        beacons_port_remove(f->beacons, p->port.ifindex, clock_now());
        free_port(p);
    }
}

static void take_port(struct finder *f, const struct port *port)
{
    struct finder_port *p = find_port(f, port->ifindex);
    int r;

    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p)
            return;
        p->finder = f;
        p->port = *port;
        p->fd = -1;
        p->error = open_socket(p);
        p->next = f->list;
        f->list = p;
    }
    p->port = *port;
    r = beacons_port_add(f->beacons, port, clock_now());
    if (p->fd >= 0)
        p->error = r;
}

void finder_update(struct finder *f)
{
    drop_unusable(f);
    for (size_t i = 0; i < ports_count(f->ports); i++)
        if (port_is_usable(ports_at(f->ports, i)))
            take_port(f, ports_at(f->ports, i));
    settle(f);
}

/* --- life --- */

int finder_open(struct finder **ret, const struct finder_setup *setup)
{
    struct finder *f = calloc(1, sizeof *f);
    uint64_t seed;
    int r = -ENOMEM;

    if (!f)
        return r;
    f->base = setup->base;
    f->ports = setup->ports;
    f->ops = setup->ops;
    f->owner = setup->owner;
    f->udp_port = setup->udp_port ? setup->udp_port : FINDER_PORT;
    f->timer = event_new(f->base, -1, 0, on_timer, f);
    if (!f->timer)
        goto out;
    r = getentropy(&seed, sizeof seed) < 0 ? -EIO : 0;
    if (r == 0)
        r = beacons_new(&f->beacons, &setup->self, seed, &f->ops->beacons, f->owner);
    if (r < 0)
        goto out;
    beacons_set_key(f->beacons, setup->key, clock_now());
    finder_update(f);
    *ret = f;
out:
    if (r < 0)
        finder_close(f);
    return r;
}

void finder_close(struct finder *f)
{
    uint8_t data[BEACON_MAX], nonce[BEACON_NONCE];

    if (!f)
        return;
    for (struct finder_port *p; (p = f->list);) {
        int n = 0;

        f->list = p->next;
        if (getentropy(nonce, sizeof nonce) == 0)
            n = beacons_goodbye(f->beacons, p->port.ifindex, clock_now(), nonce, data, sizeof data);
        if (n > 0)
            send_datagram(p, data, (size_t)n);
        free_port(p);
    }
    if (f->timer)
        event_free(f->timer);
    beacons_free(f->beacons);
    free(f);
}

void finder_set_key(struct finder *f, const struct beacon_key *key)
{
    beacons_set_key(f->beacons, key, clock_now());
    settle(f);
}

int finder_set_attempt(struct finder *f, unsigned ifindex, uint8_t attempt)
{
    int r = beacons_set_attempt(f->beacons, ifindex, attempt, clock_now());

    arm(f);
    return r;
}

int finder_ask(struct finder *f, unsigned ifindex, enum beacon_type type, const void *body, size_t n)
{
    uint8_t data[BEACON_HEAD + BEACON_ASK_MAX];
    int size = beacon_ask_encode(type, body, n, data, sizeof data), sent = 0;

    if (size < 0)
        return -EINVAL;
    for (struct finder_port *p = f->list; p; p = p->next)
        if (ifindex == 0 || ifindex == p->port.ifindex)
            sent += send_datagram(p, data, (size_t)size) == 0;
    return sent;
}

int finder_probe(struct finder *f, unsigned ifindex, const struct in6_addr *to, uint64_t number,
                 uint32_t packet)
{
    struct finder_port *p = find_port(f, ifindex);

    if (!p)
        return -ENODEV;
    if (packet < PACKET_HEADS + BEACON_SIZE_HEAD || packet > PACKET_MAX)
        return -EMSGSIZE;
    return send_probe(p, to, BEACON_SIZE, number, packet - PACKET_HEADS);
}

int finder_port_error(const struct finder *f, unsigned ifindex)
{
    const struct finder_port *p = find_port(f, ifindex);

    return p ? p->error : -ENODEV;
}

void finder_connection_ended(struct finder *f)
{
    beacons_expire(f->beacons, clock_now());
    settle(f);
}

void finder_heard(struct finder *f, uint64_t cable)
{
    beacons_heard(f->beacons, cable, clock_now());
}

void finder_keep_step(struct finder *f, struct instant beat)
{
    beacons_keep_step(f->beacons, beat);
    settle(f);
}

size_t finder_neighbours(const struct finder *f, struct neighbour_view *out, size_t cap)
{
    return beacons_neighbours(f->beacons, clock_now(), out, cap);
}

void finder_stats(const struct finder *f, struct finder_stats *ret)
{
    *ret = f->stats;
    beacons_stats(f->beacons, &ret->beacons);
}
