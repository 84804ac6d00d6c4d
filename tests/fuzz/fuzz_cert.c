/* SPDX-License-Identifier: MIT
 *
 * Certificates behind a signature that is good: the bytes as they come, and with the right mark and
 * cluster, so that the rest is reached. What opens must sign to the same again. */
#include "tests/fuzz/lib/fuzz.h"
#include "tests/fuzz/lib/unsealed.h"

#include "net/cert.h"

enum { BODY = CERT_BYTES - CERT_SIGNATURE };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t pub[CERT_CLUSTER_KEY] = {1}, secret[CERT_SECRET];
    static uint8_t id[CERT_ID];
    uint8_t bytes[CERT_BYTES] = {0}, again[CERT_BYTES];
    struct cert c;

    if (!id[0])
        cert_cluster_id(id, pub);
    expect(cert_open(data, n, pub, &c) < 0 || n == CERT_BYTES);
    if (n > 0)
        memcpy(bytes, data, n < BODY ? n : BODY);
    memcpy(bytes, "RGC1", 4);
    memcpy(bytes + 8, id, sizeof id);
    if (cert_open(bytes, sizeof bytes, pub, &c) < 0)
        return 0;
    expect(cert_sign(&c, secret, again) == 0 && memcmp(again, bytes, BODY) == 0);
    return 0;
}
