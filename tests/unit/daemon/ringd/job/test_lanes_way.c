/* SPDX-License-Identifier: MIT
 *
 * A data connection for which no other node knows a way: lanes.c with a real relay.c below it, and
 * a network without paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/lanes.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/peer/relay.h"

/* --- a node without neighbours ---------------------------------------------------------------- */

static struct event_base *base;
static char said[400];
static unsigned lines, asked;

size_t peers_paths(struct peers *p, const uint8_t id[16], struct path ret[PEERS_MAX_PATHS])
{
    (void)p, (void)id, (void)ret;
    return 0;
}

void peers_turn_path(struct peers *p, uint64_t path)
{
    (void)p, (void)path;
}

void peers_setup(struct peers *p, struct link_setup *ret)
{
    (void)p, (void)ret;
}

bool peers_path_name(struct peers *p, uint64_t path, struct path_name *ret)
{
    (void)p, (void)path, (void)ret;
    return false;
}

void log_about(enum log_level level, const struct log_about *about, const char *fmt, ...)
{
    va_list ap;
    (void)level;
    assert_int_equal(about->job, 7);
    va_start(ap, fmt);
    vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    lines++;
}

static int no_way(void *owner, const uint8_t to[16], struct relay_hop *ret)
{
    (void)owner, (void)to, (void)ret;
    if (++asked == 3)
        event_base_loopbreak(base);
    return -EHOSTUNREACH;
}

static const char *name_of(void *owner, const uint8_t *id)
{
    (void)owner;
    return id ? "b" : "a";
}

/* --- what it says ----------------------------------------------------------------------------- */

/* It asks again and again, and says once why there is no way. */
static void no_way_is_said_once(void **state)
{
    static const struct lanes_ops ops = {0};
    static const struct member self = {.name = "a"};
    static const uint8_t to[16] = {1};
    const struct link_hello hello = {.job = 7, .to_rank = 1};
    (void)state;
    base = event_base_new();
    const struct relay_setup ways = {.base = base, .next = no_way, .name = name_of};
    struct relay *relay = relay_new(&ways);
    struct members *members = members_new(&self);
    const struct lanes_setup setup = {.base = base, .members = members, .relay = relay, .ops = &ops};
    struct lanes *lanes = lanes_new(&setup);
    lanes_start(lanes, to, &hello, true);
    event_base_dispatch(base);
    assert_int_equal(asked, 3);
    assert_string_equal(said,
                        "the next rank cannot be reached through other nodes: no way leads from a to b");
    assert_int_equal(lines, 1);
    lanes_free(lanes);
    relay_free(relay);
    members_free(members);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_way_is_said_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
