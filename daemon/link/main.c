/* SPDX-License-Identifier: MIT
 *
 * ringd-link: the one program of ringd that may change the machine's network,
 * and only so much of it as a cable needs: a link up, its MTU, leased addresses
 * of the cables' own networks. This file: options and privileges; it keeps
 * CAP_NET_ADMIN and drops everything else before it reads its first request. It
 * writes nothing to disk. */
#include "daemon/link/link_helper.h"

#include <errno.h>
#include <event2/event.h>
#include <getopt.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int complain(const char *fmt, ...)
{
    va_list args;

    fputs("ringd-link: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return -1;
}

static int usage(void)
{
    puts("Usage: ringd-link [OPTIONS]\n\n"
         "Sets up cables for ringd(8): link up, MTU, leased addresses. Needs "
         "CAP_NET_ADMIN and nothing "
         "else.\n\n"
         "  --socket PATH       where ringd asks                     [" RLINK_PATH "]\n"
         "  --uid USER          name or number of who may ask        [the user "
         "it runs as]\n"
         "  --ula PREFIX        the cluster's /48; else ringd says, once\n"
         "  --ipv4-pool PREFIX  the pool of the cables' /31s; else ringd says, "
         "once\n"
         "  --help");
    return 0;
}

static int parse_user(const char *text, uid_t *ret)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    struct passwd who, *found = NULL;
    char room[4096];

    if (*text >= '0' && *text <= '9' && *end == '\0' && number < UINT32_MAX) {
        *ret = (uid_t)number;
        return 0;
    }
    if (getpwnam_r(text, &who, room, sizeof room, &found) != 0 || !found)
        return complain("--uid %s: there is no such user", text);
    *ret = found->pw_uid;
    return 0;
}

static int parse_scope(const char *option, const char *text, uint8_t family, struct prefix *ret)
{
    if (prefix_parse(ret, text) == 0 && ret->family == family && rlink_is_scope(ret))
        return 0;
    return complain("--%s %s: give %s", option, text,
                    family == AF_INET ? "an IPv4 network like 10.98.0.0/16" : "a /48 under fd00::/8");
}

static int parse_options(struct serve_setup *ret, bool *ret_help, int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'}, {"uid", required_argument, NULL, 'u'},
        {"ula", required_argument, NULL, '6'},    {"ipv4-pool", required_argument, NULL, '4'},
        {"help", no_argument, NULL, 'h'},         {0},
    };
    int option, r = 0;

    while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) >= 0)
        switch (option) {
        case 's': ret->path = optarg; break;
        case 'u': r = parse_user(optarg, &ret->uid); break;
        case '6': r = parse_scope("ula", optarg, AF_INET6, &ret->ula); break;
        case '4': r = parse_scope("ipv4-pool", optarg, AF_INET, &ret->pool); break;
        case 'h': *ret_help = true; return 0;
        default: return -1;
        }
    if (r == 0 && optind < argc)
        return complain("%s: options only", argv[optind]);
    return r;
}

/* A service has no other from the start, and may not even ask for fewer. */
static bool holds_only(unsigned mask)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[2] = {{0}};

    return syscall(SYS_capget, &head, has) == 0 && has[0].effective == mask && has[0].permitted == mask &&
           !has[1].permitted;
}

/* Keeps CAP_NET_ADMIN, in this program only: nothing it could start would have
 * it. */
static int drop_privileges(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2] = {{0}};
    const unsigned mask = 1u << CAP_NET_ADMIN;
    const struct rlimit no_core = {0};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return complain("no_new_privs cannot be set: %s", strerror(errno));
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        if (cap != CAP_NET_ADMIN)
            prctl(PR_CAPBSET_DROP, cap, 0, 0,
                  0); /* needs CAP_SETPCAP; without it there is nothing to gain anyway
                       */
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    caps[0].effective = caps[0].permitted = mask;
    if (!holds_only(mask) && syscall(SYS_capset, &head, caps) < 0)
        return complain("CAP_NET_ADMIN is missing (%s): start ringd-link by its "
                        "service, or as root",
                        strerror(errno));
    setrlimit(RLIMIT_CORE, &no_core);
    return 0;
}

static void on_signal(evutil_socket_t number, short what, void *arg)
{
    (void)number;
    (void)what;
    event_base_loopbreak(arg);
}

static int run(struct serve_setup *setup)
{
    static const int signals[] = {SIGTERM, SIGINT};
    struct event *stop[2] = {NULL, NULL};
    struct serve *serve = NULL;
    int r = setup->base ? 0 : -ENOMEM;

    if (r == 0)
        r = kernel_open(&setup->kernel);
    if (r < 0)
        complain("netlink: %s", strerror(-r));
    else if ((r = serve_open(&serve, setup)) < 0)
        complain("%s: %s", setup->path,
                 r == -EADDRINUSE ? "another ringd-link answers here; stop it or "
                                    "give another --socket"
                                  : strerror(-r));
    for (size_t i = 0; r == 0 && i < 2; i++) {
        stop[i] = evsignal_new(setup->base, signals[i], on_signal, setup->base);
        r = stop[i] && event_add(stop[i], NULL) == 0 ? 0 : -ENOMEM;
    }
    if (r == 0)
        r = drop_privileges();
    if (r == 0)
        r = event_base_dispatch(setup->base);
    for (size_t i = 0; i < 2; i++)
        if (stop[i])
            event_free(stop[i]);
    serve_close(serve);
    kernel_close(setup->kernel);
    return r;
}

int main(int argc, char **argv)
{
    struct serve_setup setup = {.path = RLINK_PATH, .uid = geteuid()};
    bool help = false;
    int r;

    signal(SIGPIPE, SIG_IGN);
    if (parse_options(&setup, &help, argc, argv) < 0)
        return 2;
    if (help)
        return usage();
    setup.base = event_base_new();
    r = run(&setup);
    if (setup.base)
        event_base_free(setup.base);
    return r < 0;
}
