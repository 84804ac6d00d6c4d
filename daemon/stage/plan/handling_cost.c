/* SPDX-License-Identifier: MIT
 *
 * Owns its buffers while it lasts. */
#include "daemon/stage/plan/handling_cost.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/stage/exchange/exchange.h"
#include "net/seal.h"

enum {
    SEALED = SEAL_HEAD + EXCHANGE_CHUNK + SEAL_TAG,
    PART = 4 << 20,
    PARTS = 6,                     /* with all buffers more than caches hold, as gradients are */
    CHUNKS = PART / EXCHANGE_CHUNK /* as many wait in a socket */
};
/* Of a CPU with AES instructions, where nothing may be timed. */
static const struct handling_cost USUAL = {1.5e-9, 0.6e-9};
/* The system copies what is sent and what is received, and allocates, wakes and counts meanwhile:
 * together four times as long as the copies alone, as measured over the loopback device. */
static const double SYSTEM_TIMES = 4;

/* As a rank has them: a part is packed, sealed, sent, received where it stays, opened and added. */
struct handling {
    float *grads, *sent, *received; /* owned: [PARTS · PART] bytes */
    uint8_t *sealed, *socket;       /* owned: [SEALED], [CHUNKS · SEALED] */
    struct seal ours, theirs;
};

/* Of this thread: others may still wait for work in a loop, as those of OpenMP do. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void add(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* A chunk is sealed, sent and opened; returns the seconds that the copies take. */
static double pass_chunk(struct handling *h, size_t chunk, const uint8_t *plain, uint8_t *to)
{
    uint8_t *socket = h->socket + chunk * SEALED, tag[SEAL_TAG], head[SEAL_HEAD];
    seal_seal(&h->ours, h->sealed, plain, EXCHANGE_CHUNK);
    const double from = now();
    memcpy(socket, h->sealed, SEALED);
    memcpy(head, socket, SEAL_HEAD);
    memcpy(to, socket + SEAL_HEAD, EXCHANGE_CHUNK);
    memcpy(tag, socket + SEAL_HEAD + EXCHANGE_CHUNK, SEAL_TAG);
    const double seconds = now() - from;
    seal_open(&h->theirs, head, to, EXCHANGE_CHUNK, tag);
    return seconds;
}

struct seconds {
    double passed; /* of a part on its way */
    double copies; /* within that */
};

static void handle_part(struct seconds *s, struct handling *h, size_t part)
{
    const size_t n = PART / sizeof(float);
    memcpy(h->sent + part * n, h->grads + part * n, PART);
    const double from = now();
    for (size_t chunk = 0; chunk < CHUNKS; chunk++)
        s->copies += pass_chunk(h, chunk, (const uint8_t *)(h->sent + part * n) + chunk * EXCHANGE_CHUNK,
                                (uint8_t *)(h->received + part * n) + chunk * EXCHANGE_CHUNK);
    s->passed += now() - from;
    add(h->grads + part * n, h->received + part * n, n);
    memcpy(h->sent + part * n, h->grads + part * n, PART); /* the sum, for the others or in place */
}

struct handling_cost handling_cost(bool may_time)
{
    static const uint8_t key[32] = {1};
    struct handling h = {.grads = calloc(PARTS, PART),
                         .sent = calloc(PARTS, PART),
                         .received = calloc(PARTS, PART),
                         .sealed = calloc(1, SEALED),
                         .socket = calloc(CHUNKS, SEALED)};
    struct handling_cost each = USUAL;
    if (may_time && h.grads && h.sent && h.received && h.sealed && h.socket) {
        const struct seal_offer offer = seal_measure();
        const enum seal_suite suite = seal_choose(&offer, &offer);
        seal_init(&h.ours, key, suite);
        seal_init(&h.theirs, key, suite);
        for (size_t turn = 0; turn < 2; turn++) { /* the first brings the memory in */
            const double from = now(), bytes = (double)PARTS * PART;
            struct seconds s = {0};
            for (size_t part = 0; part < PARTS; part++)
                handle_part(&s, &h, part);
            each = (struct handling_cost){(now() - from + s.copies * (SYSTEM_TIMES - 1)) / bytes,
                                          s.passed / bytes};
        }
    }
    free(h.grads);
    free(h.sent);
    free(h.received);
    free(h.sealed);
    free(h.socket);
    return each;
}
