/* SPDX-License-Identifier: MIT
 *
 * Runs worlds of the simulation, each drawn from a seed. usage: simulate [-n WORLDS] [-s SEED]
 * [-j PROCESSES]: so many, from that seed on, with a process for each core; simulate SEED: that
 * one, with all that happens in it; simulate -H HOURS [-s SEED]: one that goes on for so long. */
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

enum {
    LONGEST_S = 4000,
    GRACE_S = 30,
    REST_S = 120, /* processes that rest have ended */
    PART_H = 6,
    PROCESSES = 64
};
enum { MOST_EVENTS = 2000000 }; /* a chapter has some thousands: then it runs in circles */

struct sim *sim;

static void run(uint64_t until_us)
{
    while (!*sim->wrong && sim_step(until_us))
        if (sim->events > sim->most_events)
            sim_wrong("it does not come to rest");
    if (sim->now_us < until_us)
        sim->now_us = until_us;
}

/* Until all jobs have ended, and what follows from that has happened. */
static void run_chapter(void)
{
    const uint64_t from_us = sim->now_us > sim->heals_us ? sim->now_us : sim->heals_us,
                   limit_us = from_us + (uint64_t)LONGEST_S * SIM_S;
    sim->most_events = sim->events + MOST_EVENTS;
    while (!*sim->wrong && sim->now_us < limit_us && !sim_check_is_over())
        run(sim->now_us + SIM_S);
    if (!*sim->wrong)
        run(sim->now_us + (uint64_t)GRACE_S * SIM_S);
    if (!*sim->wrong)
        sim_check_end();
}

static bool end(struct acts *story)
{
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

bool sim_run(uint64_t seed, bool is_traced)
{
    sim->seed = sim->random = seed;
    sim->is_traced = is_traced;
    struct acts *story = sim_story_begin();
    run_chapter();
    return end(story);
}

/* --- days ------------------------------------------------------------------------------------- */

/* Of the daemons, between two chapters. */
struct held {
    size_t bytes, timers, files;
};

/* What the world keeps of a chapter goes with it: what stays is the daemons'. */
static struct held turn_page(struct acts *story)
{
    sim_data_forget();
    for (size_t i = 0; i < sim->nodes; i++) {
        struct sim_node *n = &sim->at[i];
        sim_disk_forget(n->disk);
        memset(n->saved, 0, sizeof n->saved);
        n->holds = 0;
    }
    sim_story_go_on(story);
    struct held held = {.bytes = sim_heap_taken ? sim_heap_taken() : 0, .timers = sim->queued};
    for (size_t i = 0; i < sim->nfiles; i++)
        held.files += sim->files[i] != NULL;
    return held;
}

static void note_most(struct held *most, struct held now)
{
    most->bytes = now.bytes > most->bytes ? now.bytes : most->bytes;
    most->timers = now.timers > most->timers ? now.timers : most->timers;
    most->files = now.files > most->files ? now.files : most->files;
}

bool sim_run_hours(uint64_t seed, uint64_t hours)
{
    const uint64_t span_us = (uint64_t)PART_H * 3600 * SIM_S;
    struct held most = {0}, first = {0};
    uint64_t jobs = 0;
    sim->lives_long = true; /* a daemon that begins anew holds nothing */
    sim->seed = sim->random = seed;
    struct acts *story = sim_story_begin();
    for (uint64_t part = 1; part * PART_H <= hours && !*sim->wrong; part++) {
        most = (struct held){0};
        while (sim->now_us < part * span_us && !*sim->wrong) {
            run_chapter();
            jobs += sim->jobs;
            if (!*sim->wrong)
                run(sim->now_us + (uint64_t)REST_S * SIM_S);
            if (!*sim->wrong)
                note_most(&most, turn_page(story));
        }
        printf("%3llu h: %llu jobs, %zu nodes; at most %zu KiB, %zu timers, %zu files of copies\n",
               (unsigned long long)(part * PART_H), (unsigned long long)jobs, sim->nodes, most.bytes >> 10,
               most.timers, most.files);
        first = part == 1 ? most : first;
    }
    if (!*sim->wrong && most.bytes > first.bytes + first.bytes / 10)
        sim_wrong("the daemons hold %zu KiB in the end, and %zu KiB in the first %d hours", most.bytes >> 10,
                  first.bytes >> 10, PART_H);
    return end(story);
}

struct totals {
    uint64_t worlds, bad, events, seconds;
    double cpu;
    uint64_t seed; /* that is run just now; 0: none is */
};

static void one(struct totals *t, struct opts *opts, uint64_t seed, bool is_traced, uint64_t hours)
{
    sim = xcalloc(1, sizeof *sim);
    sim->opts = opts;
    t->seed = seed;
    if (!(hours ? sim_run_hours(seed, hours) : sim_run(seed, is_traced))) {
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
        one(t, opts, seed, false, 0);
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
    uint64_t worlds = 1000, first = 1, hours = 0, processes = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    struct totals t = {0};
    struct opts *opts = opts_new(conf_table);
    int c;
    while ((c = getopt(argc, argv, "H:j:n:s:")) != -1) {
        if (c == 'n')
            worlds = strtoull(optarg, NULL, 10);
        else if (c == 's')
            first = strtoull(optarg, NULL, 10);
        else if (c == 'H')
            hours = strtoull(optarg, NULL, 10);
        else if (c == 'j')
            processes = strtoull(optarg, NULL, 10);
        else
            return 2;
    }
    processes = processes < 1 ? 1 : processes > PROCESSES ? PROCESSES : processes;
    const bool is_one = hours || optind < argc;
    if (is_one) {
        one(&t, opts, hours ? first : strtoull(argv[optind], NULL, 10), !hours, hours);
        t.cpu = (double)clock() / CLOCKS_PER_SEC;
    }
    if (!is_one && run_all(&t, opts, first, worlds, processes))
        return 1;
    printf("%llu of %llu worlds from seed %llu on, %llu of them wrong; %llu events, %llu s of theirs in "
           "%.1f s of CPU\n",
           (unsigned long long)t.worlds, (unsigned long long)(is_one ? 1 : worlds), (unsigned long long)first,
           (unsigned long long)t.bad, (unsigned long long)t.events, (unsigned long long)t.seconds, t.cpu);
    opts_free(opts);
    return t.bad || (!is_one && t.worlds != worlds);
}
