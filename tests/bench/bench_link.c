/* SPDX-License-Identifier: MIT
 *
 * One data connection as a job has it, between two network namespaces that bench_link.sh has joined
 * by a cable, a process at each end: against a bare TCP copy over the same cable and against the
 * cipher alone in memory on one core, with each cipher. Prints rates, CPU seconds per GB of each
 * end, page faults, and how long a small message takes.
 *
 * Each end of a link keeps two cores busy, four in all. Where there are fewer, or others use them,
 * the rate says more of the machine than of the link: two cores that carry both ends cannot move
 * more than two CPU seconds' worth a second, of sealing, opening and TCP at both. So the goal is
 * put to what its threads would reach if each had a core, by the CPU seconds of the busiest one,
 * and to the rate itself only with cores enough; and beside it stands what both ends spend
 * altogether against the cipher and a bare TCP copy, which they cannot do without. usage:
 * bench_link NAMESPACE-A NAMESPACE-B ADDRESS-OF-B */
#include "tests/bench/bench.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sodium.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "daemon/stage/exchange/exchange.h"
#include "daemon/common/progress.h"

enum {
    REPEATS = 5,
    CREDITS = 4,
    RECORD = 256 * 1024,
    MESSAGE = 8 << 20,
    SMALL = 16 * 1024,
    PINGS = 2000,
    GUARD_S = 300
};
#define TOTAL_BYTES ((size_t)512 << 20)

struct cable {
    const char *from, *to;
    struct sockaddr_in6 at;
};
/* What one end did: CPU is the process's, the kernel's work for it included; busiest is the lane's
 * thread that took most of it. */
struct cost {
    double seconds, cpu, busiest, faults;
};
struct result {
    double rate, cpu_tx, cpu_rx, busiest, faults_tx, faults_rx; /* GB/s; seconds per GB; per GB */
};
struct cipher {
    double rate, seal, open; /* GB/s of one core; CPU seconds per GB */
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void must(int r, const char *what)
{
    if (r >= 0)
        return;
    errno = -r;
    fail(what);
}

/* CPU seconds of the lane's thread that has most of them; the first thread, which waits meanwhile,
 * does not count. */
static double busiest_thread(void)
{
    double most = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *t; tasks && (t = readdir(tasks));) {
        char path[300];
        unsigned long long ns = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", t->d_name);
        FILE *f = t->d_name[0] == '.' || atoi(t->d_name) == getpid() ? NULL : fopen(path, "re");
        if (!f)
            continue;
        if (fscanf(f, "%llu", &ns) == 1 && 1e-9 * (double)ns > most)
            most = 1e-9 * (double)ns;
        fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return most;
}

/* What this process has used so far; `busiest` only makes sense at the end. */
static struct cost cost_now(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (struct cost){bench_now(),
                         (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                             1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec),
                         0, (double)u.ru_minflt};
}

static struct cost cost_since(const struct cost *begin)
{
    const struct cost now = cost_now();
    return (struct cost){now.seconds - begin->seconds, now.cpu - begin->cpu, busiest_thread(),
                         now.faults - begin->faults};
}

static double thread_cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A socket stays in the namespace it was made in. */
static int socket_in(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    const int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET))
        fail(path);
    close(ns);
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("a socket");
    return fd;
}

static void connect_pair(const struct cable *cable, int fd[2])
{
    struct sockaddr_in6 at = cable->at;
    socklen_t len = sizeof at;
    const int listener = socket_in(cable->to), on = 1;
    if (bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&at, &len))
        fail("listening on the cable");
    fd[0] = socket_in(cable->from);
    if (connect(fd[0], (struct sockaddr *)&at, len))
        fail("connecting over the cable");
    fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd[1] < 0)
        fail("accepting on the cable");
    for (int i = 0; i < 2; i++)
        setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

/* --- two processes ---------------------------------------------------------------------------- */

struct end {
    int fd;
    enum seal_suite suite; /* 0: bare */
    uint8_t key[2][32];
    bool sends;
};

/* Runs `work` at both ends and returns what each cost; the one in this process is [1]. */
static void both_ends(const struct cable *cable, enum seal_suite suite,
                      void (*work)(const struct end *, struct cost *), struct cost cost[2])
{
    struct end ends[2] = {{.suite = suite, .sends = true}, {.suite = suite}};
    int fd[2], report[2];
    connect_pair(cable, fd);
    randombytes_buf(ends[0].key, sizeof ends[0].key);
    memcpy(ends[1].key[0], ends[0].key[1], 32);
    memcpy(ends[1].key[1], ends[0].key[0], 32);
    if (pipe2(report, O_CLOEXEC))
        fail("a pipe");
    const pid_t pid = fork();
    if (pid < 0)
        fail("a process for the other end");
    const int mine = pid == 0 ? 0 : 1;
    close(fd[!mine]);
    ends[mine].fd = fd[mine];
    alarm(GUARD_S); /* an end that hangs is no figure */
    work(&ends[mine], &cost[mine]);
    if (pid == 0)
        _exit(write(report[1], &cost[0], sizeof cost[0]) != sizeof cost[0]);
    close(report[1]);
    if (read(report[0], &cost[0], sizeof cost[0]) != sizeof cost[0])
        fail("the other end did not finish");
    close(report[0]);
    waitpid(pid, NULL, 0);
    alarm(0);
}

static void bare(const struct end *end, struct cost *cost)
{
    uint8_t *buffer = bench_alloc(MESSAGE);
    memset(buffer, 1, MESSAGE);
    const struct cost begin = cost_now();
    for (size_t done = 0; done < TOTAL_BYTES;) {
        const size_t at = done % MESSAGE, left = MESSAGE - at, part = left < RECORD ? left : RECORD;
        const ssize_t n =
            end->sends ? send(end->fd, buffer + at, part, MSG_NOSIGNAL) : recv(end->fd, buffer + at, part, 0);
        if (n <= 0)
            fail("copying over the cable");
        done += (size_t)n;
    }
    *cost = cost_since(&begin);
    close(end->fd);
    free(buffer);
}

/* --- a data connection ------------------------------------------------------------------------ */

struct line {
    struct exchange *x;
    struct progress *progress;
    int progress_fd;
};

static void line_open(struct line *line, const struct end *end)
{
    struct err err;
    struct seal tx, rx;
    must(progress_create(&line->progress, &line->progress_fd), "a page for progress");
    seal_init(&tx, end->key[0], end->suite);
    seal_init(&rx, end->key[1], end->suite);
    bench_must(exchange_new(&line->x, line->progress, &err), &err);
    bench_must(exchange_add(line->x, 1, 1, end->fd, &tx, &rx, &err), &err);
}

static void line_close(struct line *line)
{
    must(exchange_flush(line->x, GUARD_S), "waiting for the last acknowledgement");
    exchange_free(line->x);
    progress_detach(line->progress);
    close(line->progress_fd);
}

static void line_send(struct line *line, uint32_t number, size_t size)
{
    void *buffer = exchange_buffer(line->x, size);
    must(buffer ? exchange_send(line->x, 1, &(struct msg_key){.kind = MSG_ACT, .mb = number}, buffer, size)
                : -ENOMEM,
         "sending a message");
}

static void line_post(struct line *line, uint32_t number, size_t size)
{
    must(exchange_post(line->x, 1, &(struct msg_key){.kind = MSG_ACT, .mb = number}, size, false),
         "posting a buffer");
}

static void line_take(struct line *line, uint32_t number)
{
    const struct msg_key key = {.kind = MSG_ACT, .mb = number};
    size_t size;
    while (!exchange_ready(line->x, 1, &key))
        exchange_wait(line->x);
    exchange_release(line->x, exchange_take(line->x, 1, &key, &size));
}

static void sealed(const struct end *end, struct cost *cost)
{
    struct line line;
    const uint32_t n = TOTAL_BYTES / MESSAGE;
    line_open(&line, end);
    const struct cost begin = cost_now();
    for (uint32_t i = 0; !end->sends && i < CREDITS; i++)
        line_post(&line, i, MESSAGE);
    for (uint32_t i = 0; i < n; i++) {
        if (end->sends) {
            while (!exchange_room(line.x, 1, CREDITS))
                exchange_wait(line.x);
            line_send(&line, i, MESSAGE);
            continue;
        }
        line_take(&line, i);
        if (i + CREDITS < n)
            line_post(&line, i + CREDITS, MESSAGE);
    }
    if (end->sends)
        must(exchange_flush(line.x, GUARD_S), "waiting for the last acknowledgement");
    *cost = cost_since(&begin);
    line_close(&line);
}

/* There and back, one at a time; both halves of the trip are alike. The receiving end begins, and
 * keeps the time. */
static void ping(const struct end *end, struct cost *cost)
{
    static double us[PINGS];
    struct line line;
    line_open(&line, end);
    line_post(&line, 0, SMALL);
    for (uint32_t i = 0; i < PINGS; i++) {
        const double begin = bench_now();
        if (!end->sends)
            line_send(&line, i, SMALL);
        line_take(&line, i);
        us[i] = 1e6 * (bench_now() - begin) / 2;
        if (i + 1 < PINGS)
            line_post(&line, i + 1, SMALL);
        if (end->sends)
            line_send(&line, i, SMALL);
    }
    qsort(us, PINGS, sizeof *us, bench_ascending);
    if (!end->sends)
        *cost = (struct cost){.seconds = us[PINGS / 2], .cpu = us[PINGS * 99 / 100]};
    line_close(&line);
}

/* --- the cipher ------------------------------------------------------------------------------- */

/* From messages into a record and back, as a lane does it, and from as many messages as are on
 * their way there, so that memory takes its share. The rate is that of the slower of the two, by
 * the clock on the wall. */
static struct cipher cipher(enum seal_suite suite)
{
    static uint8_t record[SEAL_HEAD + RECORD + SEAL_TAG];
    uint8_t key[32], *messages = bench_alloc((size_t)CREDITS * MESSAGE);
    struct seal tx, rx;
    double spent[2] = {0, 0}, cpu[2] = {0, 0};
    const double gb = 1e-9 * (double)(TOTAL_BYTES / 2);
    memset(messages, 1, (size_t)CREDITS * MESSAGE);
    randombytes_buf(key, sizeof key);
    seal_init(&tx, key, suite);
    rx = tx;
    for (size_t done = 0; done < TOTAL_BYTES / 2; done += RECORD) {
        uint8_t *at = messages + done % ((size_t)CREDITS * MESSAGE);
        double begin = bench_now(), begin_cpu = thread_cpu();
        must(seal_seal(&tx, record, at, RECORD), "sealing");
        cpu[0] += thread_cpu() - begin_cpu;
        spent[0] += bench_now() - begin;
        memcpy(at, record + SEAL_HEAD, RECORD); /* the kernel's copy, in neither figure */
        begin = bench_now();
        begin_cpu = thread_cpu();
        must(seal_open(&rx, record, at, RECORD, record + SEAL_HEAD + RECORD), "opening");
        cpu[1] += thread_cpu() - begin_cpu;
        spent[1] += bench_now() - begin;
    }
    free(messages);
    return (struct cipher){gb / (spent[0] > spent[1] ? spent[0] : spent[1]), cpu[0] / gb, cpu[1] / gb};
}

/* --- all of it -------------------------------------------------------------------------------- */

static struct result copy(const struct cable *cable, enum seal_suite suite)
{
    struct cost cost[2];
    const double gb = 1e-9 * (double)TOTAL_BYTES;
    both_ends(cable, suite, suite ? sealed : bare, cost);
    return (struct result){
        gb / cost[1].seconds, cost[0].cpu / gb,
        cost[1].cpu / gb,     (cost[0].busiest > cost[1].busiest ? cost[0].busiest : cost[1].busiest) / gb,
        cost[0].faults / gb,  cost[1].faults / gb};
}

static double median_of(const void *of, size_t size, size_t offset)
{
    double x[REPEATS];
    for (size_t i = 0; i < REPEATS; i++)
        memcpy(&x[i], (const char *)of + i * size + offset, sizeof *x);
    return bench_median(x, REPEATS);
}
#define MEDIAN(of, what) median_of(of, sizeof *(of), offsetof(__typeof__(*(of)), what))

static void print_cpu(const char *what, const struct result *r)
{
    const double busiest = MEDIAN(r, busiest);
    printf("%-38s %9.2f %-9s sending, %.2f receiving", what, MEDIAN(r, cpu_tx), "CPU s/GB",
           MEDIAN(r, cpu_rx));
    if (busiest > 0)
        printf(", %.2f the busiest thread", busiest);
    printf("; page faults per GB %.0f, %.0f\n", MEDIAN(r, faults_tx), MEDIAN(r, faults_rx));
}

static void print_suite(enum seal_suite suite, const struct result *linked, const struct result *plain,
                        const struct cipher *alone)
{
    struct bench_series tcp = {.n = REPEATS}, wall = {.n = REPEATS}, cores = {.n = REPEATS},
                        spent = {.n = REPEATS};
    char what[64];
    for (size_t i = 0; i < REPEATS; i++) {
        tcp.limit[i] = plain[i].rate;
        tcp.figure[i] = wall.figure[i] = linked[i].rate;
        wall.limit[i] = alone[i].rate;
        cores.figure[i] = 1 / linked[i].busiest;
        cores.limit[i] = 1 / (alone[i].seal > alone[i].open ? alone[i].seal : alone[i].open);
        spent.figure[i] = 1 / (linked[i].cpu_tx + linked[i].cpu_rx);
        spent.limit[i] = 1 / (alone[i].seal + alone[i].open + plain[i].cpu_tx + plain[i].cpu_rx);
    }
    const bool enough = sysconf(_SC_NPROCESSORS_ONLN) >= 4;
    snprintf(what, sizeof what, "link, %s, 8 MiB", seal_suite_name(suite));
    bench_print(&(struct bench_row){what, "GB/s", "bare TCP, same cable", "GB/s", 1, 0}, &tcp);
    bench_print(&(struct bench_row){what, "GB/s", "cipher alone, 1 core", "GB/s", 1, enough ? 0.9 : 0},
                &wall);
    snprintf(what, sizeof what, "  its threads with a core each");
    bench_print(&(struct bench_row){what, "GB/s", "cipher, by CPU time", "GB/s", 1, 0.9}, &cores);
    bench_print(&(struct bench_row){"  per CPU second of both ends", "GB", "cipher and bare TCP", "GB", 1, 0},
                &spent);
    print_cpu("  link", linked);
    print_cpu("  bare TCP, same cable", plain);
    printf("%-38s %9.2f %-9s sealing, %.2f opening\n", "  cipher alone", MEDIAN(alone, seal), "CPU s/GB",
           MEDIAN(alone, open));
}

static void bench_suite(const struct cable *cable, enum seal_suite suite)
{
    struct result plain[REPEATS], linked[REPEATS];
    struct cipher alone[REPEATS];
    struct cost half[2], trip[REPEATS];
    char what[64];
    copy(cable, 0);
    copy(cable, suite);
    for (size_t i = 0; i < REPEATS; i++) {
        plain[i] = copy(cable, 0);
        linked[i] = copy(cable, suite);
        alone[i] = cipher(suite);
        both_ends(cable, suite, ping, half);
        trip[i] = half[1];
    }
    print_suite(suite, linked, plain, alone);
    snprintf(what, sizeof what, "link, %s, 16 KiB", seal_suite_name(suite));
    printf("%-38s %9.0f %-9s half a round trip, p99 %.0f us\n", what, MEDIAN(trip, seconds), "us",
           MEDIAN(trip, cpu));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct cable cable = {.at = {.sin6_family = AF_INET6}};
    if (argc != 4 || inet_pton(AF_INET6, argv[3], &cable.at.sin6_addr) != 1) {
        fputs("usage: bench_link NAMESPACE-A NAMESPACE-B ADDRESS-OF-B\n", stderr);
        return 2;
    }
    cable.from = argv[1];
    cable.to = argv[2];
    if (sodium_init() < 0) {
        fputs("bench_link: libsodium cannot start\n", stderr);
        return 1;
    }
    bench_suite(&cable, SEAL_CHACHA20_POLY1305);
    if (seal_suites() & 1 << SEAL_AES256_GCM)
        bench_suite(&cable, SEAL_AES256_GCM);
    return 0;
}
