/* SPDX-License-Identifier: MIT
 *
 * Certificates: the bytes as they come, and the same behind a good signature, so that what lies after the
 * check is reached. What opens must sign to the same again. */
#include "tests/fuzz/fuzz.h"

#include <sodium.h>

#include "net/cert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t seed[CERT_SEED] = {1};
    uint8_t pub[CERT_CLUSTER_KEY], secret[CERT_SECRET], bytes[CERT_BYTES], again[CERT_BYTES];
    struct cert c;

    cert_cluster_keys(pub, secret, seed);
    expect(cert_open(data, n, pub, &c) < 0 || n == CERT_BYTES);
    if (n < CERT_BYTES - CERT_SIGNATURE)
        return 0;
    memcpy(bytes, data, CERT_BYTES - CERT_SIGNATURE);
    memcpy(bytes, "RGC1", 4); /* past the two checks that chance does not pass */
    cert_cluster_id(bytes + 8, pub);
    crypto_sign_detached(bytes + CERT_BYTES - CERT_SIGNATURE, NULL, bytes, CERT_BYTES - CERT_SIGNATURE,
                         secret);
    if (cert_open(bytes, sizeof bytes, pub, &c) < 0)
        return 0;
    expect(cert_sign(&c, secret, again) == 0 && memcmp(again, bytes, sizeof again) == 0);
    return 0;
}
