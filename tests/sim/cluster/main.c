/* SPDX-License-Identifier: MIT
 *
 * Runs worlds of the simulation, each drawn from a seed. usage: simulate [-n WORLDS] [-s SEED]
 * [-j PROCESSES]: so many, from that seed on, with a process for each core; simulate SEED: that
 * one, with all that happens in it. */
#include "tests/sim/cluster/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"

enum { LONGEST_S = 4000, GRACE_S = 30, PROCESSES = 64 };
enum { MOST_EVENTS = 2000000 }; /* a world has some thousands: then it runs in circles */

struct sim *sim;

static void run(uint64_t until_us)
{
    while (!*sim->wrong && sim_step(until_us))
        if (sim->events > MOST_EVENTS)
            sim_wrong("it does not come to rest");
    if (sim->now_us < until_us)
        sim->now_us = until_us;
}

bool sim_run(uint64_t seed, bool is_traced)
{
    sim->seed = sim->random = seed;
    sim->is_traced = is_traced;
    struct acts *story = sim_story_begin();
    const uint64_t limit_us = sim->heals_us + (uint64_t)LONGEST_S * SIM_S;
    while (!*sim->wrong && sim->now_us < limit_us && !sim_check_is_over())
        run(sim->now_us + SIM_S);
    if (!*sim->wrong)
        run(sim->now_us + (uint64_t)GRACE_S * SIM_S);
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
    free(sim->files);
    return !*sim->wrong;
}

struct totals {
    uint64_t worlds, bad, events, seconds;
    double cpu;
    uint64_t seed; /* that is run just now; 0: none is */
};

static void one(struct totals *t, struct opts *opts, uint64_t seed, bool is_traced)
{
    sim = xcalloc(1, sizeof *sim);
    sim->opts = opts;
    t->seed = seed;
    if (!sim_run(seed, is_traced)) {
        printf("seed %llu: %s\n", (unsigned long long)seed, sim->wrong);
        fflush(stdout);
        t->bad++;
    }
    t->seed = 0;
    t->worlds++;
    t->events += sim->events;
    t->seconds += sim->now_us / SIM_S;
    struct sim *over = sim;
    sim = NULL;
    free(over);
}

/* Every so many, of those that are shared out among the processes. */
static int run_share(struct totals *t, struct opts *opts, uint64_t seed, uint64_t end, uint64_t every)
{
    for (; seed < end; seed += every)
        one(t, opts, seed, false);
    t->cpu = (double)clock() / CLOCKS_PER_SEC;
    return t->bad > 0;
}

/* What a process that has ended leaves: a world may have taken it along. */
static void hear_ended(struct totals *all, struct totals *t, int status)
{
    if (t->seed) {
        printf("seed %llu: its process was ended, by %s %d\n", (unsigned long long)t->seed,
               WIFSIGNALED(status) ? "signal" : "exit",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        t->bad++;
    }
    all->worlds += t->worlds;
    all->bad += t->bad;
    all->events += t->events;
    all->seconds += t->seconds;
    all->cpu += t->cpu;
}

static int run_all(struct totals *all, struct opts *opts, uint64_t first, uint64_t worlds, uint64_t processes)
{
    struct totals *each =
        mmap(NULL, PROCESSES * sizeof *each, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[PROCESSES];
    if (each == MAP_FAILED) {
        perror("simulate: memory for what all processes count");
        return -1;
    }
    for (uint64_t i = 0; i < processes; i++)
        if (!(pid[i] = fork()))
            exit(run_share(&each[i], opts, first + i, first + worlds, processes));
        else if (pid[i] < 0)
            perror("simulate: another process");
    for (uint64_t i = 0; i < processes; i++) {
        int status;
        if (waitpid(pid[i], &status, 0) == pid[i])
            hear_ended(all, &each[i], status);
    }
    munmap(each, PROCESSES * sizeof *each);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t worlds = 1000, first = 1, processes = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    struct totals t = {0};
    struct opts *opts = opts_new(conf_table);
    int c;
    while ((c = getopt(argc, argv, "j:n:s:")) != -1) {
        if (c == 'n')
            worlds = strtoull(optarg, NULL, 10);
        else if (c == 's')
            first = strtoull(optarg, NULL, 10);
        else if (c == 'j')
            processes = strtoull(optarg, NULL, 10);
        else
            return 2;
    }
    processes = processes < 1 ? 1 : processes > PROCESSES ? PROCESSES : processes;
    if (optind < argc)
        one(&t, opts, strtoull(argv[optind], NULL, 10), true);
    else if (run_all(&t, opts, first, worlds, processes))
        return 1;
    printf("%llu of %llu worlds from seed %llu on, %llu of them wrong; %llu events, %llu s of theirs in "
           "%.1f s of CPU\n",
           (unsigned long long)t.worlds, (unsigned long long)(optind < argc ? 1 : worlds),
           (unsigned long long)first, (unsigned long long)t.bad, (unsigned long long)t.events,
           (unsigned long long)t.seconds, t.cpu);
    opts_free(opts);
    return t.bad || (optind == argc && t.worlds != worlds);
}
