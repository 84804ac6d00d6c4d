/* SPDX-License-Identifier: MIT
 *
 * 1,000 random networks of 2 to 8 nodes with cables, switches and double cards; beacons get lost;
 * nodes are killed, leave and return, plugs are pulled, cables turn one-way and back. Soon after
 * the last event every node sees exactly the cables that are there, and at no time anything that
 * makes no sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "tests/lib/beacon_world.h"

enum { S = 1000000, SEEDS = 1000, EVENTS = 6 };

static struct world *random_network(uint64_t seed)
{
    struct world *w = world_new(seed);
    size_t n = 2 + world_random(w) % 7, switches = world_random(w) % 3;

    w->loss_percent = (unsigned)(world_random(w) % 11);
    w->delay_us = 100 + world_random(w) % 30000;
    for (size_t i = 0; i < n; i++)
        world_node(w);
    for (size_t i = 0; i < n; i++) /* a ring, with doubled cables */
        for (uint64_t k = 0; k <= world_random(w) % 2; k++)
            world_cable(w, i, (i + 1) % n);
    for (size_t i = 0; i < switches; i++) {
        size_t sw = world_segment(w);

        for (size_t k = 0; k < n; k++)
            for (uint64_t cards = world_random(w) % 3; cards > 0; cards--)
                world_plug(w, k, sw);
    }
    return w;
}

static void something_happens(struct world *w)
{
    size_t node = world_random(w) % w->nnodes, port = world_random(w) % w->nports;

    switch (world_random(w) % 6) {
    case 0:
        if (w->nodes[node].is_on)
            world_kill(w, node);
        break;
    case 1:
        if (w->nodes[node].is_on)
            world_leave(w, node);
        break;
    case 2:
        if (w->nodes[node].is_on)
            world_kill(w, node);
        world_start(w, node);
        break;
    case 3: world_pull(w, port); break;
    case 4: w->ports[port].deaf = !w->ports[port].deaf; break;
    case 5: w->ports[port].mute = !w->ports[port].mute; break;
    }
}

static void all_nodes_see_what_is_there(void **state)
{
    uint64_t worst = 0, first = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world *w = random_network(seed);
        uint64_t took = world_run_until_true(w, 10 * S);

        first = took > first ? took : first;
        for (size_t i = 0; i < EVENTS; i++) {
            world_run(w, world_random(w) % (3 * S));
            something_happens(w);
        }
        if (took != UINT64_MAX)
            took = world_run_until_true(w, 60 * S);
        worst = took > worst ? took : worst;
        if (took == UINT64_MAX || w->error)
            fail_msg("seed %lu: %s", seed, w->error ? w->error : "the nodes do not see what is there");
        world_free(w);
    }
    print_message("%d seeds: true after at most %.2f s, after events %.2f s\n", SEEDS, (double)first / S,
                  (double)worst / S);
}

/* Losses alone, of one in ten, hardly ever take a cable down: three in a row, in one direction. */
static void losses_do_little(void **state)
{
    struct world *w = world_new(4711);
    size_t a = world_node(w), b = world_node(w);
    unsigned downs;

    (void)state;
    world_cable(w, a, b);
    w->loss_percent = 10;
    world_run(w, UINT64_C(3600) * S);
    downs = w->nodes[a].downs + w->nodes[b].downs;
    print_message("one hour, 10 %% lost: %u times down\n", downs);
    assert_true(downs <= 20);
    assert_null(w->error);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_nodes_see_what_is_there),
        cmocka_unit_test(losses_do_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
