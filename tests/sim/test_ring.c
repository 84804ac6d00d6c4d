/* SPDX-License-Identifier: MIT
 *
 * 1,000 random networks of 3 to 12 whole nodes with cables, double cables and switches. Cables are
 * pulled, plugged and wiggled, cut without a word, made one-way and repaired; nodes crash, leave,
 * lose power, start again with a clock that was set forward or back, and grow slow. Soon after the
 * last event all nodes that can reach each other have computed the same ring of exactly themselves,
 * over exactly the cables that are there. usage: test_ring [SEED]: that one alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ring_world.h"

enum { S = 1000000, SEEDS = 1000, LOOK_US = 250000 };
/* A shared segment is silent for 17.5 s before it is given up; a dial that was swallowed meanwhile
 * ends after 16 s, a flapping cable rests for 30 s. */
enum { SETTLED_US = 75 * S };

static struct ring_world *random_network(uint64_t seed)
{
    struct ring_world *w =
        ring_world_new(seed, 3 + seed / 2 % (seed % 2 ? 10 : 5)); /* the large ones take longest */
    size_t n = w->nnodes;
    w->loss_percent = (unsigned)ring_world_random(w, 4);
    w->delay_us = 100 + ring_world_random(w, 20000);
    for (size_t i = 0; i < n; i++)
        ring_world_cable(w, i, (i + 1) % n);
    for (uint64_t more = ring_world_random(w, n); more > 0; more--) {
        size_t a = ring_world_random(w, n);
        ring_world_cable(w, a, (a + 1 + ring_world_random(w, n - 1)) % n);
    }
    if (!ring_world_random(w, 3)) {
        size_t hub = ring_world_segment(w);
        for (size_t i = 0; i < n; i++)
            if (ring_world_random(w, 2))
                ring_world_port(w, i, hub);
    }
    return w;
}

static void stop_or_start(struct ring_world *w, size_t node)
{
    static const enum ring_stop how[] = {RING_CRASH, RING_LEAVE, RING_POWER};
    if (w->nodes[node].is_on)
        ring_world_stop(w, node, how[ring_world_random(w, 3)]);
    else
        ring_world_start(w, node);
}

static void restart(struct ring_world *w, size_t node)
{
    if (w->nodes[node].is_on)
        ring_world_stop(w, node, ring_world_random(w, 2) ? RING_CRASH : RING_LEAVE);
    ring_world_run(w, ring_world_random(w, S));
    ring_world_start(w, node);
}

static void wiggle(struct ring_world *w, size_t segment)
{
    for (int i = 0; i < 4; i++) {
        ring_world_pull(w, segment);
        ring_world_run(w, ring_world_random(w, S));
        ring_world_plug(w, segment);
        ring_world_run(w, ring_world_random(w, 2 * S));
    }
}

static void something_happens(struct ring_world *w)
{
    size_t node = ring_world_random(w, w->nnodes), segment = ring_world_random(w, w->nsegments);
    struct ring_port *port = &w->ports[ring_world_random(w, w->nports)];
    switch (ring_world_random(w, 9)) {
    case 0: stop_or_start(w, node); break;
    case 1: restart(w, node); break;
    case 2: ring_world_pull(w, segment); break;
    case 3: ring_world_plug(w, segment); break;
    case 4: wiggle(w, segment); break;
    case 5: port->deaf = !port->deaf; break; /* with `mute`: a cut that no carrier tells of */
    case 6: port->mute = !port->mute; break;
    case 7: w->nodes[node].slow_us = w->nodes[node].slow_us ? 0 : ring_world_random(w, S); break;
    case 8:
        w->nodes[node].wall_us += (int64_t)ring_world_random(w, 7200 * (uint64_t)S) - 3600 * (int64_t)S;
        restart(w, node);
        break;
    }
}

/* The µs it took; UINT64_MAX: not in time. */
static uint64_t settle(struct ring_world *w)
{
    uint64_t since = w->now_us;
    while (!ring_world_agrees(w)) {
        if (w->now_us - since >= SETTLED_US || w->error)
            return UINT64_MAX;
        ring_world_run(w, LOOK_US);
    }
    return w->now_us - since;
}

static void fail_seed(struct ring_world *w, uint64_t seed, const char *when)
{
    static char text[4096];
    size_t len = (size_t)snprintf(text, sizeof text, "seed %lu, %s: %s\n", (unsigned long)seed, when,
                                  w->error ? w->error : "the nodes do not agree");
    ring_world_describe(w, text + len, sizeof text - len);
    ring_world_free(w);
    fail_msg("%s", text);
}

/* From the last event to the same ring on all nodes. */
static uint64_t one_seed(uint64_t seed)
{
    struct ring_world *w = random_network(seed);
    if (settle(w) == UINT64_MAX)
        fail_seed(w, seed, "at the beginning");
    for (uint64_t events = 3 + ring_world_random(w, 5); events > 0; events--) {
        ring_world_run(w, ring_world_random(w, 3 * S));
        something_happens(w);
    }
    uint64_t took = settle(w);
    if (took == UINT64_MAX || w->error)
        fail_seed(w, seed, "after the last event");
    ring_world_free(w);
    return took;
}

static void all_nodes_compute_the_same_ring(void **state)
{
    const uint64_t *only = *state;
    uint64_t worst = 0, sum = 0, worst_seed = 0;
    for (uint64_t seed = only ? *only : 1; seed <= (only ? *only : SEEDS); seed++) {
        uint64_t took = one_seed(seed);
        sum += took;
        worst_seed = took > worst ? seed : worst_seed;
        worst = took > worst ? took : worst;
    }
    print_message("the same ring after %.1f s on average, %.1f s at most (seed %lu)\n",
                  (double)sum / S / (only ? 1 : SEEDS), (double)worst / S, (unsigned long)worst_seed);
}

int main(int argc, char **argv)
{
    uint64_t only = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(all_nodes_compute_the_same_ring, argc > 1 ? &only : NULL),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
