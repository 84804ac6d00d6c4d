/* SPDX-License-Identifier: MIT
 *
 * The finder over real sockets: this process in one network namespace, a child in another, two or
 * three veth cables.
 *
 *     here   va ═ vb   there
 *            vc ═ vd
 *
 * Skipped without the right to make namespaces. The child tells its events through a pipe, a letter
 * each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/finder.h"

enum { S = 1000000 };

struct side {
    struct event_base *base;
    struct ports *ports;
    struct finder *finder;
    unsigned ups, downs, asks, sealed;
    enum cable_end end;
    struct cable cable; /* the last that came up */
    uint8_t asked[16];
    char command; /* the child: to be obeyed */
    int tell;     /* the child's pipe; −1 here */
};

static void tell(struct side *side, char letter)
{
    if (side->tell >= 0 && write(side->tell, &letter, 1) != 1)
        _exit(1);
    event_base_loopbreak(side->base);
}

static void on_up(void *owner, const struct cable *cable)
{
    struct side *side = owner;

    side->ups++;
    side->cable = *cable;
    tell(side, 'u');
}

static void on_changed(void *owner, const struct cable *cable)
{
    (void)owner, (void)cable;
}

static void on_down(void *owner, const struct cable *cable, enum cable_end end)
{
    struct side *side = owner;

    (void)cable;
    side->downs++;
    side->end = end;
    tell(side, "SOLRPCV"[end]);
}

static void on_trouble(void *owner, const struct cable *with, enum neighbour_state state)
{
    (void)owner, (void)with, (void)state;
}

static void on_ask(void *owner, unsigned ifindex, const struct in6_addr *from, enum beacon_type type,
                   const uint8_t *body, size_t n)
{
    struct side *side = owner;

    assert_true(ifindex > 0 && IN6_IS_ADDR_LINKLOCAL(from) && type == BEACON_JOINQ && n == 16);
    memcpy(side->asked, body, 16);
    side->asks++;
    tell(side, 'q');
}

static void on_sealed(void *owner, unsigned ifindex, unsigned generation)
{
    struct side *side = owner;

    assert_true(ifindex > 0 && (generation == 3 || generation == 7));
    side->sealed += generation == 7;
}

static const struct finder_ops finder_ops = {
    .beacons = {on_up, on_changed, on_down, on_trouble, NULL}, .ask = on_ask, .sealed = on_sealed};

static void on_ports(void *owner)
{
    struct side *side = owner;

    if (side->finder)
        finder_update(side->finder);
    event_base_loopbreak(side->base);
}
static const struct ports_ops ports_ops = {on_ports};

static void open_ports(struct side *side, int pipe_end)
{
    static const struct ports_policy policy;

    memset(side, 0, sizeof *side);
    side->tell = pipe_end;
    side->base = event_base_new();
    if (!side->base || ports_open(&side->ports, side->base, &policy, &ports_ops, side) < 0)
        abort();
}

/* generation 0: not enrolled */
static void open_finder(struct side *side, uint8_t number, uint8_t generation)
{
    struct beacon_key key = {.id = generation, .key = {1, 2, generation}};
    struct finder_setup setup = {.base = side->base,
                                 .ports = side->ports,
                                 .self = {.node_id = {number},
                                          .boot = number,
                                          .name = "node",
                                          .tcp_port = (uint16_t)(1000 + number),
                                          .proto_min = 1,
                                          .proto_max = 1},
                                 .key = generation ? &key : NULL,
                                 .ops = &finder_ops,
                                 .owner = side};

    if (finder_open(&side->finder, &setup) < 0)
        abort();
}

static void close_side(struct side *side)
{
    finder_close(side->finder);
    ports_close(side->ports);
    event_base_free(side->base);
}

/* One turn of the loop, at most until `us` from now. */
static void turn(struct side *side, uint64_t us)
{
    struct timeval tv = {(time_t)(us / S), (suseconds_t)(us % S)};

    event_base_loopexit(side->base, &tv);
    event_base_dispatch(side->base);
}

static void turn_for(struct side *side, uint64_t us)
{
    struct instant start = clock_now();
    uint64_t gone;

    while ((gone = clock_since_us(clock_now(), start)) < us)
        turn(side, us - gone);
}

/* Until n cables have come up and m gone down since the beginning; the µs that took. */
static uint64_t await(struct side *side, unsigned ups, unsigned downs, uint64_t most_us)
{
    struct instant start = clock_now();

    while (side->ups < ups || side->downs < downs) {
        if (clock_since_us(clock_now(), start) >= most_us)
            return UINT64_MAX;
        turn(side, most_us);
    }
    return clock_since_us(clock_now(), start);
}

static size_t usable_ports(const struct side *side)
{
    size_t n = 0;

    for (size_t i = 0; i < ports_count(side->ports); i++)
        n += port_is_usable(ports_at(side->ports, i));
    return n;
}

static void await_ports(struct side *side, size_t n)
{
    struct instant start = clock_now();

    while (usable_ports(side) < n && clock_since_us(clock_now(), start) < 10 * S)
        turn(side, S);
}

/* --- the other side --- */

struct there {
    pid_t pid;
    int tells, obeys;
};

static void on_command(evutil_socket_t fd, short what, void *arg)
{
    struct side *side = arg;

    (void)what;
    if (read((int)fd, &side->command, 1) != 1)
        _exit(0);
    event_base_loopbreak(side->base);
}

/* Letters: 'p' wait for two ports, 'f' find, 'F' find without being enrolled, 'n' find with a newer
 * key, 'q' ask, 'x' leave. */
static void obey(struct side *side, char letter)
{
    switch (letter) {
    case 'p': await_ports(side, 2); break;
    case 'f': open_finder(side, 2, 3); break;
    case 'F': open_finder(side, 2, 0); break;
    case 'n': open_finder(side, 2, 7); break;
    case 'q': finder_ask(side->finder, 0, BEACON_JOINQ, "0123456789abcdef", 16); break;
    case 'x': finder_close(side->finder); _exit(0);
    }
    if (write(side->tell, ".", 1) != 1)
        _exit(1);
}

static void child(int tells, int obeys)
{
    struct side side;

    if (unshare(CLONE_NEWNET) < 0 || write(tells, ".", 1) != 1)
        _exit(1);
    open_ports(&side, tells);
    event_add(event_new(side.base, obeys, EV_READ | EV_PERSIST, on_command, &side), NULL);
    for (;;) {
        event_base_dispatch(side.base);
        if (side.command)
            obey(&side, side.command);
        side.command = 0;
    }
}

/* The next letter; '-' if there is none within `ms`. Our own side goes on meanwhile. */
static char hear(const struct there *there, struct side *here, int ms)
{
    struct pollfd fd = {.fd = there->tells, .events = POLLIN};
    struct instant start = clock_now();
    char letter;

    while (poll(&fd, 1, here ? 0 : ms) != 1) {
        if (!here || clock_since_us(clock_now(), start) >= (uint64_t)ms * 1000)
            return '-';
        turn(here, S / 100);
    }
    return read(there->tells, &letter, 1) == 1 ? letter : '-';
}

static void command(const struct there *there, char letter)
{
    assert_int_equal(write(there->obeys, &letter, 1), 1);
}

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
    char line[256];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (system(line) != 0)
        fail_msg("%s", line);
}

static void start_child(struct there *there)
{
    int up[2], down[2];

    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    there->pid = fork();
    assert_true(there->pid >= 0);
    if (there->pid == 0) {
        close(up[0]);
        close(down[1]);
        child(up[1], down[0]);
    }
    close(up[1]);
    close(down[0]);
    there->tells = up[0];
    there->obeys = down[1];
    assert_int_equal(hear(there, NULL, 5000), '.');
}

static void end_child(struct there *there)
{
    kill(there->pid, SIGKILL);
    waitpid(there->pid, NULL, 0);
    close(there->tells);
    close(there->obeys);
}

/* Without waiting for the check of its address where that can be left out; /proc/sys may be
 * read-only. */
static void bring_up(const char *inside, char name)
{
    run("%s sh -c 'echo 0 >/proc/sys/net/ipv6/conf/v%c/accept_dad' 2>/dev/null || true", inside, name);
    run("%s ip link set v%c up", inside, name);
}

/* Two cables, addresses checked, nobody looking yet. */
static void begin(struct there *there, struct side *here)
{
    char inside[64];

    assert_int_equal(unshare(CLONE_NEWNET), 0);
    start_child(there);
    for (const char *name = "ac"; *name; name++) {
        run("ip link add v%c type veth peer name v%c netns %d", *name, *name + 1, there->pid);
        bring_up("", *name);
        snprintf(inside, sizeof inside, "nsenter -t %d -n", there->pid);
        bring_up(inside, *name + 1);
    }
    command(there, 'p');
    open_ports(here, -1);
    await_ports(here, 2);
    assert_int_equal(usable_ports(here), 2);
    assert_int_equal(hear(there, here, 10000), '.');
}

/* --- tests --- */

static void cables_are_found_and_lost(void **state)
{
    struct neighbour_view view[4];
    struct finder_stats stats;
    struct instant start;
    struct there there;
    struct side here;
    uint64_t took;

    (void)state;
    begin(&there, &here);
    command(&there, 'f');
    assert_int_equal(hear(&there, &here, 1000), '.');
    open_finder(&here, 1, 3);
    took = await(&here, 2, 0, 5 * S);
    print_message("two cables after %lu ms\n", took / 1000);
    assert_true(took < 2 * S);
    assert_int_equal(hear(&there, &here, 2000), 'u');
    assert_int_equal(hear(&there, &here, 2000), 'u');
    assert_int_equal(here.cable.node_id[0], 2);
    assert_int_equal(here.cable.tcp_port, 1002);
    assert_false(here.cable.shared);
    assert_int_equal(finder_neighbours(here.finder, view, 4), 2);
    assert_int_equal(finder_port_error(here.finder, here.cable.ifindex), 0);
    assert_int_equal(finder_port_error(here.finder, 999), -ENODEV);

    turn_for(&here, 1100000); /* the kernel itself tells of carriers at most once a second */
    start = clock_now();
    run("nsenter -t %d -n ip link set vb down", there.pid);
    assert_true(await(&here, 0, 1, 2 * S) < 2 * S); /* silence would take longer */
    print_message("cut noticed %lu ms after the command began\n", clock_since_us(clock_now(), start) / 1000);
    assert_int_equal(here.end, CABLE_END_PORT); /* by carrier, not by silence */
    assert_int_equal(hear(&there, &here, 500), 'P');

    run("nsenter -t %d -n ip link set vb up", there.pid);
    assert_true(await(&here, 3, 0, 10 * S) < 10 * S); /* most of it is the kernel checking its address */
    assert_int_equal(hear(&there, &here, 5000), 'u');

    command(&there, 'x'); /* both say goodbye */
    assert_true(await(&here, 0, 3, 2 * S) < 500000);
    assert_int_equal(here.end, CABLE_END_LEFT);
    finder_stats(here.finder, &stats);
    assert_true(stats.in > 0 && stats.out > 0 && stats.in_bytes > stats.in * 80);
    assert_int_equal(stats.dropped, 0);
    end_child(&there);
    close_side(&here);
}

static void silence_of_the_dead(void **state)
{
    struct there there;
    struct side here;
    uint64_t took;

    (void)state;
    begin(&there, &here);
    command(&there, 'f');
    open_finder(&here, 1, 3);
    assert_true(await(&here, 2, 0, 5 * S) < 2 * S);
    kill(there.pid, SIGSTOP); /* carrier stays */
    took = await(&here, 0, 2, 10 * S);
    assert_in_range(took, 2 * S, 4 * S);
    assert_int_equal(here.end, CABLE_END_SILENT);
    end_child(&there);
    close_side(&here);
}

static void strangers_can_ask_and_nothing_else(void **state)
{
    struct there there;
    struct side here;

    (void)state;
    begin(&there, &here);
    command(&there, 'F');
    assert_int_equal(hear(&there, &here, 1000), '.');
    open_finder(&here, 1, 3);
    assert_true(await(&here, 1, 0, 1 * S) == UINT64_MAX);
    command(&there, 'q');
    for (int i = 0; i < 20 && here.asks < 2; i++)
        turn(&here, S / 10);
    assert_int_equal(here.asks, 2); /* over both cables */
    assert_memory_equal(here.asked, "0123456789abcdef", 16);
    assert_int_equal(finder_ask(here.finder, 0, BEACON_HELLO, "", 0), -EINVAL);
    assert_int_equal(finder_ask(here.finder, 0, BEACON_JOINQ, "0123456789abcdef", 16), 2);
    assert_int_equal(hear(&there, &here, 1000), '.'); /* of 'q' */
    assert_int_equal(hear(&there, &here, 1000), 'q');
    end_child(&there);
    close_side(&here);
}

static void a_key_we_do_not_have_is_told(void **state)
{
    struct there there;
    struct side here;

    (void)state;
    begin(&there, &here);
    open_finder(&here, 1, 3);
    command(&there, 'n');
    for (int i = 0; i < 50 && here.sealed < 2; i++)
        turn(&here, S / 10);
    assert_true(here.sealed >= 2);
    assert_int_equal(here.ups, 0);
    end_child(&there);
    close_side(&here);
}

/* Sends with the given hop limit out of our own end of a cable; the receiving end is here too. */
static void shout(const char *device, int hops, size_t n)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(FINDER_PORT)};
    static uint8_t data[9000];
    int fd = socket(AF_INET6, SOCK_DGRAM, 0), index = (int)if_nametoindex(device);

    assert_int_equal(inet_pton(AF_INET6, "ff02::7269:6e67", &to.sin6_addr), 1);
    to.sin6_scope_id = (uint32_t)index;
    assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index), 0);
    assert_int_equal(sendto(fd, data, n, 0, (struct sockaddr *)&to, sizeof to), (ssize_t)n);
    close(fd);
}

static void what_was_routed_or_is_too_long_is_dropped(void **state)
{
    struct finder_stats stats;
    struct side here;

    (void)state;
    assert_int_equal(unshare(CLONE_NEWNET), 0);
    run("ip link add va type veth peer name vb; ip link set va up; ip link set vb up");
    open_ports(&here, -1);
    await_ports(&here, 2);
    open_finder(&here, 1, 3);
    turn_for(&here, S); /* both ports are ours: one segment, no cable */
    assert_int_equal(here.ups, 0);
    finder_stats(here.finder, &stats);
    assert_int_equal(stats.dropped, 0);
    assert_true(stats.beacons.taken > 0);
    shout("va", 255, 100);
    shout("va", 254, 100);
    shout("va", 1, 100);
    shout("va", 255, BEACON_MAX + 1);
    turn_for(&here, S / 2);
    finder_stats(here.finder, &stats);
    assert_in_range(stats.beacons.garbage, 1, 2); /* multicast comes back to the sender's own port too */
    assert_true(stats.dropped >= 3);
    close_side(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cables_are_found_and_lost),
        cmocka_unit_test(silence_of_the_dead),
        cmocka_unit_test(strangers_can_ask_and_nothing_else),
        cmocka_unit_test(a_key_we_do_not_have_is_told),
        cmocka_unit_test(what_was_routed_or_is_too_long_is_dropped),
    };

    if (unshare(CLONE_NEWNET) < 0 || system("ip -V >/dev/null 2>&1") != 0) {
        puts("needs root (network namespaces) and iproute2");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
