/* SPDX-License-Identifier: MIT
 *
 * What the two ciphers cost on this CPU. Owns its record while it lasts; called once by the daemon
 * at its start, on the loop. */
#include "seal.h"

#include <stdlib.h>
#include <time.h>

enum {
    PLAIN = 64 << 10, /* a record long enough that its start counts for nothing, and short for a slow CPU */
    TURNS = 12,       /* the least counts: an interrupt only ever adds */
    LEAST_TURNS = 2   /* the first of which brings code and memory in */
};
static const uint64_t ENOUGH_PS = UINT64_C(3000000000); /* 3 ms */

/* Of this thread: another process may have the core meanwhile. */
static uint64_t now_ps(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000000) + (uint64_t)t.tv_nsec * 1000;
}

/* Picoseconds for a byte, at least 1; 0: the cipher does not work here. */
static uint16_t cost_of(enum seal_suite suite, uint8_t *record)
{
    static const uint8_t key[32] = {1};
    const uint64_t start = now_ps();
    uint64_t least = UINT64_MAX, per_byte;
    struct seal tx, rx;

    seal_init(&tx, key, suite);
    seal_init(&rx, key, suite);
    for (size_t turn = 0; turn < TURNS && (turn < LEAST_TURNS || now_ps() - start < ENOUGH_PS); turn++) {
        const uint64_t from = now_ps();

        if (seal_seal(&tx, record, record + SEAL_HEAD, PLAIN) ||
            seal_open(&rx, record, record + SEAL_HEAD, PLAIN, record + SEAL_HEAD + PLAIN))
            return 0;
        const uint64_t took = now_ps() - from;
        least = took < least ? took : least;
    }
    per_byte = least / PLAIN;
    return (uint16_t)(per_byte < 1 ? 1 : per_byte > UINT16_MAX ? UINT16_MAX : per_byte);
}

struct seal_offer seal_measure(void)
{
    struct seal_offer offer = {.suites = seal_suites()};
    uint8_t *record = calloc(1, SEAL_HEAD + PLAIN + SEAL_TAG);

    if (record) {
        offer.chacha_ps = cost_of(SEAL_CHACHA20_POLY1305, record);
        if (offer.suites & 1 << SEAL_AES256_GCM)
            offer.aes_ps = cost_of(SEAL_AES256_GCM, record);
        if (!offer.aes_ps)
            offer.suites &= (uint8_t) ~(1 << SEAL_AES256_GCM);
    }
    free(record);
    return offer;
}
