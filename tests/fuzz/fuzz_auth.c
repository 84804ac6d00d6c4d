/* SPDX-License-Identifier: MIT
 *
 * A stranger's bytes as each handshake message, with the real ciphers: all of them are refused.
 * First byte: which message it is (mod 3); the rest is the message. Two parties who share the
 * secret have gone as far as that, once for all runs; each run begins with a copy of who reads
 * next. */
#include "tests/fuzz/lib/fuzz.h"
#include "tests/lib/own_keys.h"

#include "net/auth.c" /* to be copied, it must be seen */

enum { MESSAGES = 3 };

static void exchange(struct auth *from, struct auth *to)
{
    uint8_t msg[256], payload[64];
    int n = auth_write(from, msg, sizeof msg, "hello", 5);

    expect(n > 0 && auth_read(to, msg, (size_t)n, payload, sizeof payload) == 5);
}

static void prepare(struct auth *readers)
{
    struct auth_identity id[3];
    struct auth *side[2];

    for (int i = 0; i < 3; i++)
        expect(own_identity(&id[i]) == 0);
    for (int i = 0; i < 2; i++) /* the third secret is the cluster's */
        expect(auth_new(&side[i], i == 0, &id[i], own_pair(&id[2])->secret, "ringd/1", 7) == 0);
    for (size_t message = 0; message < MESSAGES; message++) {
        readers[message] = *side[1 - message % 2];
        exchange(side[message % 2], side[1 - message % 2]);
    }
    auth_free(side[0]);
    auth_free(side[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct auth readers[MESSAGES];
    uint8_t payload[AUTH_MAX_PAYLOAD];

    if (n < 1)
        return 0;
    if (!readers->noise.pattern)
        prepare(readers);
    struct auth reader = readers[data[0] % MESSAGES];
    expect(auth_read(&reader, data + 1, n - 1, payload, sizeof payload) < 0);
    expect(!noise_is_done(&reader.noise) && !noise_writes_next(&reader.noise));
    return 0;
}
