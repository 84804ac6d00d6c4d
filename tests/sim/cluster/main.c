/* SPDX-License-Identifier: MIT
 *
 * Runs worlds of the simulation, each drawn from a seed. usage: simulate [-n WORLDS] [-s SEED]: so
 * many, from that seed on; simulate SEED: that one, with all that happens in it. */
#include "tests/sim/cluster/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"

enum { LONGEST_US = 4000, GRACE_US = 30 };

struct sim *sim;

static void run(uint64_t until_us)
{
    while (!*sim->wrong && sim_step(until_us))
        ;
    if (sim->now_us < until_us)
        sim->now_us = until_us;
}

bool sim_run(uint64_t seed, bool is_traced)
{
    sim->seed = sim->random = seed;
    sim->is_traced = is_traced;
    struct acts *story = sim_story_begin();
    const uint64_t limit_us = sim->heals_us + (uint64_t)LONGEST_US * SIM_S;
    while (!*sim->wrong && sim->now_us < limit_us && !sim_check_is_over())
        run(sim->now_us + SIM_S);
    if (!*sim->wrong)
        run(sim->now_us + (uint64_t)GRACE_US * SIM_S);
    if (!*sim->wrong)
        sim_check_end();
    for (size_t i = 0; i < sim->nodes; i++)
        sim_daemon_kill(&sim->at[i], true);
    sim_data_free();
    sim_net_free();
    for (size_t i = 0; i < sim->nodes; i++)
        sim_disk_free(sim->at[i].disk);
    sim_story_free(story);
    sim_queue_free();
    return !*sim->wrong;
}

struct totals {
    uint64_t worlds, bad, events, seconds;
};

static void one(struct totals *t, struct opts *opts, uint64_t seed, bool is_traced)
{
    sim = xcalloc(1, sizeof *sim);
    sim->opts = opts;
    if (!sim_run(seed, is_traced)) {
        printf("seed %llu: %s\n", (unsigned long long)seed, sim->wrong);
        t->bad++;
    }
    t->worlds++;
    t->events += sim->events;
    t->seconds += sim->now_us / SIM_S;
    free(sim);
    sim = NULL;
}

int main(int argc, char **argv)
{
    uint64_t worlds = 1000, first = 1;
    struct totals t = {0};
    struct opts *opts = opts_new(conf_table);
    int c;
    while ((c = getopt(argc, argv, "n:s:")) != -1) {
        if (c == 'n')
            worlds = strtoull(optarg, NULL, 10);
        else if (c == 's')
            first = strtoull(optarg, NULL, 10);
        else
            return 2;
    }
    const clock_t begin = clock();
    if (optind < argc)
        one(&t, opts, strtoull(argv[optind], NULL, 10), true);
    for (uint64_t seed = first; optind == argc && seed < first + worlds; seed++)
        one(&t, opts, seed, false);
    printf("%llu worlds from seed %llu, %llu of them wrong; %llu events, %llu s of theirs in %.1f s of CPU\n",
           (unsigned long long)t.worlds, (unsigned long long)first, (unsigned long long)t.bad,
           (unsigned long long)t.events, (unsigned long long)t.seconds,
           (double)(clock() - begin) / CLOCKS_PER_SEC);
    opts_free(opts);
    return t.bad > 0;
}
