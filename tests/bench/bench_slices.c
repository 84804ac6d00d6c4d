/* SPDX-License-Identifier: MIT
 *
 * What it costs two ranks to gather an output (daemon/stage/task/slice_lanes.h): two processes with
 * a core each, over loopback, every exchange as a token has it. It is held against the same bytes
 * exchanged over a bare TCP connection by a thread that sleeps until they come, and by one that
 * never sleeps. Between two exchanges each process reads memory, as products do, so that nothing of
 * an exchange is left in a cache; only the exchanges are timed, with what one waits for the
 * other.
 * usage: bench_slices [KIB…]    (1 to 512 of each message; 4 and 16 are those of a token) */
#include "tests/bench/bench.h"

#include <errno.h>
#include <sched.h>
#include <sodium.h>
#include <sys/socket.h>

#include "daemon/stage/task/slice_lanes.h"
#include "tests/bench/loopback.h"

enum { REPEATS = 5, TIMES = 2000, WARM_UP = 200, SLICES = 2, MOST = 512 << 10, MEMORY = 4 << 20 };
enum { KIB = 1024 / sizeof(float), LARGE = 64 * KIB, TIMES_OF_LARGE = 300 };

static void fail(const char *what, int e)
{
    fprintf(stderr, "bench_slices: %s: %s\n", what, strerror(e));
    exit(1);
}

/* One of the two processes. */
struct end {
    size_t self; /* its slice, and its core */
    int bare;    /* its end of a connection */
    struct job_plan plan;
    struct slice_lanes lanes;
    float *own, *to;
    const uint64_t *memory;
    uint64_t read; /* what lay there, added up */
};

/* --- ways to exchange n floats ---------------------------------------------------------------- */

typedef void exchange_fn(struct end *e, size_t n);

static void bare(struct end *e, size_t n, int flags)
{
    const size_t bytes = n * sizeof *e->own;
    for (size_t at = 0; at < bytes;) {
        const ssize_t sent = send(e->bare, (const char *)e->own + at, bytes - at, MSG_NOSIGNAL);
        if (sent <= 0)
            fail("sending", errno);
        at += (size_t)sent;
    }
    for (size_t at = 0; at < bytes;) {
        const ssize_t got = recv(e->bare, (char *)e->to + at, bytes - at, flags);
        if (got < 0 && errno == EAGAIN)
            continue;
        if (got <= 0)
            fail("receiving", errno);
        at += (size_t)got;
    }
}

static void bare_asleep(struct end *e, size_t n)
{
    bare(e, n, 0);
}

static void bare_awake(struct end *e, size_t n)
{
    bare(e, n, MSG_DONTWAIT);
}

static void gathered(struct end *e, size_t n)
{
    const struct gather_columns what = {
        .to = e->to, .own = e->own, .rows = 1, .width = SLICES * n, .first = {0, n, SLICES * n}};
    struct err err;
    bench_must(e->lanes.gather.run(e->lanes.gather.owner, &what, &err), &err);
}

/* µs of one. */
static double time_of(struct end *e, exchange_fn *run, size_t n)
{
    const size_t times = n < LARGE ? TIMES : TIMES_OF_LARGE;
    double seconds = 0;
    for (size_t i = 0; i < WARM_UP + times; i++) {
        for (size_t at = 0; at < MEMORY / sizeof *e->memory; at++)
            e->read += e->memory[at];
        const double begin = bench_now();
        run(e, n);
        if (i >= WARM_UP)
            seconds += bench_now() - begin;
    }
    return 1e6 * seconds / (double)times;
}

/* --- the rows --------------------------------------------------------------------------------- */

static void measure(struct end *e, size_t n)
{
    struct bench_series asleep = {.n = REPEATS}, awake = {.n = REPEATS};
    for (size_t i = 0; i < REPEATS; i++) {
        asleep.limit[i] = time_of(e, bare_asleep, n);
        awake.limit[i] = time_of(e, bare_awake, n);
        asleep.figure[i] = awake.figure[i] = time_of(e, gathered, n);
    }
    char what[64];
    snprintf(what, sizeof what, "gathering %zu KiB from each of two", n * sizeof *e->own >> 10);
    if (e->self) /* the other one says it */
        return;
    bench_print(&(struct bench_row){what, "us", "bare TCP, asleep", "us", 1, 0}, &asleep);
    bench_print(&(struct bench_row){what, "us", "bare TCP, awake", "us", 1, 0}, &awake);
}

static void end_open(struct end *e, int fd, struct progress *progress)
{
    static const uint8_t to_one[32] = {1}, to_zero[32] = {2};
    const struct seal_offer offer = seal_measure();
    const enum seal_suite suite = seal_choose(&offer, &offer);
    struct seal tx, rx;
    struct err err;
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(e->self, &core);
    if (sched_setaffinity(0, sizeof core, &core))
        fprintf(stderr, "bench_slices: no core %zu of its own: %s\n", e->self, strerror(errno));
    e->plan = (struct job_plan){.ranks = SLICES, .stages = 1, .slices = SLICES};
    slice_lanes_init(&e->lanes, &e->plan, (uint32_t)e->self, progress);
    seal_init(&tx, e->self ? to_zero : to_one, suite);
    seal_init(&rx, e->self ? to_one : to_zero, suite);
    bench_must(exchange_new(&e->lanes.exchange, progress, &err), &err);
    bench_must(exchange_add(e->lanes.exchange, !e->self, 1, fd, &tx, &rx, &err), &err);
    e->own = bench_alloc(MOST);
    e->to = bench_alloc(SLICES * MOST);
    uint64_t *memory = bench_alloc(MEMORY);
    memset(e->own, 1, MOST);
    memset(memory, 1, MEMORY);
    e->memory = memory;
}

/* Floats of each message; 0: nobody can gather so many KiB here. */
static size_t floats_of(const char *kib)
{
    const size_t n = strtoul(kib, NULL, 10);
    return n <= MOST / 1024 ? n * KIB : 0;
}

static int run(struct end *e, int fd, char *const *kib)
{
    static char *const of_a_token[] = {"4", "16", NULL};
    struct progress *progress;
    struct err err;
    int page, r = progress_create(&progress, &page);
    if (r)
        bench_must(err_set(&err, r, "no page for progress: %s", strerror(-r)), &err);
    end_open(e, fd, progress);
    for (kib = *kib ? kib : of_a_token; *kib; kib++)
        measure(e, floats_of(*kib));
    exchange_flush(e->lanes.exchange, 1);
    exchange_free(e->lanes.exchange);
    progress_detach(progress);
    return e->read == 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!floats_of(argv[i])) {
            fprintf(stderr, "bench_slices: a message has 1 to %zu KiB, not %s\n", (size_t)MOST / 1024,
                    argv[i]);
            return 2;
        }
    int plain[SLICES], sealed[SLICES], status = 0;
    if (sodium_init() < 0) {
        fputs("bench_slices: libsodium cannot start\n", stderr);
        return 1;
    }
    loopback_connect(plain);
    loopback_connect(sealed);
    const pid_t child = fork();
    if (child < 0)
        fail("starting a process", errno);
    struct end e = {.self = child == 0, .bare = plain[child == 0]};
    close(plain[child != 0]);
    close(sealed[child != 0]);
    const int failed = run(&e, sealed[child == 0], argv + 1);
    if (!child)
        return failed;
    return waitpid(child, &status, 0) != child || status || failed;
}
