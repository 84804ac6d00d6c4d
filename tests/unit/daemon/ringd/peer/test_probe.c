/* SPDX-License-Identifier: MIT
 *
 * Measuring cables, over simulated ones: both ends learn both rates, nobody measures two at once or
 * under a job, and whoever is left alone gives up and tries again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/peer/probe.h"

enum { NODES = 4, CABLES = 8, FLIGHTS = 512 };

struct flight {
    uint64_t at;
    unsigned to;
    uint64_t path;
    size_t n;
    uint8_t body[16];
};
struct world;
struct end {
    struct world *w;
    struct probe *probe;
    unsigned number;
    bool busy;
    size_t measured;
};
struct cable {
    unsigned a, b;
    uint64_t mbps[2], free_at[2]; /* a to b, b to a */
    bool cut;
};
struct world {
    uint64_t now, heavy;
    struct end end[NODES];
    struct cable cable[CABLES];
    size_t n, n_cables;
    struct flight flight[FLIGHTS];
};

static int send_over(void *owner, uint64_t path, const uint8_t *body, size_t n)
{
    struct end *e = owner;
    struct world *w = e->w;
    struct cable *c = &w->cable[path - 1];
    unsigned back = e->number == c->b;
    uint64_t start = c->free_at[back] > w->now ? c->free_at[back] : w->now;
    assert_true(path && path <= w->n_cables && w->n < FLIGHTS);
    w->heavy += n;
    c->free_at[back] = start + n * 8 / c->mbps[back];
    if (c->cut)
        return 0;
    struct flight *f = &w->flight[w->n++];
    *f = (struct flight){c->free_at[back] + 50, back ? c->a : c->b, path, n, {0}};
    memcpy(f->body, body, 16 < n ? 16 : n);
    return 0;
}

static bool idle(void *owner, const uint8_t peer[16])
{
    struct end *e = owner;
    return !e->busy && !e->w->end[peer[0] - 1].busy;
}

static void measured(void *owner, uint64_t cable)
{
    struct end *e = owner;
    (void)cable;
    e->measured++;
}

static const struct probe_ops ops = {send_over, idle, measured};

static void add_cable(struct world *w, unsigned a, unsigned b, uint64_t there, uint64_t back)
{
    uint8_t id_a[16] = {(uint8_t)(a + 1)}, id_b[16] = {(uint8_t)(b + 1)};
    w->cable[w->n_cables++] = (struct cable){a, b, {there, back}, {0, 0}, false};
    probe_up(w->end[a].probe, 100 + w->n_cables, w->n_cables, id_b, (struct instant){w->now});
    probe_up(w->end[b].probe, 100 + w->n_cables, w->n_cables, id_a, (struct instant){w->now});
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    for (unsigned i = 0; i < NODES; i++) {
        uint8_t id[16] = {(uint8_t)(i + 1)};
        w->end[i] = (struct end){.w = w, .number = i};
        w->end[i].probe = probe_new(id, i, &ops, &w->end[i]);
    }
    w->now = 1000000;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (unsigned i = 0; i < NODES; i++)
        probe_free(w->end[i].probe);
    free(w);
    return 0;
}

static void deliver(struct world *w, size_t i)
{
    static uint8_t body[PROBE_FRAME];
    struct flight f = w->flight[i];
    w->flight[i] = w->flight[--w->n];
    memcpy(body, f.body, sizeof f.body);
    probe_frame(w->end[f.to].probe, f.path, body, f.n, (struct instant){w->now});
}

/* Until `until`, event by event. */
static void run(struct world *w, uint64_t until)
{
    for (;;) {
        uint64_t next = until;
        size_t flight = SIZE_MAX;
        unsigned end = NODES;
        for (unsigned i = 0; i < NODES; i++)
            if (probe_due(w->end[i].probe).us < next) {
                next = probe_due(w->end[i].probe).us;
                end = i;
            }
        for (size_t i = 0; i < w->n; i++)
            if (w->flight[i].at <= next) {
                next = w->flight[i].at;
                flight = i;
            }
        w->now = next > w->now ? next : w->now;
        if (flight != SIZE_MAX)
            deliver(w, flight);
        else if (end < NODES)
            probe_tick(w->end[end].probe, (struct instant){w->now});
        else
            return;
    }
}

static void rates_are(struct world *w, unsigned end, uint64_t cable, uint64_t tx, uint64_t rx)
{
    struct probe_result r;
    assert_true(probe_result(w->end[end].probe, 100 + cable, &r));
    assert_in_range(r.tx_mbps, tx * 97 / 100, tx * 103 / 100);
    assert_in_range(r.rx_mbps, rx * 97 / 100, rx * 103 / 100);
}

static void both_ends_learn_both_rates(void **state)
{
    struct world *w = *state;
    static const uint64_t speeds[] = {10, 100, 1000, 10000, 20000};
    for (size_t i = 0; i < 5; i++)
        add_cable(w, 0, 1, speeds[i], speeds[4 - i]);
    assert_true(w->heavy == 0);
    run(w, w->now + PROBE_FIRST_US - 1);
    assert_true(w->heavy == 0); /* the ring forms first */
    run(w, w->now + 60 * (uint64_t)1000000);
    for (size_t i = 0; i < 5; i++) {
        rates_are(w, 0, i + 1, speeds[i], speeds[4 - i]);
        rates_are(w, 1, i + 1, speeds[4 - i], speeds[i]);
    }
    assert_int_equal(w->end[0].measured, 5);
    uint64_t once = w->heavy;
    run(w, w->now + PROBE_AGAIN_US / 2);
    assert_true(w->heavy == once);
    run(w, w->now + PROBE_AGAIN_US);
    assert_int_equal(w->end[1].measured, 10);
}

/* Over a good cable nothing is held up for long. */
static void a_measurement_is_short(void **state)
{
    struct world *w = *state;
    add_cable(w, 0, 1, 1000, 1000);
    run(w, w->now + 2 * PROBE_FIRST_US + 1000000);
    assert_int_equal(w->end[0].measured, 1);
    assert_in_range(w->heavy * 8 / 1000, 1, 2 * 120000); /* µs on the wire, both ways */
}

static void everybody_gets_a_turn(void **state)
{
    struct world *w = *state;
    for (unsigned i = 0; i < NODES; i++)
        add_cable(w, i, (i + 1) % NODES, 1000, 1000);
    run(w, w->now + 60 * (uint64_t)1000000);
    for (unsigned i = 0; i < NODES; i++) {
        assert_int_equal(w->end[i].measured, 2);
        rates_are(w, i, i + 1, 1000, 1000);
    }
}

/* Whoever is being measured says no to the next. */
static void one_at_a_time(void **state)
{
    struct world *w = *state;
    uint8_t ask[9] = {1};
    add_cable(w, 0, 2, 1000, 1000);
    add_cable(w, 1, 2, 1000, 1000);
    probe_frame(w->end[2].probe, 1, ask, sizeof ask, (struct instant){w->now});
    probe_frame(w->end[2].probe, 2, ask, sizeof ask, (struct instant){w->now});
    assert_int_equal(w->n, 2);
    assert_int_equal(w->flight[0].body[0], 2); /* yes */
    assert_int_equal(w->flight[1].body[0], 3); /* no */
    probe_frame(w->end[0].probe, 1, ask, sizeof ask,
                (struct instant){w->now}); /* nor to one who should not ask */
    assert_int_equal(w->flight[2].body[0], 3);
}

static void nothing_is_measured_under_a_job(void **state)
{
    struct world *w = *state;
    add_cable(w, 0, 1, 1000, 1000);
    w->end[1].busy = true;
    run(w, w->now + 30 * (uint64_t)1000000);
    assert_true(w->heavy == 0);
    w->end[1].busy = false;
    run(w, w->now + 2 * PROBE_RETRY_MAX_US);
    assert_int_equal(w->end[0].measured, 1);
    probe_again(w->end[0].probe, 101, (struct instant){w->now});
    run(w, probe_due(w->end[0].probe).us + 3000); /* a burst is on its way */
    uint64_t before = w->heavy;
    w->end[0].busy = true;
    run(w, w->now + 1000000);
    assert_int_equal(w->end[0].measured, 1);
    assert_true(w->heavy - before < 1000);
}

static void a_cable_that_dies_ends_it(void **state)
{
    struct world *w = *state;
    add_cable(w, 0, 1, 1000, 1000);
    add_cable(w, 0, 2, 1000, 1000);
    w->cable[0].cut = true; /* and nobody says so */
    run(w, w->now + 60 * (uint64_t)1000000);
    rates_are(w, 0, 2, 1000, 1000);
    assert_false(probe_result(w->end[0].probe, 101, &(struct probe_result){0}));
    assert_true(probe_is_up(w->end[0].probe, 101));
    probe_down(w->end[0].probe, 1, (struct instant){w->now});
    assert_false(probe_is_up(w->end[0].probe, 101));
    probe_down(w->end[0].probe, 2, (struct instant){w->now});
    assert_true(probe_result(w->end[0].probe, 102, &(struct probe_result){0})); /* it may come back */
    assert_true(probe_due(w->end[0].probe).us == UINT64_MAX);
}

/* Frames out of turn, short, and with numbers that do not add up. */
static void nonsense_is_dropped(void **state)
{
    struct world *w = *state;
    uint8_t body[16] = {0};
    add_cable(w, 0, 1, 1000, 1000);
    for (unsigned phase = 0; phase < 6; phase++) {
        for (unsigned kind = 0; kind < 256; kind++)
            for (unsigned number = 0; number < 4; number++) {
                memset(body, number == 3 ? 0xff : (int)number, sizeof body);
                body[0] = (uint8_t)kind;
                for (size_t n = 0; n < sizeof body; n += 5)
                    for (uint64_t path = 0; path < 3; path++)
                        probe_frame(w->end[phase % 2].probe, path, body, n, (struct instant){w->now});
                w->n = 0;
            }
        run(w, w->now + 1000000);
    }
    run(w, w->now + 300 * (uint64_t)1000000);
    rates_are(w, 0, 1, 1000, 1000);
}

/* As on a switch of many: what a node sends for measuring does not grow with the number of its
 * cables. */
static void many_cables_are_measured_more_seldom(void **state)
{
    struct world *w = *state;
    const uint64_t hour = UINT64_C(3600000000);
    size_t few, many;

    for (size_t i = 0; i < PROBE_USUAL; i++)
        add_cable(w, 0, 1, 1000, 1000);
    run(w, hour);
    few = w->end[0].measured;
    assert_in_range(few, PROBE_USUAL * 5, PROBE_USUAL * 6);
    for (size_t i = 0; i < PROBE_USUAL; i++)
        add_cable(w, 0, 1, 1000, 1000);
    run(w, 3 * hour); /* an hour to fall into step */
    many = w->end[0].measured;
    run(w, 4 * hour);
    assert_in_range(w->end[0].measured - many, few - PROBE_USUAL, few + PROBE_USUAL);
}

/* Nor is the first round of all of them a flood. */
static void of_many_cables_a_few_are_measured_at_once(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < CABLES; i++) {
        add_cable(w, 0, 1, 1000, 1000);
        run(w, w->now + PROBE_FIRST_US / 10);
    }
    assert_true(w->heavy == 0); /* they all come up first */
    run(w, w->now + PROBE_PACE_US - PROBE_FIRST_US);
    assert_int_equal(w->end[0].measured, PROBE_USUAL);
    assert_in_range(w->heavy, 1, PROBE_USUAL * 2 * UINT64_C(15000000)); /* as PROTOCOL.md says */
    for (size_t i = PROBE_USUAL; i < CABLES; i++) {
        size_t before = w->end[0].measured;
        run(w, w->now + PROBE_PACE_US);
        assert_in_range(w->end[0].measured, before, before + 1);
    }
    run(w, w->now + 2 * (uint64_t)PROBE_RETRY_MAX_US);
    assert_int_equal(w->end[0].measured, CABLES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_ends_learn_both_rates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_measurement_is_short, set_up, tear_down),
        cmocka_unit_test_setup_teardown(everybody_gets_a_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_measured_under_a_job, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cable_that_dies_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nonsense_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_cables_are_measured_more_seldom, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_many_cables_a_few_are_measured_at_once, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
