/* SPDX-License-Identifier: MIT
 *
 * A member that was removed and has kept the network key of before, on the same switch as those who
 * removed it: for tests/netns/hostile.sh. Beacons under that key say hello in its own name, and, in
 * a victim's, goodbye and other boots; whatever can be opened is named, as a proof of having been
 * there.
 *
 *   revoked STATE INTERFACE VICTIM SECONDS   its state directory, the victim's node id in hex
 *
 * Prints how many beacons of others it could open. One thread. */
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/keys/key_file.h"
#include "daemon/ringd/cluster/identity.h"
#include "net/beacon_wire.h"
#include "net/clock.h"
#include "tests/lib/own_keys.h"

enum { PORT = 17464, EVERY_MS = 50 };

struct liar {
    struct keeper keeper;
    struct keys *keys;
    struct beacon_key key;
    struct in6_addr own; /* the link-local address it speaks from */
    struct sockaddr_in6 group;
    uint8_t self[16], victim[16];
    struct beacon_heard heard;   /* the last beacon that it could open */
    struct beacon_heard victims; /* and the place of the victim, as that one told */
    uint64_t seq, opened;
    int fd;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void take_key(struct liar *l, const char *state)
{
    struct cluster *cluster;
    struct cluster_net_key key;
    struct err err = {""};

    uint8_t seed[AUTH_SEED];
    if (key_file_load(seed, state, &err) || !(l->keys = own_keys(&l->keeper, seed)) ||
        cluster_open(&cluster, state, l->keys, &err) || !cluster_net_keys(cluster, &key, 1)) {
        fprintf(stderr, "revoked: %s: %s\n", state, err.text);
        exit(1);
    }
    auth_node_id(l->self, keys_identity(l->keys)->pub);
    l->key.id = key.generation;
    memcpy(l->key.key, key.beacon, sizeof l->key.key);
    cluster_close(cluster);
}

static void open_port(struct liar *l, const char *interface)
{
    const int index = (int)if_nametoindex(interface), hops = 255;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    struct ipv6_mreq join = {.ipv6mr_interface = (unsigned)index};
    socklen_t size = sizeof any;

    l->group = any;
    inet_pton(AF_INET6, "ff02::7269:6e67", &l->group.sin6_addr);
    l->group.sin6_scope_id = (uint32_t)index;
    join.ipv6mr_multiaddr = l->group.sin6_addr;
    l->fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&any, sizeof any) ||
        setsockopt(l->fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, sizeof join) ||
        setsockopt(l->fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops))
        fail(interface);
    const int probe = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* what the kernel would send from */
    if (connect(probe, (struct sockaddr *)&l->group, sizeof l->group) ||
        getsockname(probe, (struct sockaddr *)&any, &size))
        fail("its own address");
    l->own = any.sin6_addr;
    close(probe);
}

static void say(struct liar *l, enum beacon_type type, const struct beacon_heard *as)
{
    uint8_t nonce[BEACON_NONCE], data[BEACON_MAX];
    struct beacon b = {.type = type,
                       .boot = as->boot,
                       .seq = ++l->seq + UINT32_MAX,
                       .port_id = as->port_id,
                       .hold_ms = 3500,
                       .nheard = 1,
                       .heard = {l->heard},
                       .name = "liar",
                       .kind = 2,
                       .mtu = 1500,
                       .tcp_port = PORT,
                       .proto_min = 1,
                       .proto_max = 1};

    memcpy(b.node_id, as->node_id, 16);
    if (getentropy(nonce, sizeof nonce))
        fail("randomness");
    const int n = beacon_encode(&b, &l->key, &l->own, nonce, data, sizeof data);
    if (n > 0)
        (void)!sendto(l->fd, data, (size_t)n, 0, (struct sockaddr *)&l->group, sizeof l->group);
}

static void hear(struct liar *l)
{
    uint8_t data[BEACON_MAX];
    struct sockaddr_in6 from;
    socklen_t size = sizeof from;
    struct beacon b;
    const ssize_t n = recvfrom(l->fd, data, sizeof data, MSG_DONTWAIT, (struct sockaddr *)&from, &size);

    if (n <= 0 || beacon_decode(&b, &l->key, &from.sin6_addr, data, (size_t)n) ||
        !memcmp(b.node_id, l->self, 16) || !strcmp(b.name, "liar"))
        return;
    l->opened++;
    l->heard = (struct beacon_heard){.boot = b.boot, .port_id = b.port_id, .seq = b.seq};
    memcpy(l->heard.node_id, b.node_id, 16);
    for (size_t i = 0; i < b.nheard; i++)
        if (!memcmp(b.heard[i].node_id, l->victim, 16))
            l->victims = b.heard[i];
}

int main(int argc, char **argv)
{
    static struct liar liar;
    struct liar *l = &liar;

    if (argc != 5 || id_parse(l->victim, argv[3])) {
        fprintf(stderr, "usage: revoked STATE INTERFACE VICTIM SECONDS\n");
        return 2;
    }
    take_key(l, argv[1]);
    open_port(l, argv[2]);
    memcpy(l->victims.node_id, l->victim, 16);
    const struct instant begin = clock_now();
    for (struct instant last = {0}; clock_since_us(clock_now(), begin) < (uint64_t)atoi(argv[4]) * 1000000;) {
        struct pollfd p = {.fd = l->fd, .events = POLLIN};
        poll(&p, 1, EVERY_MS);
        hear(l);
        if (clock_since_us(clock_now(), last) < EVERY_MS * 1000)
            continue;
        last = clock_now();
        struct beacon_heard self = {.boot = 1, .port_id = 7}, other = l->victims;
        memcpy(self.node_id, l->self, 16);
        other.boot += 1 + l->seq % 2;
        say(l, BEACON_HELLO, &self);
        say(l, BEACON_GOODBYE, &l->victims);
        say(l, BEACON_HELLO, &other);
    }
    printf("%llu\n", (unsigned long long)l->opened);
    return 0;
}
