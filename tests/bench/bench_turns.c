/* SPDX-License-Identifier: MIT
 *
 * `bench_turns MIB THREADS ROUNDS`: what a ring that generates does on this machine but for all
 * that is its own. Threads read their share of so much memory one after the other, each when a byte
 * has come from the one before it, round and round. Prints rounds a second. */
#include "tests/bench/bench.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/stage/plan/stage_machine.h"

enum { THREADS_MAX = 8 };

struct chat_inbox {
    const unsigned char *at; /* the share */
    size_t chunks, rounds;
    int from, to; /* pipes */
    uint64_t sum;
};

static void *turn_by_turn(void *arg)
{
    struct chat_inbox *t = arg;
    char byte = 0;
    for (size_t i = 0; i < t->rounds && read(t->from, &byte, 1) == 1; i++) {
        for (size_t c = 0; c < t->chunks; c++)
            t->sum += machine_add_up(t->at + c * MACHINE_CHUNK);
        if (write(t->to, &byte, 1) != 1)
            break;
    }
    return NULL;
}

/* Seconds, or −1. The first byte comes from here, and the last comes back. */
static double run(const unsigned char *memory, size_t mib, size_t threads, size_t rounds)
{
    struct chat_inbox turns[THREADS_MAX];
    pthread_t thread[THREADS_MAX];
    int pipes[THREADS_MAX][2];
    size_t n = 0;
    char byte = 0;
    for (size_t i = 0; i < threads; i++)
        if (pipe(pipes[i]))
            return -1;
    const double begin = bench_now();
    for (; n < threads; n++) {
        turns[n] = (struct chat_inbox){memory + n * (mib / threads) * MACHINE_CHUNK,
                                       mib / threads,
                                       rounds,
                                       pipes[n][0],
                                       pipes[(n + 1) % threads][1],
                                       0};
        if (pthread_create(&thread[n], NULL, turn_by_turn, &turns[n]))
            return -1;
    }
    const bool begun = write(pipes[0][1], &byte, 1) == 1;
    for (size_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    const double took = bench_now() - begin;
    for (size_t i = 0; i < threads; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    return begun ? took : -1;
}

int main(int argc, char **argv)
{
    const size_t mib = argc == 4 ? strtoul(argv[1], NULL, 10) : 0,
                 threads = argc == 4 ? strtoul(argv[2], NULL, 10) : 0,
                 rounds = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    if (!mib || !threads || threads > THREADS_MAX || !rounds) {
        fputs("usage: bench_turns MIB THREADS ROUNDS\n", stderr);
        return 2;
    }
    unsigned char *memory = bench_alloc(mib * MACHINE_CHUNK);
    memset(memory, 1, mib * MACHINE_CHUNK);
    const double took = run(memory, mib, threads, rounds);
    free(memory);
    if (took <= 0)
        return 1;
    printf("%.2f\n", (double)rounds / took);
    return 0;
}
