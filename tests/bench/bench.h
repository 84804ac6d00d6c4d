/* SPDX-License-Identifier: MIT
 *
 * What the benches share: a clock, medians with their spread, one row of the table, the two limits
 * of the machine (sgemm, reading memory), and starting again in the environment the daemon gives
 * its stages. Every row compares with a limit measured beside it in the same run: on a shared
 * machine only ratios last. */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/spawn_env.h"
#include "engine/err.h"

enum { BENCH_REPEATS_MAX = 16 };

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void bench_must(int r, const struct err *err)
{
    if (!r)
        return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(1);
}

static inline void *bench_alloc(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!p) {
        fprintf(stderr, "bench: no memory for %zu MiB: close something and run it again\n", bytes >> 20);
        exit(1);
    }
    return p;
}

/* What was measured, and beside it what it is held against, the same number of times each. */
struct bench_series {
    double figure[BENCH_REPEATS_MAX], limit[BENCH_REPEATS_MAX];
    size_t n;
};

static inline int bench_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double bench_median(const double *x, size_t n)
{
    double sorted[BENCH_REPEATS_MAX];
    memcpy(sorted, x, n * sizeof *x);
    qsort(sorted, n, sizeof *sorted, bench_ascending);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* A row of the table: the ratio is the median of the ratios, its spread half of what lies between
 * the extremes. figure · factor is in the limit's unit. `goal` 0: none. */
struct bench_row {
    const char *what, *unit, *limit, *limit_unit;
    double factor, goal;
};

static inline void bench_print(const struct bench_row *row, const struct bench_series *s)
{
    double ratio[BENCH_REPEATS_MAX], low = 1e300, high = 0;
    for (size_t i = 0; i < s->n; i++) {
        ratio[i] = s->figure[i] * row->factor / s->limit[i];
        low = ratio[i] < low ? ratio[i] : low;
        high = ratio[i] > high ? ratio[i] : high;
    }
    const double median = bench_median(ratio, s->n);
    char goal[32] = "";
    if (row->goal > 0)
        snprintf(goal, sizeof goal, ">= %3.0f %%  %s", 100 * row->goal, median >= row->goal ? "ok" : "BELOW");
    printf("%-38s %9.1f %-9s %-22s %8.1f %-8s %6.1f %% +- %4.1f   %s\n", row->what,
           bench_median(s->figure, s->n), row->unit, row->limit, bench_median(s->limit, s->n),
           row->limit_unit, 100 * median, 50 * (high - low), goal);
    fflush(stdout);
}

/* --- the machine's limits --------------------------------------------------------------------- */

/* Its header is gemm.c's alone; benches measure that file against the library, so they declare what
 * they call. */
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);
enum { BENCH_ROW_MAJOR = 101, BENCH_NO_TRANS = 111, BENCH_TRANS = 112 };

/* Square, big enough that packing is hidden and small enough that it lasts a twentieth of a
 * second. */
enum { BENCH_SGEMM = 1536 };

struct bench_sgemm {
    float *a, *b, *c; /* c: one for each thread */
    int threads;
};

static inline void bench_sgemm_init(struct bench_sgemm *s, int threads)
{
    s->threads = threads;
    const size_t n = (size_t)BENCH_SGEMM * BENCH_SGEMM;
    s->a = bench_alloc(n * sizeof *s->a);
    s->b = bench_alloc(n * sizeof *s->b);
    s->c = bench_alloc((size_t)threads * n * sizeof *s->c);
    for (size_t i = 0; i < n; i++)
        s->a[i] = s->b[i] = (float)(i % 17) / 17;
}

static inline void bench_sgemm_done(struct bench_sgemm *s)
{
    free(s->a);
    free(s->b);
    free(s->c);
}

/* GFLOP/s of threads that each multiply for at least `least` seconds, whole matrices of their own,
 * so that none waits for another: more than one product that they share would make. */
static inline double bench_sgemm_run(const struct bench_sgemm *s, double least)
{
    const int n = BENCH_SGEMM;
    double sum = 0;
    omp_set_num_threads(1); /* it asks in every call */
#pragma omp parallel num_threads(s->threads) reduction(+ : sum)
    {
        float *c = s->c + (size_t)omp_get_thread_num() * (size_t)n * (size_t)n;
        const double start = bench_now();
        int times = 0;
        do {
            cblas_sgemm(BENCH_ROW_MAJOR, BENCH_NO_TRANS, BENCH_TRANS, n, n, n, 1, s->a, n, s->b, n, 0, c, n);
            times++;
        } while (bench_now() - start < least);
        sum += 2e-9 * times * (double)n * n * n / (bench_now() - start);
    }
    return sum;
}

/* --- the stage's environment ------------------------------------------------------------------ */

/* The kernel OpenBLAS has for this CPU, or NULL where its own guess is right: Debian 12's 0.3.21
 * takes newer ones for a Prescott. */
static inline const char *bench_core_type(void)
{
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return __builtin_cpu_is("amd") ? "Zen" : "Haswell";
#endif
    return NULL;
}

/* Runs this program again with `args` (argv[1] …, ended by NULL) as the daemon would run a stage of
 * that many threads, and waits for it; 0 if all went well. OpenBLAS chooses its kernel while it is
 * being loaded, so nothing less will do: and whatever it was told before, for a slow limit
 * flatters. */
static inline int bench_again(int threads, char **argv)
{
    const pid_t pid = fork();
    if (pid == 0) {
        size_t inherited;
        const char *core = bench_core_type();
        if (core)
            setenv("OPENBLAS_CORETYPE", core, 1);
        else
            unsetenv("OPENBLAS_CORETYPE");
        unsetenv("OPENBLAS_L2_SIZE");
        unsetenv("OMP_NUM_THREADS");
        execve("/proc/self/exe", argv, spawn_environment(threads, &inherited));
        _exit(127);
    }
    int status = -1;
    return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

enum { BENCH_THREADS_MAX = 2 };
/* A main of pairs NAME MODEL: `child` measures each of them, in a process of its own for each
 * number of threads. 0 if all went well. */
static inline int bench_pairs(int argc, char **argv, const char *usage,
                              int (*child)(const char *name, char *model, int threads))
{
    if (argc == 5 && !strcmp(argv[1], "child"))
        return child(argv[2], argv[3], atoi(argv[4]));
    if (argc < 3 || argc % 2 == 0) {
        fprintf(stderr, "usage: %s\n", usage);
        return 2;
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int failed = 0;
    for (int i = 1; i < argc; i += 2)
        for (int threads = 1; threads <= (cores < BENCH_THREADS_MAX ? cores : BENCH_THREADS_MAX); threads++) {
            char kind[] = "child", number[12];
            snprintf(number, sizeof number, "%d", threads);
            char *args[] = {argv[0], kind, argv[i], argv[i + 1], number, NULL};
            failed |= bench_again(threads, args);
        }
    return failed;
}

#endif
