/* SPDX-License-Identifier: MIT
 *
 * One data connection as a job has it (credits, sealed records, two sending and two receiving
 * threads) over loopback, held against a bare blocking TCP copy and against the cipher alone in
 * memory on one core. Both ends run on this machine, so two cores seal and open what two machines
 * would. */
#include "tests/bench/bench.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <sys/socket.h>

#include "daemon/stage/exchange/exchange.h"
#include "daemon/common/progress.h"
#include "tests/bench/loopback.h"

enum { REPEATS = 5, CREDITS = 4, CHUNK = 256 * 1024, WARM_UP = 8, LINE_SLACK = 64 };
#define TOTAL_BYTES ((size_t)1 << 30)

static void fail(const char *what)
{
    fprintf(stderr, "bench_wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* --- bare ------------------------------------------------------------------------------------- */

struct bare {
    int fd;
    const uint8_t *from;
    size_t message, total;
};

static void *bare_send(void *arg)
{
    const struct bare *b = arg;
    for (size_t sent = 0; sent < b->total;) {
        const size_t at = sent % b->message, left = b->message - at;
        const ssize_t n = send(b->fd, b->from + at, left < CHUNK ? left : CHUNK, MSG_NOSIGNAL);
        if (n <= 0)
            fail("sending");
        sent += (size_t)n;
    }
    return NULL;
}

/* GB/s from one buffer of a message's size to another. */
static double bare_copy(const int fd[2], uint8_t *from, uint8_t *to, size_t message, size_t total)
{
    pthread_t thread;
    struct bare b = {fd[0], from, message, total};
    const double begin = bench_now();
    if (pthread_create(&thread, NULL, bare_send, &b))
        fail("starting a thread");
    for (size_t got = 0; got < total;) {
        const size_t at = got % message, left = message - at;
        const ssize_t n = recv(fd[1], to + at, left < CHUNK ? left : CHUNK, 0);
        if (n <= 0)
            fail("receiving");
        got += (size_t)n;
    }
    pthread_join(thread, NULL);
    return 1e-9 * (double)total / (bench_now() - begin);
}

/* --- the cipher ------------------------------------------------------------------------------- */

static enum seal_suite suite_of_here(void)
{
    const struct seal_offer offer = seal_measure();
    return seal_choose(&offer, &offer);
}

static void new_seals(struct seal *tx, struct seal *rx)
{
    uint8_t key[32];
    randombytes_buf(key, sizeof key);
    seal_init(tx, key, suite_of_here());
    *rx = *tx;
}

/* GB/s of plaintext that one core both seals and opens, each at a time of its own: the slower of
 * the two. */
static double cipher(uint8_t *scratch, size_t total)
{
    struct seal tx, rx;
    double seconds[2] = {0, 0};
    new_seals(&tx, &rx);
    for (size_t done = 0; done < total; done += CHUNK) {
        const double begin = bench_now();
        int r = seal_seal(&tx, scratch, scratch + SEAL_HEAD, CHUNK);
        const double sealed = bench_now();
        r |= seal_open(&rx, scratch, scratch + SEAL_HEAD, CHUNK, scratch + SEAL_HEAD + CHUNK);
        seconds[0] += sealed - begin;
        seconds[1] += bench_now() - sealed;
        if (r) {
            errno = EBADMSG;
            fail("sealing");
        }
    }
    return 1e-9 * (double)total / (seconds[0] > seconds[1] ? seconds[0] : seconds[1]);
}

/* --- a data connection ------------------------------------------------------------------------ */

struct ends {
    struct exchange *tx, *rx;
    struct progress *progress;
    int progress_fd;
    uint32_t posted, sent, taken;
};

static void ends_open(struct ends *e)
{
    struct err err;
    struct seal out[2], in[2];
    int fd[2], r = progress_create(&e->progress, &e->progress_fd);
    if (r)
        bench_must(err_set(&err, r, "no page for progress: %s", strerror(-r)), &err);
    loopback_connect(fd);
    for (int i = 0; i < 2; i++)
        new_seals(&out[i], &in[i]);
    bench_must(exchange_new(&e->tx, e->progress, &err), &err);
    bench_must(exchange_new(&e->rx, e->progress, &err), &err);
    bench_must(exchange_add(e->tx, 1, 1, fd[0], &out[0], &in[1], &err), &err);
    bench_must(exchange_add(e->rx, 0, 1, fd[1], &out[1], &in[0], &err), &err);
}

static void ends_close(struct ends *e)
{
    exchange_free(e->tx);
    exchange_free(e->rx);
    progress_detach(e->progress);
    close(e->progress_fd);
}

static void broken(int r)
{
    fprintf(stderr, "bench_wire: %s\n", strerror(-r));
    exit(1);
}

/* As a stage does it: buffers are posted ahead of the messages, and no more messages queued than
 * credits. */
static void advance(struct ends *e, uint32_t until, size_t size)
{
    int r = 0;
    for (; !r && e->posted < until && e->posted < e->taken + CREDITS; e->posted++)
        r = exchange_post(e->rx, 0, &(struct msg_key){.kind = MSG_ACT, .mb = e->posted}, size, false);
    for (; !r && e->sent < e->posted; e->sent++) {
        void *buffer = exchange_buffer(e->tx, size);
        r = buffer ? exchange_send(e->tx, 1, &(struct msg_key){.kind = MSG_ACT, .mb = e->sent}, buffer, size)
                   : -ENOMEM;
    }
    if (r)
        broken(r);
}

static double exchange_copy(struct ends *e, size_t size, size_t messages)
{
    const uint32_t until = e->taken + (uint32_t)messages;
    const double begin = bench_now();
    while (e->taken < until) {
        const struct msg_key key = {.kind = MSG_ACT, .mb = e->taken};
        size_t got;
        int r;
        advance(e, until, size);
        while (!(r = exchange_ready(e->rx, 0, &key)))
            exchange_wait(e->rx);
        if (r < 0)
            broken(r);
        exchange_release(e->rx, exchange_take(e->rx, 0, &key, &got));
        e->taken++;
    }
    return 1e-9 * (double)(size * messages) / (bench_now() - begin);
}

static void bench_size(struct ends *e, const int bare[2], size_t mib)
{
    const size_t size = mib << 20;
    uint8_t *from = bench_alloc(size), *to = bench_alloc(size), *scratch = bench_alloc(CHUNK + LINE_SLACK);
    struct bench_series tcp = {.n = REPEATS}, one_core = {.n = REPEATS};
    memset(from, 1, size);
    memset(scratch, 1, CHUNK + LINE_SLACK);
    exchange_copy(e, size, WARM_UP);
    bare_copy(bare, from, to, size, TOTAL_BYTES / 8);
    for (size_t i = 0; i < REPEATS; i++) {
        tcp.limit[i] = bare_copy(bare, from, to, size, TOTAL_BYTES);
        tcp.figure[i] = one_core.figure[i] = exchange_copy(e, size, TOTAL_BYTES / size);
        one_core.limit[i] = cipher(scratch, TOTAL_BYTES / 4);
    }
    char what[64], limit[32];
    snprintf(what, sizeof what, "sealed link, messages of %zu MiB", mib);
    snprintf(limit, sizeof limit, "%s, 1 core", seal_suite_name(suite_of_here()));
    bench_print(&(struct bench_row){what, "GB/s", "bare TCP copy", "GB/s", 1, 0}, &tcp);
    bench_print(&(struct bench_row){what, "GB/s", limit, "GB/s", 1, 0}, &one_core);
    free(from);
    free(to);
    free(scratch);
}

int main(void)
{
    static const size_t mib[] = {1, 8};
    struct ends e = {0};
    int bare[2];
    if (sodium_init() < 0) {
        fputs("bench_wire: libsodium cannot start\n", stderr);
        return 1;
    }
    ends_open(&e);
    loopback_connect(bare);
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++)
        bench_size(&e, bare, mib[i]);
    ends_close(&e);
    close(bare[0]);
    close(bare[1]);
    return 0;
}
