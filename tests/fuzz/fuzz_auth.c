/* SPDX-License-Identifier: MIT
 *
 * A stranger's bytes as each handshake message, without and with knowledge of the secret. First byte: which
 * message it is (mod 3); the rest is the message. Two parties who share the secret go before it, so that deep
 * states are reached. */
#include "tests/fuzz/fuzz.h"

#include "net/auth.h"

static void exchange(struct auth *from, struct auth *to)
{
    uint8_t msg[256], payload[64];
    int n = auth_write(from, msg, sizeof msg, "hello", 5);

    expect(n > 0 && auth_read(to, msg, (size_t)n, payload, sizeof payload) == 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct auth_identity id[3];
    uint8_t payload[AUTH_MAX_PAYLOAD];
    struct auth *side[2] = {NULL, NULL};
    size_t message;

    if (n < 1)
        return 0;
    message = data[0] % 3;
    for (int i = 0; i < 3; i++)
        expect(auth_identity_generate(&id[i]) == 0);
    for (int i = 0; i < 2; i++) /* the third secret is the cluster's */
        expect(auth_new(&side[i], i == 0, &id[i], id[2].secret, "ringd/1", 7) == 0);
    for (size_t i = 0; i < message; i++)
        exchange(side[i % 2], side[1 - i % 2]);
    /* secrets are fresh each time: nothing that was prepared beforehand can open */
    expect(auth_read(side[1 - message % 2], data + 1, n - 1, payload, sizeof payload) < 0);
    expect(!auth_done(side[1 - message % 2]) && !auth_writes_next(side[1 - message % 2]));
    auth_free(side[0]);
    auth_free(side[1]);
    return 0;
}
