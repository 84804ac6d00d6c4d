/* SPDX-License-Identifier: MIT
 *
 * What tests/netns/helper.sh drives ringd-link with.
 *
 *   link_client ask SOCKET VERB IFINDEX VALUE PREFIX     one request as it is ("-" = no prefix):
 *   "CODE SENTENCE", and a line for each address listed link_client hold SOCKET LEASE ULA POOL
 *   IFINDEX MTU PREFIX...
 *                                                        a linkctl that wants the port up, its MTU
 *                                                        and the addresses; says what changes;
 *                                                        SIGUSR1: addresses changed; SIGUSR2:
 *                                                        nothing is wanted any more */
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/ringd/peer/cable_client.h"

static const char *const codes[] = {
    [RLINK_OK] = "ok",
    [RLINK_BAD_REQUEST] = "bad-request",
    [RLINK_NO_SCOPE] = "no-scope",
    [RLINK_OUT_OF_SCOPE] = "out-of-scope",
    [RLINK_SCOPE_FIXED] = "scope-fixed",
    [RLINK_NO_PORT] = "no-port",
    [RLINK_NOT_CABLE] = "not-cable",
    [RLINK_NOT_OURS] = "not-ours",
    [RLINK_KERNEL] = "kernel",
    [RLINK_TOO_MANY] = "too-many",
    [RLINK_DENIED] = "denied",
};

static struct prefix parse(const char *text)
{
    struct prefix p = {0};

    if (strcmp(text, "-") != 0 && prefix_parse(&p, text) < 0) {
        fprintf(stderr, "%s: no prefix\n", text);
        exit(2);
    }
    return p;
}

static int ask(char **argv)
{
    struct rlink_request r = {.verb = (enum rlink_verb)atoi(argv[1]),
                              .seq = 1,
                              .ifindex = (uint32_t)atoi(argv[2]),
                              .value = (uint32_t)atoi(argv[3]),
                              .addr = parse(argv[4])};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    uint8_t out[RLINK_REQUEST], in[RLINK_REPLY + 1];
    struct rlink_reply a;

    snprintf(at.sun_path, sizeof at.sun_path, "%s", argv[0]);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0) {
        printf("unreachable %s\n", strerror(errno));
        return 1;
    }
    rlink_request_encode(&r, out);
    (void)!send(fd, out, sizeof out, MSG_NOSIGNAL);
    do {
        char text[PREFIX_TEXT];
        ssize_t n = recv(fd, in, sizeof in, 0);

        if (n < 0 && errno == ECONNRESET) /* told once, before what was said last */
            n = recv(fd, in, sizeof in, 0);
        if (n <= 0 || rlink_reply_decode(in, (size_t)n, &a) < 0) {
            printf("no-answer\n");
            return 1;
        }
        prefix_format(&a.to.addr, text);
        if (a.more)
            printf("%s on %u\n", text, a.to.ifindex);
        else
            printf("%s %s\n", codes[a.code], a.text);
    } while (a.more);
    return a.code != RLINK_OK;
}

static void on_changed(void *owner)
{
    struct linkctl **l = owner;

    printf("problem: %s\n", linkctl_problem(*l) ? linkctl_problem(*l) : "none");
    for (size_t i = 0; i < linkctl_count(*l); i++) {
        struct linkctl_state s;
        char text[PREFIX_TEXT];

        linkctl_at(*l, i, &s);
        prefix_format(&s.want.addr, text);
        printf("  %s %s: %s %s\n", rlink_verb_name(s.want.verb), s.want.addr.family ? text : "",
               s.is_set ? "set" : "not set", s.reason ? s.reason : "");
    }
    fflush(stdout);
}

static void on_recheck(evutil_socket_t number, short what, void *arg)
{
    (void)number;
    (void)what;
    linkctl_recheck(*(struct linkctl **)arg);
}

static void on_unwant(evutil_socket_t number, short what, void *arg)
{
    (void)number;
    (void)what;
    linkctl_want(*(struct linkctl **)arg, NULL, 0);
}

static int hold(int argc, char **argv)
{
    struct event_base *base = event_base_new();
    struct linkctl *l = NULL;
    struct linkctl_setup setup = {base, argv[0], (uint32_t)atoi(argv[1]), on_changed, &l};
    struct prefix ula = parse(argv[2]), pool = parse(argv[3]);
    uint32_t ifindex = (uint32_t)atoi(argv[4]);
    struct linkctl_want want[16] = {
        {.verb = RLINK_SET_UP, .ifindex = ifindex},
        {.verb = RLINK_SET_MTU, .ifindex = ifindex, .mtu = (uint32_t)atoi(argv[5])}};
    size_t n = 2;

    for (int i = 6; i < argc && n < 16; i++)
        want[n++] = (struct linkctl_want){.verb = RLINK_ADDR_ADD, .ifindex = ifindex, .addr = parse(argv[i])};
    if (linkctl_open(&l, &setup) < 0)
        return 1;
    event_add(evsignal_new(base, SIGUSR1, on_recheck, &l), NULL);
    event_add(evsignal_new(base, SIGUSR2, on_unwant, &l), NULL);
    linkctl_scope(l, &ula, pool.family ? &pool : NULL);
    linkctl_want(l, want, n);
    return event_base_dispatch(base);
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "ask") == 0)
        return ask(argv + 2);
    if (argc >= 8 && strcmp(argv[1], "hold") == 0)
        return hold(argc - 2, argv + 2);
    fprintf(stderr, "usage: see the source\n");
    return 2;
}
