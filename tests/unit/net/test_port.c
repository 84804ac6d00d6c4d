/* SPDX-License-Identifier: MIT
 *
 * Ports in a network namespace of the test's own, changed with iproute2. Skipped without the right
 * to make one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <event2/event.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "net/clock.h"
#include "net/port.h"

struct world {
    struct event_base *base;
    struct ports *ports;
    unsigned changes;
};

static void on_changed(void *owner)
{
    struct world *w = owner;

    w->changes++;
    event_base_loopbreak(w->base);
}
static const struct ports_ops ops = {on_changed};

static void run(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* A fresh namespace each time; commands of the test run in it. */
static void open_world(struct world *w, const char *allow, const char *deny)
{
    struct ports_policy policy = {
        .allow = &allow, .nallow = allow != NULL, .deny = &deny, .ndeny = deny != NULL};

    memset(w, 0, sizeof *w);
    w->base = event_base_new();
    assert_non_null(w->base);
    assert_int_equal(ports_open(&w->ports, w->base, &policy, &ops, w), 0);
}

static void close_world(struct world *w)
{
    ports_close(w->ports);
    event_base_free(w->base);
}

static const struct port *named(const struct world *w, const char *name)
{
    for (size_t i = 0; i < ports_count(w->ports); i++)
        if (strcmp(ports_at(w->ports, i)->name, name) == 0)
            return ports_at(w->ports, i);
    return NULL;
}

enum { WAIT_US = 60000000 }; /* for what has to come */

/* Runs the loop from change to change until `true_of` is; the µs that took. */
static uint64_t await(struct world *w, bool (*true_of)(const struct world *w), uint64_t most_us)
{
    struct instant start = clock_now();

    while (!true_of(w)) {
        struct timeval tv = {(time_t)(most_us / 1000000), (suseconds_t)(most_us % 1000000)};

        if (clock_since_us(clock_now(), start) > most_us)
            return UINT64_MAX;
        event_base_loopexit(w->base, &tv);
        event_base_dispatch(w->base);
    }
    return clock_since_us(clock_now(), start);
}

static int fresh_namespace(void **state)
{
    (void)state;
    return unshare(CLONE_NEWNET);
}

static bool usable(const struct world *w)
{
    const struct port *a = named(w, "va"), *b = named(w, "vb");

    return a && b && port_is_usable(a) && port_is_usable(b);
}

static void what_counts_as_a_port(void **state)
{
    struct world w;

    (void)state;
    run("ip link add va type veth peer name docker7");
    run("ip link add br0 type bridge; ip link add dbr0 type bridge; ip link add virbr3 type veth peer name "
        "vb");
    run("ip tuntap add mode tap name mytap");
    open_world(&w, NULL, NULL);
    assert_int_equal(ports_count(w.ports), 2);
    assert_non_null(named(&w, "va"));
    assert_non_null(named(&w, "vb"));
    assert_int_equal(named(&w, "va")->kind, PORT_ETH);
    assert_string_equal(port_kind_name(named(&w, "va")->kind), "ethernet");
    assert_ptr_equal(ports_find(w.ports, named(&w, "va")->ifindex), named(&w, "va"));
    assert_null(ports_find(w.ports, 1));
    close_world(&w);
    open_world(&w, "d*", "v*");
    assert_int_equal(ports_count(w.ports), 2);
    assert_true(named(&w, "dbr0") && named(&w, "docker7"));
    close_world(&w);
    open_world(&w, "vb", "*"); /* only this */
    assert_int_equal(ports_count(w.ports), 1);
    assert_non_null(named(&w, "vb"));
    close_world(&w);
}

static bool is_down(const struct world *w)
{
    return !named(w, "va")->carrier && named(w, "va")->up && !named(w, "vb")->up;
}

static bool is_gone(const struct world *w)
{
    return ports_count(w->ports) == 0;
}

static void life_of_a_cable(void **state)
{
    struct world w;
    uint32_t id;
    uint64_t took;

    (void)state;
    open_world(&w, NULL, NULL);
    assert_int_equal(ports_count(w.ports), 0);
    run("ip link add va address 02:00:00:00:00:01 type veth peer name vb");
    run("ip link set va up; ip link set vb up");
    assert_true(await(&w, usable, WAIT_US) < WAIT_US); /* the address takes a second or two to be checked */
    id = named(&w, "va")->port_id;
    assert_true(id != named(&w, "vb")->port_id);
    assert_int_equal(named(&w, "va")->mac[5], 1);
    assert_int_equal(named(&w, "va")->mtu, 1500);
    assert_int_equal(named(&w, "va")->link_local.s6_addr[0], 0xfe);
    run("ip link set vb down");
    took = await(&w, is_down, WAIT_US);
    print_message("carrier noticed after %lu us\n", took);
    assert_true(took < WAIT_US);
    run("ip link del va");
    assert_true(await(&w, is_gone, WAIT_US) < WAIT_US);
    run("ip link add va address 02:00:00:00:00:01 type veth peer name vb");
    run("ip link set va up; ip link set vb up");
    assert_true(await(&w, usable, WAIT_US) < WAIT_US);
    assert_int_equal(named(&w, "va")->port_id, id); /* the same card, plugged in again */
    close_world(&w);
}

static bool has_default(const struct world *w)
{
    return named(w, "va")->has_default_route && named(w, "vb")->enslaved && named(w, "va")->mtu == 9000;
}

static bool has_no_default(const struct world *w)
{
    return !named(w, "va")->has_default_route;
}

static const struct ports_prefix *prefix(const struct world *w, const char *text, unsigned plen,
                                         bool is_route)
{
    const struct ports_prefix *at;
    uint8_t wanted[16] = {0};
    bool partial;
    size_t n;

    assert_int_equal(inet_pton(strchr(text, ':') ? AF_INET6 : AF_INET, text, wanted), 1);
    at = ports_addresses(w->ports, &n, &partial);
    assert_false(partial);
    for (size_t i = 0; i < n; i++)
        if (memcmp(at[i].at, wanted, 16) == 0 && at[i].plen == plen && at[i].is_route == is_route)
            return &at[i];
    return NULL;
}

/* As ringd-link does; iproute2 cannot before 6.3. */
static void add_owned(unsigned ifindex, const char *address, uint8_t plen)
{
    _Alignas(struct nlmsghdr) char buf[256];
    struct nlmsghdr *head = mnl_nlmsg_put_header(buf);
    struct ifaddrmsg *info;
    struct mnl_socket *nl = mnl_socket_open(NETLINK_ROUTE);
    uint8_t at[4];

    assert_non_null(nl);
    assert_int_equal(mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID), 0);
    assert_int_equal(inet_pton(AF_INET, address, at), 1);
    head->nlmsg_type = RTM_NEWADDR;
    head->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK;
    info = mnl_nlmsg_put_extra_header(head, sizeof *info);
    info->ifa_family = AF_INET;
    info->ifa_prefixlen = plen;
    info->ifa_index = ifindex;
    mnl_attr_put(head, IFA_LOCAL, 4, at);
    mnl_attr_put(head, IFA_ADDRESS, 4, at);
    mnl_attr_put_u8(head, IFA_PROTO, PORTS_OWNER);
    assert_true(mnl_socket_sendto(nl, head, head->nlmsg_len) > 0);
    ssize_t n = mnl_socket_recvfrom(nl, buf, sizeof buf);
    assert_true(n > 0 && mnl_cb_run(buf, (size_t)n, 0, mnl_socket_get_portid(nl), NULL, NULL) >= 0);
    mnl_socket_close(nl);
}

static bool has_ours(const struct world *w)
{
    return prefix(w, "10.98.0.2", 31, true) && prefix(w, "10.98.0.4", 31, true);
}

static bool has_peer(const struct world *w)
{
    return prefix(w, "10.77.0.1", 24, false) && prefix(w, "10.66.0.1", 24, true);
}

static void routes_and_addresses(void **state)
{
    struct world w;

    (void)state;
    run("ip link add va type veth peer name vb; ip link set va up; ip link set vb up");
    run("ip link add br0 type bridge; ip addr add 172.17.0.1/16 dev br0; ip link set br0 up");
    open_world(&w, NULL, NULL);
    run("ip addr add 192.168.7.2/24 dev va; ip -6 addr add fd00:1::5/64 dev va nodad");
    run("ip route add default via 192.168.7.1; ip link set vb master br0; ip link set va mtu 9000");
    run("ip route add blackhole 10.9.0.0/16; ip -6 route add fd00:2::/48 via fd00:1::9; ip route add "
        "10.8.0.0/24 dev va table 77");
    assert_true(await(&w, has_default, WAIT_US) < WAIT_US);
    await(&w, is_gone, 100000); /* what is still under way */
    assert_non_null(prefix(&w, "192.168.7.2", 24, false));
    assert_int_equal(prefix(&w, "192.168.7.2", 24, false)->ifindex, named(&w, "va")->ifindex);
    assert_int_equal(prefix(&w, "192.168.7.2", 24, false)->family, AF_INET);
    assert_non_null(prefix(&w, "192.168.7.0", 24, true));
    assert_non_null(prefix(&w, "172.17.0.1", 16, false)); /* of an interface that is no port, too */
    assert_non_null(prefix(&w, "10.9.0.0", 16, true));
    assert_int_equal(prefix(&w, "10.9.0.0", 16, true)->ifindex, 0);
    assert_non_null(prefix(&w, "10.8.0.0", 24, true));
    assert_non_null(prefix(&w, "fd00:1::5", 64, false));
    assert_non_null(prefix(&w, "fd00:2::", 48, true));
    assert_null(prefix(&w, "0.0.0.0", 0, true));
    assert_false(port_is_usable(named(&w, "vb")));
    run("ip addr add 10.98.0.4/31 dev va");
    add_owned(named(&w, "va")->ifindex, "10.98.0.2", 31);
    assert_true(await(&w, has_ours, WAIT_US) < WAIT_US);
    assert_true(prefix(&w, "10.98.0.2", 31, false)->is_ours);
    assert_true(prefix(&w, "10.98.0.2", 31, true)->is_made);
    assert_false(prefix(&w, "10.8.0.0", 24, true)->is_made || prefix(&w, "10.9.0.0", 16, true)->is_made);
    assert_false(prefix(&w, "10.98.0.4", 31, false)->is_ours);
    assert_true(prefix(&w, "10.98.0.4", 31, true)->is_made);
    run("ip addr add 10.77.0.1 peer 10.66.0.1/24 dev va");
    assert_true(await(&w, has_peer, WAIT_US) < WAIT_US);
    run("ip link set va down"); /* its IPv4 routes go without a word */
    assert_true(await(&w, has_no_default, WAIT_US) < WAIT_US);
    assert_null(prefix(&w, "192.168.7.0", 24, true));
    close_world(&w);
}

static bool storm_is_over(const struct world *w)
{
    return named(w, "last") != NULL;
}

/* More notifications than the socket holds, while nobody reads. */
static void lost_notifications_do_no_harm(void **state)
{
    struct world w;

    (void)state;
    open_world(&w, "[dl]*", NULL); /* lo too */
    run("for i in $(seq 150); do echo link add d$i type bridge; echo link set d$i up; echo link del d$i; "
        "done "
        "|"
        " ip -batch - && ip link add d1 type bridge && ip link add last type bridge");
    assert_true(await(&w, storm_is_over, WAIT_US) < WAIT_US);
    assert_non_null(named(&w, "d1"));
    assert_int_equal(ports_count(w.ports), 3);
    assert_true(w.changes < 20);
    close_world(&w);
}

static void ids_are_unique(void **state)
{
    struct world w;

    (void)state;
    run("ip link add va address 02:00:00:00:00:01 type veth peer name vb address 02:00:00:00:00:01");
    run("ip link add vc type veth peer name vd");
    open_world(&w, NULL, NULL);
    assert_int_equal(ports_count(w.ports), 4);
    assert_memory_equal(named(&w, "va")->mac, named(&w, "vb")->mac, 6);
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(ports_at(w.ports, i)->port_id != ports_at(w.ports, k)->port_id);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_counts_as_a_port, fresh_namespace),
        cmocka_unit_test_setup(life_of_a_cable, fresh_namespace),
        cmocka_unit_test_setup(routes_and_addresses, fresh_namespace),
        cmocka_unit_test_setup(lost_notifications_do_no_harm, fresh_namespace),
        cmocka_unit_test_setup(ids_are_unique, fresh_namespace),
    };

    if (unshare(CLONE_NEWNET) < 0 || system("ip -V >/dev/null 2>&1") != 0) {
        puts("needs root (a network namespace) and iproute2");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
